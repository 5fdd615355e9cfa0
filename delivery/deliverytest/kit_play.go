package deliverytest

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// must ends the check when the agent could not be driven.
func (k *kit) must(what string, err error) {
	k.tb.Helper()
	if err != nil {
		k.tb.Fatalf("rule %s: the agent under test failed to %s: %v", k.rule.Name, what, err)
	}
}

// mark returns the present end of the log.
func (k *kit) mark() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.log)
}

// await returns the first thing heard from the mark on that fits. The text says
// what is waited for: "the bridge never <text>".
func (k *kit) await(mark int, fits func(heard) bool, text string) heard {
	k.tb.Helper()
	late := time.NewTimer(k.Patience)
	defer late.Stop()
	for {
		k.mu.Lock()
		log, moved := k.log[mark:], k.moved
		k.mu.Unlock()
		if i := slices.IndexFunc(log, fits); i >= 0 {
			return log[i]
		}
		select {
		case <-moved:
		case <-late.C:
			k.failf("in %v the bridge never %s", k.Patience, text)
		}
	}
}

// since returns what was heard from the mark on and fits.
func (k *kit) since(mark int, fits func(heard) bool) (found []heard) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, h := range k.log[mark:] {
		if fits(h) {
			found = append(found, h)
		}
	}
	return found
}

func is(kind heardKind) func(heard) bool { return func(h heard) bool { return h.kind == kind } }

func isTurn(kind heardKind, message string) func(heard) bool {
	return func(h heard) bool { return h.kind == kind && h.message == message }
}

// ready waits for a connection after the epoch that has asked to be looked at.
func (k *kit) ready(after uint64) *kitConn {
	k.tb.Helper()
	k.await(0, func(h heard) bool { return h.kind == heardConnect && h.epoch > after }, "connected")
	h := k.await(0, func(h heard) bool { return h.kind == heardChanged && h.epoch > after },
		"asked to be looked at (Changed) after it had connected")
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.conn.epoch < h.epoch {
		panic("deliverytest: an older connection is the latest")
	}
	return k.conn
}

// start starts a process and waits for its bridge.
func (k *kit) start() *kitConn {
	k.tb.Helper()
	k.mu.Lock()
	epoch := k.epoch
	k.mu.Unlock()
	k.must("start", k.Start())
	return k.ready(epoch)
}

// open starts a process and has one exchange with it, so that the session is not
// a fresh one.
func (k *kit) open() *kitConn {
	k.tb.Helper()
	c := k.start()
	k.chat("hello")
	return c
}

// again restarts the process politely.
func (k *kit) again() *kitConn {
	k.tb.Helper()
	k.must("stop", k.Stop())
	return k.start()
}

// drop loses the connection without a word and waits for the next one.
func (k *kit) drop(c *kitConn) *kitConn {
	k.tb.Helper()
	c.end(false)
	return k.ready(c.epoch)
}

// prompt submits a text as a person does and waits until the model is asked.
func (k *kit) prompt(text string) {
	k.tb.Helper()
	mark := k.mark()
	k.must("prompt", k.Prompt(text))
	k.await(mark, is(heardRequest), "let the agent ask its model after a person's prompt")
}

// chat has an exchange with the agent and waits until it is at rest.
func (k *kit) chat(text string) {
	k.tb.Helper()
	mark := k.mark()
	k.must("prompt", k.Prompt(text))
	h := k.await(mark, is(heardStart), "reported the start of the turn that a person's prompt opened")
	k.settled(mark, h)
	k.rest()
}

// settled waits for the end of a started turn.
func (k *kit) settled(mark int, start heard) heard {
	k.tb.Helper()
	return k.await(mark, func(h heard) bool { return h.kind == heardSettled && h.turn == start.turn && !h.lost },
		"reported the end of a turn (TurnSettled) under the key with which it had reported the start")
}

