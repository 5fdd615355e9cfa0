package sessiontest

import (
	"fmt"
	"slices"

	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/launch"
)

// agent is one process of the coding agent on the session's file, with its
// bridge.
type agent struct {
	name    string
	alive   bool
	epoch   uint64 // of its connection as far as it knows, or 0
	lines   []Line // what it remembers of the file, and its own
	saved   int    // how many of them are on disk
	leaf    int
	run     *run // what the agent is doing, or nil
	typed   bool // input lies there and has not started its turn
	stopped bool // the person stopped a turn and the host does not know yet
	out     []session.Command
}

// run is one turn from start to settled.
type run struct {
	key    string
	lines  []Line // not appended yet: the message, then the reply
	opener Line   // the message that opened it, or zero
	muted  bool   // its end will not be reported
}

// ask is a send on its way to a process.
type ask struct {
	to      *agent
	token   launch.Digest
	epoch   uint64
	message session.Message
	others  []string
}

// reply is a bridge's answer on its way back.
type reply struct{ session.Answer }

// open starts a process on the file: the last line is the leaf.
func (w *World) open(name string) *agent {
	a := &agent{name: name, alive: true, lines: slices.Clone(w.Disk), saved: len(w.Disk)}
	if n := len(w.Disk); n > 0 {
		a.leaf = w.Disk[n-1].ID
	}
	w.agents = append(w.agents, a)
	return a
}

// branch returns the lines from the leaf to the root.
func (a *agent) branch() (path []Line) {
	for id := a.leaf; id != 0; {
		n := slices.IndexFunc(a.lines, func(l Line) bool { return l.ID == id })
		path = append(path, a.lines[n])
		id = a.lines[n].Parent
	}
	return path
}

// append adds a line to the branch. Without any finished reply in the session
// nothing reaches the disk.
func (w *World) append(a *agent, l Line) {
	w.serial++
	l.ID, l.Parent = w.serial, a.leaf
	a.lines = append(a.lines, l)
	a.leaf = l.ID
	if slices.ContainsFunc(a.lines, func(l Line) bool { return l.Reply }) {
		w.Disk = append(w.Disk, a.lines[a.saved:]...)
		a.saved = len(a.lines)
	}
}

// execute carries out a send as one synchronous step and answers it.
func (w *World) execute(k ask, refuse bool) session.Verdict {
	a := k.to
	path := a.branch()
	if a.run != nil && a.run.opener.Message != "" { // on its way to the branch
		path = append(path, a.run.opener)
	}
	there := slices.ContainsFunc(path, func(l Line) bool {
		return l.Message == k.message.ID || l.Message != "" && slices.Contains(k.others, l.Message) || l.Intent != "" && l.Intent == k.message.Intent
	})
	switch {
	case refuse || a.epoch != k.epoch || w.wall >= k.message.Attempt.Deadline:
		return session.Refused
	case there:
		return session.Present
	case a.run != nil || a.typed || a.stopped:
		return session.Occupied
	}
	l := Line{Message: k.message.ID, Intent: k.message.Intent, Turn: k.message.Kind.StartsTurn()}
	if !l.Turn {
		w.append(a, l)
		return session.Taken
	}
	w.begin(a, l)
	return session.Taken
}

// begin starts a turn, opened by a message or by the person.
func (w *World) begin(a *agent, opener Line) {
	w.serial++
	a.run = &run{key: fmt.Sprintf("turn-%d", w.serial), opener: opener, lines: []Line{opener, {Reply: true}}}
	a.typed = false
	a.out = append(a.out, session.TurnStarted{Turn: a.run.key, Message: opener.Message})
}

// advance does the next thing of a turn: append its message, its reply, settle.
func (w *World) advance(a *agent) {
	if r := a.run; len(r.lines) > 0 {
		w.append(a, r.lines[0])
		r.lines = r.lines[1:]
		return
	}
	a.settle(session.Completed, false)
}

func (a *agent) settle(end session.End, byPerson bool) {
	if !a.run.muted {
		a.out = append(a.out, session.TurnSettled{Turn: a.run.key, End: end, ByPerson: byPerson})
	}
	a.run = nil
}

// look returns what the bridge sees of the named messages. What is on its way
// to the branch counts as there.
func (a *agent) look(names []string) session.Report {
	path := a.branch()
	slices.Reverse(path)
	unsaved := a.lines[a.saved:]
	r := session.Report{Epoch: a.epoch, Idle: a.run == nil, Pending: a.typed}
	for _, name := range names {
		e := session.Evidence{Message: name}
		at := slices.IndexFunc(path, func(l Line) bool { return l.Message == name })
		e.Present = at >= 0 || a.run != nil && a.run.opener.Message == name
		e.Durable = at >= 0 && !slices.ContainsFunc(unsaved, func(l Line) bool { return l.ID == path[at].ID })
		e.Replied = at >= 0 && slices.ContainsFunc(path[at:], func(l Line) bool { return l.Reply })
		r.Evidence = append(r.Evidence, e)
	}
	return r
}
