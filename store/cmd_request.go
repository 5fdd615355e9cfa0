package store

import (
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/launch"
)

// Respond carries one action to one request: submit, update, respond, answer or
// decide. Answer: [Response]. What is refused is answered too, because it leaves
// an audit receipt, and nothing else (rule request/refused). An accepted answer
// makes its run runnable in the same transaction.
//
// Errors leave nothing: a connection that is not current, and ids or keys out of
// their bounds.
type Respond struct {
	request.Act
	Epoch uint64 // of the connection that the action came through; 0 = none
}

// Response is the answer to [Respond].
type Response struct {
	Outcome  request.Outcome
	Request  string
	Run      launch.RunID // of a request that the caller may know of
	Node     string
	State    request.State
	Revision uint64
	Refused  error // a launch.Refusal, or nil when the action stands
}

func (c Respond) run(x *tx) (Response, error) {
	for _, k := range [...]struct{ field, value string }{{"request id", c.Request}, {"action key", c.Key}} {
		if err := launch.CheckKey(k.field, k.value); err != nil {
			return Response{}, err
		}
	}
	if c.Session != "" {
		if err := launch.CheckSessionKey(c.Session); err != nil {
			return Response{}, err
		}
	}
	if c.Epoch != 0 {
		s, err := x.session(c.Session)
		if err != nil {
			return Response{}, err
		}
		if s.Epoch != c.Epoch || !s.Connected() {
			r := launch.Refuse(launch.ErrStale, "the session was connected again; this connection changes nothing")
			r.Fence = launch.EpochChanged
			return Response{}, r
		}
	}
	return x.respond(c.Act)
}

// respond lets package request decide, and keeps what follows.
func (x *tx) respond(a request.Act) (Response, error) {
	q, err := x.request(a.Request)
	if err != nil {
		return Response{}, err
	}
	var known *request.Request
	if q != nil && (a.Actor != launch.Model || q.Session == a.Session) {
		known = &q.Request
	}
	key := receiptRow{request.Receipt{Request: a.Request, Key: a.Key}}
	if a.Actor == launch.Model {
		key.Session = a.Session
	}
	had, err := x.receipts.load(x, key, func(r *receiptRow) bool {
		return r.Session == key.Session && r.Request == a.Request && r.Key == a.Key
	})
	if err != nil {
		return Response{}, err
	}
	var before *request.Receipt
	if had != nil {
		before = &had.Receipt
	}
	reply := request.Respond(known, a, before, x.now)
	if reply.Receipt != nil && had == nil {
		receipt := *reply.Receipt
		receipt.Session = key.Session
		x.receipts.insert(receiptRow{receipt})
	}
	out := Response{Outcome: reply.Outcome, Request: a.Request, Refused: reply.Err}
	if known == nil {
		if a.Actor == launch.Model {
			out.Refused, err = x.instead(a, reply.Err)
		}
		return out, err
	}
	if reply.Changed {
		if err := x.setRequest(q, reply.Request, reply.Events); err != nil {
			return Response{}, err
		}
	}
	out.Run, out.Node, out.State, out.Revision = q.Run, q.Node, q.State, q.Revision
	return out, nil
}

// instead names the request that is open in a model's own session, so that a
// wrong id can be corrected.
func (x *tx) instead(a request.Act, refused error) (error, error) {
	l, err := x.reservation(a.Session)
	if err != nil || l == nil || !l.HasRecord() {
		return refused, err
	}
	r, err := x.record(l)
	if err != nil {
		return refused, err
	}
	q, err := x.asked(r)
	if err != nil || q == nil || q.State.Over() {
		return refused, err
	}
	return launch.Refuse(launch.ErrNotFound, "no such request here; the one that is open in this session is %s, of kind %s", q.ID, q.Kind), nil
}