// ended waits for the end of the turn that the message opened, and for rest.
func (k *kit) ended(mark int, message string) heard {
	k.tb.Helper()
	start := k.await(mark, isTurn(heardStart, message), "reported the start of the turn that message "+message+" opened, with its id")
	end := k.settled(mark, start)
	k.rest()
	return end
}

// rest waits until the bridge says that the session is free.
func (k *kit) rest() {
	k.tb.Helper()
	k.until(nil, "answered that the session is idle with nothing pending; it has to call Changed when that comes true",
		func(r delivery.Report) bool { return r.Idle && !r.Pending })
}

// until looks until the report fits, again after each thing that is heard.
func (k *kit) until(names []string, text string, fits func(delivery.Report) bool) delivery.Report {
	k.tb.Helper()
	late := time.NewTimer(k.Patience)
	defer late.Stop()
	for {
		k.mu.Lock()
		moved, c := k.moved, k.conn
		k.mu.Unlock()
		r, err := c.look(k, names)
		if err == nil && fits(r) {
			return r
		}
		retry := time.NewTimer(time.Hour)
		if err != nil { // it asks to be asked again
			retry.Reset(k.Quiet)
		}
		select {
		case <-moved:
		case <-retry.C:
		case <-late.C:
			k.failf("in %v the bridge never %s; its latest answer was %+v, error %v", k.Patience, text, r, err)
		}
		retry.Stop()
	}
}

// look is the host's call.
func (c *kitConn) look(k *kit, names []string) (delivery.Report, error) {
	ctx, cancel := context.WithTimeout(context.Background(), k.Patience)
	defer cancel()
	c.call.Lock()
	defer c.call.Unlock()
	return c.session.Look(ctx, slices.Clone(names))
}

// evidence looks once and returns what is said of the message.
func (k *kit) evidence(c *kitConn, message string) (delivery.Report, delivery.Evidence) {
	k.tb.Helper()
	r := k.until([]string{message}, "answered a look", func(delivery.Report) bool { return true })
	at := slices.IndexFunc(r.Evidence, func(e delivery.Evidence) bool { return e.Message == message })
	if at < 0 {
		return r, delivery.Evidence{Message: message}
	}
	return r, r.Evidence[at]
}

// message makes one that starts a turn.
func (c *kitConn) message(id string) delivery.Message {
	details, err := json.Marshal(map[string]string{"messageId": id, "turnIntentId": "intent-of-" + id, "kind": "step"})
	if err != nil {
		panic(err)
	}
	return delivery.Message{
		ID: id, Intent: "intent-of-" + id, Epoch: c.epoch, Deadline: launch.TimeOf(time.Now().Add(c.k.Patience + time.Minute)),
		TriggerTurn: true, CustomType: "deliverytest", Content: "please do " + id, Details: details,
	}
}

// passive makes one that starts none.
func (c *kitConn) passive(id string) delivery.Message {
	m := c.message(id)
	m.TriggerTurn = false
	return m
}

// send is the host's call.
func (c *kitConn) send(m delivery.Message) (delivery.Answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), c.k.Patience)
	defer cancel()
	c.call.Lock()
	defer c.call.Unlock()
	return c.session.Send(ctx, m)
}

// send sends and wants one of the verdicts.
func (k *kit) send(c *kitConn, m delivery.Message, why string, want ...delivery.Verdict) delivery.Answer {
	k.tb.Helper()
	a, err := c.send(m)
	if err != nil {
		k.failf("the send of %s on a live connection failed: %v", m.ID, err)
	}
	if !slices.Contains(want, a.Verdict) {
		k.failf("the send of %s was answered %s and not %s: %s", m.ID, named(a.Verdict), named(want...), why)
	}
	return a
}

// named prints verdicts.
func named(verdicts ...delivery.Verdict) string {
	var names []string
	for _, v := range verdicts {
		names = append(names, [...]string{"nothing", "Taken", "Present", "Occupied", "Refused"}[min(v, delivery.Refused)])
	}
	return strings.Join(names, " or ")
}

