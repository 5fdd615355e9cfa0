package store

import (
	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// This file lets the external tests of the package see whole tables, and queue
// what no command of the package queues by itself.

// Prompt queues a step prompt of a run, as a node that asks its session would.
// Answer: nothing.
type Prompt struct {
	Run  launch.RunID
	Text string
}

func (c Prompt) run(x *tx) (struct{}, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return struct{}{}, err
	}
	body, err := Body{"pi-workflows-step", c.Text, []byte(`{"schema":"pi-workflows.step.v1"}`)}.encode()
	if err != nil {
		return struct{}{}, err
	}
	_, err = x.apply(l.Session, session.Queue{Message: session.Message{
		Kind: session.Step, Subject: "prompt:" + string(l.ID) + ":" + c.Text, Run: l.ID, Body: body, Eligible: x.now.Wall,
	}})
	return struct{}{}, err
}

// Stored is an event as it is stored.
type Stored struct {
	Stream [16]byte
	Record
}

// Setting is one revision of a run's settings.
type Setting struct {
	Run      launch.RunID
	Revision uint32
	Value    string
}

// All is the content of every table that has rules of its own.
type All struct {
	Launches []launch.Launch
	Runs     []run.Run
	Steps    []run.Step
	Effects  []effect.Effect
	Receipts []request.Receipt
	Settings []Setting
	Intents  []intents.Intent
	Sessions []session.Session
	Messages []session.Message
	Chains   []session.Chain
	Requests []request.Request
	Spent    []run.Interval
	Events   []Stored
}

// ReadAll reads every table, on an engine that scans without an index, which
// the reference in memory does.
func ReadAll(rows Rows) (a All, err error) {
	read := func(row Row, add func()) {
		if err == nil {
			err = rows.Scan(&Index{Name: "all", Table: row.Table(), Primary: true}, nil, 1<<30, row, func() bool { add(); return true })
		}
	}
	var l launchRow
	read(&l, func() { a.Launches = append(a.Launches, l.Launch) })
	names := map[[16]byte]launch.RunID{} // other tables hold the bare key of a run
	for _, l := range a.Launches {
		key, _ := runBytes(l.ID)
		names[key] = l.ID
	}
	name := func(bare launch.RunID) launch.RunID {
		key, _ := runBytes(launch.NewRunID("x", string(bare)))
		return names[key]
	}
	var r runRow
	read(&r, func() { x := r.Run; x.ID = name(x.ID); a.Runs = append(a.Runs, x); r = runRow{} })
	var s stepRow
	read(&s, func() { x := s.Step; x.Run = name(x.Run); a.Steps = append(a.Steps, x); s = stepRow{} })
	var e effectRow
	read(&e, func() { x := e.Effect; x.Key.Run = name(x.Key.Run); a.Effects = append(a.Effects, x); e = effectRow{} })
	var rc receiptRow
	read(&rc, func() { a.Receipts = append(a.Receipts, rc.Receipt); rc = receiptRow{} })
	var st settingsRow
	read(&st, func() {
		a.Settings = append(a.Settings, Setting{name(st.Run), st.Revision, string(st.Value)})
		st = settingsRow{}
	})
	var i intentRow
	read(&i, func() { a.Intents = append(a.Intents, i.Intent) })
	var se sessionRow
	read(&se, func() { a.Sessions = append(a.Sessions, se.Session) })
	var m messageRow
	read(&m, func() { a.Messages = append(a.Messages, m.Message) })
	var c chainRow
	read(&c, func() { a.Chains = append(a.Chains, c.Chain) })
	var q requestRow
	read(&q, func() { x := q.Request; x.Run = name(x.Run); a.Requests = append(a.Requests, x); q = requestRow{} })
	var iv intervalRow
	read(&iv, func() { x := iv.Interval; x.Run = name(x.Run); a.Spent = append(a.Spent, x); iv = intervalRow{} })
	var ev eventRow
	var broken error
	read(&ev, func() {
		all, err := decodeEvents(ev)
		if err != nil {
			broken = err
		}
		for _, e := range all {
			a.Events = append(a.Events, Stored{ev.Stream, e})
		}
	})
	if err == nil {
		err = broken
	}
	return a, err
}

// StreamOfRun and StreamOfSession are the keys of the event streams.
func StreamOfRun(id launch.RunID) [16]byte { key, _ := runBytes(id); return key }

func StreamOfSession(k launch.SessionKey) [16]byte { return sessionStream(k) }
