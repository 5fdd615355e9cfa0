package deliverytest

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"example.com/piworkflows/delivery"
)

// maxRetries is how often Pi asks again after a provider failure.
const maxRetries = 3

// run is one agent run, which is one turn to the host: from its acceptance to
// settled, with all requests in it.
type run struct {
	key     string
	message string
	opener  Entry
	ctx     context.Context
	cancel  context.CancelFunc
	done    chan struct{}
	started bool
	ending  bool // takes no more input
	aborted bool
	own     bool // aborted by the bridge
}

func (p *Process) newRun(opener Entry) *run {
	r := &run{opener: opener, message: opener.MessageID(), done: make(chan struct{})}
	r.ctx, r.cancel = context.WithCancel(p.ctx)
	return r
}

// begin starts a run, or the next one after it. Called with the lock.
func (p *Process) begin(r *run) {
	p.run = r
	go p.agent(r)
}

// live takes the lock, or ends the goroutine of a process that is dead.
func (p *Process) live() {
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		runtime.Goexit()
	}
}

// add appends an entry and says so.
func (p *Process) add(e Entry) {
	p.live()
	p.append(e)
	p.mu.Unlock()
	p.changed()
}

func (p *Process) agent(r *run) {
	defer close(r.done)
	defer r.cancel()
	p.at(PointAccepted)
	p.live()
	p.turns++
	r.key, r.started = fmt.Sprintf("%s/turn-%d", p.name, p.turns), true
	p.out = append(p.out, report{kind: started, turn: r.key, message: r.message})
	p.file.note(func(j *journal) { j.turns = append(j.turns, TurnRecord{Turn: r.key, Message: r.message}) })
	p.mu.Unlock()
	p.at(PointStart)
	p.flush()
	p.at(PointStarted)
	p.add(r.opener)
	p.at(PointVisible)
	p.settle(r, p.converse(r))
}

// converse makes requests until the run is at its end.
func (p *Process) converse(r *run) delivery.End {
	cut := func() delivery.End {
		p.add(Entry{Role: Assistant, Stop: Cut})
		return delivery.Aborted
	}
	calls, try := 0, 1
	for n := 1; ; n++ {
		if r.ctx.Err() != nil {
			return cut()
		}
		reply := p.ask(r, n, try)
		switch {
		case r.ctx.Err() != nil:
			return cut()
		case reply.Fail:
			p.add(Entry{Role: Assistant, Stop: Failed})
			if try > maxRetries {
				return delivery.Error
			}
			try++
			p.at(PointRetry)
			if r.ctx.Err() != nil { // stopped in the wait: not aborted, Pi says
				return delivery.Error
			}
			p.live()
			p.out = append(p.out, report{kind: started, turn: r.key, message: r.message})
			p.mu.Unlock()
			p.flush()
			continue
		}
		try = 1
		reply.Calls = slices.Clone(reply.Calls)
		for i := range reply.Calls {
			calls++
			reply.Calls[i].ID, reply.Calls[i].Turn = fmt.Sprintf("call-%d", calls), r.key
		}
		stop := Finished
		if len(reply.Calls) > 0 {
			stop = ToolUse
		}
		p.add(Entry{Role: Assistant, Text: reply.Text, Calls: reply.Calls, Stop: stop})
		p.at(PointReply)
		terminate := false
		for _, c := range reply.Calls {
			p.call(r, c)
			if r.ctx.Err() != nil {
				return cut()
			}
			terminate = terminate || c.Terminate
		}
		if !p.more(r, len(reply.Calls) > 0 && !terminate) {
			return delivery.Completed
		}
	}
}

func (p *Process) ask(r *run, n, try int) Reply {
	p.live()
	t := Turn{Key: r.key, Message: r.message, Opener: r.opener, Request: n, Try: try, Context: seen(p.branch())}
	p.file.note(func(j *journal) {
		j.requests = append(j.requests, ModelRequest{Process: p.name, Turn: r.key, Message: r.message, Try: try})
	})
	p.mu.Unlock()
	if p.opt.Model == nil {
		return Reply{Text: "ok"}
	}
	reply := p.opt.Model(r.ctx, t)
	if reply.Escape {
		p.Escape()
	}
	return reply
}

func (p *Process) call(r *run, c Call) {
	p.at(PointTool)
	p.live()
	p.mu.Unlock()
	result := "Tool " + c.Tool + " not found"
	if tool := p.opt.Tools[c.Tool]; tool != nil {
		result = tool(r.ctx, c)
	}
	p.at(PointToolDone)
	p.add(Entry{Role: ToolResult, CallID: c.ID, Text: result})
}

// more puts what waits for the run on the branch and reports whether the model
// has to be asked again. Text steers between requests; hidden messages wait for
// the end.
func (p *Process) more(r *run, more bool) bool {
	p.live()
	var in []Entry
	for _, text := range p.steer {
		in = append(in, Entry{Role: User, Text: text})
	}
	p.steer = nil
	if !more && len(in) == 0 {
		in, p.hidden = p.hidden, nil
	}
	for _, e := range in {
		p.append(e)
	}
	more = more || len(in) > 0
	r.ending = !more
	p.mu.Unlock()
	if len(in) > 0 {
		p.changed()
	}
	return more
}

// replied is what a turn said: its final assistant text, which may answer a
// request if the turn completed and nobody typed into it. Called with the lock.
func (p *Process) replied(r *run, end delivery.End) *delivery.Reply {
	branch := p.branch()
	reply := &delivery.Reply{Usable: end == delivery.Completed}
	for i := len(branch) - 1; i >= 0; i-- {
		e := branch[i]
		if reply.ReplyEntry == "" && e.Role == Assistant {
			reply.ReplyEntry, reply.Text = e.ID, e.Text
			reply.Usable = reply.Usable && e.Stop == Finished
		}
		if r.message != "" && e.MessageID() == r.message {
			reply.PromptEntry = e.ID
			break
		}
		reply.Usable = reply.Usable && e.Role != User
	}
	reply.Usable = reply.Usable && reply.PromptEntry != "" && reply.ReplyEntry != ""
	return reply
}

func (p *Process) settle(r *run, end delivery.End) {
	p.live()
	r.ending = true
	p.steer = nil
	p.mu.Unlock()
	p.at(PointEnd)
	p.live()
	byPerson := end == delivery.Aborted && !r.own // as far as a bridge can tell
	p.settling, p.stopped = true, p.stopped || byPerson
	p.out = append(p.out, report{kind: settled, turn: r.key, end: end, byPerson: byPerson, reply: p.replied(r, end)})
	p.file.note(func(j *journal) {
		j.turn(r.key, func(t *TurnRecord) { t.End, t.ByPerson = end, byPerson })
	})
	p.mu.Unlock()
	p.at(PointSettled)
	p.flush()
	p.at(PointReported)
	p.live()
	p.settling, p.run = false, nil
	p.next()
	p.mu.Unlock()
	p.changed()
}

// next begins the run that waits for the last one to be over.
func (p *Process) next() {
	if len(p.starts) > 0 {
		r := p.starts[0]
		p.starts = p.starts[1:]
		p.begin(r)
	}
}

// abort stops a run. Called with the lock.
func (p *Process) abort(r *run, own bool) {
	if r.aborted || p.settling {
		return
	}
	r.aborted, r.own = true, own
	if !p.opt.RPC {
		p.hidden = nil
	}
	r.cancel()
}