// deliver sends a message and waits until its turn is over.
func (k *kit) deliver(c *kitConn, id string) delivery.Message {
	k.tb.Helper()
	mark, m := k.mark(), c.message(id)
	k.send(c, m, "the session was free", delivery.Taken)
	k.ended(mark, id)
	return m
}

// abort is the host's call.
func (k *kit) abort(c *kitConn, message string) {
	k.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), k.Patience)
	defer cancel()
	c.call.Lock()
	defer c.call.Unlock()
	if err := c.session.Abort(ctx, message); err != nil {
		k.failf("the abort of the turn of %q failed: %v", message, err)
	}
}

// branch returns the active branch.
func (k *kit) branch() []Entry {
	k.tb.Helper()
	b, err := k.Branch()
	k.must("show its branch", err)
	return b
}

// count wants the message that often on the branch.
func (k *kit) count(message string, want int, why string) {
	k.tb.Helper()
	if got := count(k.branch(), message); got != want {
		k.failf("message %s is %d times on the branch and not %d: %s", message, got, want, why)
	}
}

// never has an exchange with the agent, which brings up what is hidden in it,
// and wants none of the messages on the branch.
func (k *kit) never(why string, messages ...string) {
	k.tb.Helper()
	k.chat("is anything left?")
	for _, m := range messages {
		k.count(m, 0, why)
	}
}

// requests returns how often the model was asked from the mark on.
func (k *kit) requests(mark int) int { return len(k.since(mark, is(heardRequest))) }

// asked is the answer to a send that was made while a report waited.
type asked struct {
	delivery.Answer
	err  error
	late bool // the report did not wait so long: nothing follows from it
}

// during makes the sends, one after another, while the next report of that kind
// waits for its answer, and returns what waits for their answers. A bridge that
// lets nothing else through while it reports answers later.
func (k *kit) during(kind heardKind, sends ...func(*kitConn) delivery.Message) func() []asked {
	out := make(chan []asked, 1)
	k.at(kind, func(c *kitConn) bool {
		answered := make(chan struct{})
		waited := make(chan struct{})
		go func() {
			var all []asked
			for _, m := range sends {
				var a asked
				a.Answer, a.err = c.send(m(c))
				select {
				case <-waited:
					a.late = true
				default:
				}
				all = append(all, a)
			}
			close(answered)
			out <- all
		}()
		select {
		case <-answered:
		case <-time.After(k.Quiet):
		}
		close(waited)
		return false
	})
	return func() []asked {
		k.tb.Helper()
		select {
		case all := <-out:
			if slices.ContainsFunc(all, func(a asked) bool { return a.late }) {
				k.tb.Logf("rule %s: not judged in full, because the bridge let nothing through while it reported", k.rule.Name)
			}
			return all
		case <-time.After(k.Patience):
			k.failf("in %v the bridge never answered a send that was made while it reported", k.Patience)
			return nil
		}
	}
}

// at has fn called in the next report of that kind, before it is answered. When
// fn says so the answer is lost, and the connection with it.
func (k *kit) at(kind heardKind, fn func(*kitConn) (lose bool)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.window = func(h heard) bool {
		if h.kind != kind {
			return false
		}
		k.mu.Lock()
		k.window = nil
		c := k.conn
		k.mu.Unlock()
		if c.epoch != h.epoch || !fn(c) {
			return false
		}
		h.lost = true
		k.mu.Lock()
		k.hear(h)
		k.mu.Unlock()
		c.end(false)
		return true
	}
}

// say makes the model say that from its next request on.
func (k *kit) say(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reply = text
}

// lose loses the answer to the next report of that kind, and the connection.
func (k *kit) lose(kind heardKind) { k.at(kind, func(*kitConn) bool { return true }) }

// leave makes the host be away, or be back.
func (k *kit) leave(away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.away = away
}
