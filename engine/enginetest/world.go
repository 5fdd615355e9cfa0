package enginetest

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// RunID and Session are the run and the session of every [World].
const (
	RunID   = launch.RunID("kit-00000000000000000000000001")
	Session = launch.SessionKey("kit@0123456789abcdef0123456789abcdef")
)

// Subject is what every decision of a [World] is about.
var Subject = launch.DigestOf([]byte("subject"))

// World is the dumb twin of a store of one run with its requests and effects.
// [World.Apply] does what a store does in one transaction. Read its fields,
// change them only through Apply.
type World struct {
	Plan      run.Plan
	Run       run.Run
	Steps     []run.Step // in the order in which they were settled
	Intervals []run.Interval
	Requests  []request.Request
	Receipts  []request.Receipt
	Effects   []effect.Effect
	Now       launch.Now // of the last step

	visits  map[string]uint32
	process int // number of this process's monotonic clock
	n       int // steps so far
}

// NewWorld begins a run of a valid plan.
func NewWorld(p run.Plan) *World {
	w := &World{Plan: p, Now: launch.Now{Wall: 1_700_000_000_000_000_000, Mono: 1, Clock: "process-0"}, visits: map[string]uint32{p.Start: 1}}
	r, err := run.Begin(RunID, &w.Plan, []byte(`{}`), w.Now.Wall)
	if err != nil {
		panic("enginetest: the plan is not valid: " + err.Error())
	}
	w.Run = r
	return w
}

// Step is one of [Pass], [Move], [Ask], [Act], [Tell], [Reserve] and [Touch].
type Step interface{ apply(*World) error }

// Pass lets time pass; Jump is by how much the wall clock goes wrong, and
// Restart begins a new process, whose monotonic clock is another.
type Pass struct {
	Wait, Jump time.Duration
	Restart    bool
}

// Move applies a command to the run. A result is refused while the node's
// request or effect is open, or says something else, as a host refuses it.
type Move struct{ Command run.Command }

// Ask opens the request of the current execution and lets the run wait.
type Ask struct{}

// Act carries an action to a request; a repeated key finds its receipt.
type Act struct{ request.Act }

// Tell applies a command to a request.
type Tell struct {
	Request string
	Command request.Command
}

// Reserve reserves the effect of the current execution, with the approval that
// its node needs.
type Reserve struct{ effect.Reservation }

// Touch applies a command to a reserved effect.
type Touch struct {
	Key     effect.Key
	Command effect.Command
}

// Apply carries out one step and checks every invariant of this package on the
// way: err is a refusal of the step, broken a violation. A refused step changes
// nothing.
func (w *World) Apply(s Step) (err, broken error) {
	next := *w
	next.Steps, next.Intervals, next.Effects = slices.Clone(w.Steps), slices.Clone(w.Intervals), slices.Clone(w.Effects)
	next.Requests, next.Receipts = slices.Clone(w.Requests), slices.Clone(w.Receipts)
	next.visits = map[string]uint32{}
	for node, n := range w.visits {
		next.visits[node] = n
	}
	next.n++
	err = s.apply(&next)
	if r, ok := errors.AsType[*answered](err); ok {
		err, broken = r.reply.Err, r.broken
	} else if err != nil {
		w.n++
		return err, nil
	}
	broken = errors.Join(broken, w.changes(&next), next.rows())
	*w = next
	return err, broken
}

// answered is an action that was answered, and leaves a receipt.
type answered struct {
	reply  request.Reply
	broken error
}

func (*answered) Error() string { return "answered" }

func (s Pass) apply(w *World) error {
	w.Now.Wall = w.Now.Wall.Add(s.Wait + s.Jump)
	w.Now.Mono = w.Now.Mono.Add(s.Wait)
	if s.Restart {
		w.process++
		w.Now.Mono, w.Now.Clock = 1, "process-"+strconv.Itoa(w.process)
	}
	return nil
}

func (s Move) apply(w *World) error {
	switch c := s.Command.(type) {
	case run.Settle:
		if err := w.settles(c); err != nil {
			return err
		}
	case run.Wait:
		return launch.Refuse(launch.ErrNotAllowed, "a run waits for a request by asking it")
	}
	q := w.asked()
	if err := w.move(s.Command); err != nil {
		return err
	}
	_, settled := s.Command.(run.Settle)
	switch {
	case q != nil && settled && q.State == request.Accepted:
		return w.tell(q.ID, request.Take{})
	case q != nil && !q.State.Over() && w.Run.Status.Terminal():
		return w.tell(q.ID, request.End{})
	}
	return nil
}

func (w *World) move(c run.Command) error {
	res, err := run.Apply(w.Run, c, &w.Plan, func(node string) (uint32, error) { return w.visits[node], nil }, w.Now)
	if err != nil {
		return err
	}
	w.Run = res.Run
	if res.Step != nil {
		w.Steps = append(w.Steps, *res.Step)
	}
	if res.Interval != nil {
		w.Intervals = append(w.Intervals, *res.Interval)
	}
	for _, e := range res.Events {
		if e.Kind == run.Entered {
			w.visits[e.Node] = e.Visit
		}
	}
	return nil
}

// settles refuses a result that the request or the effect of the current
// execution does not bear out.
func (w *World) settles(c run.Settle) error {
	q, e := w.asked(), w.Effect(w.Key())
	refuse := func(why string) error { return launch.Refuse(launch.ErrConflict, "%s", why) }
	n := w.Plan.Node(w.Run.Node)
	switch {
	case q != nil && !q.State.Over():
		return refuse("the request is open")
	case q != nil && (q.State == request.Accepted) != (c.Outcome == run.OK) || q != nil && c.Outcome == run.OK && string(c.Output) != string(q.Answer):
		return refuse("the request was not answered so")
	case q == nil && n.Kind.Asks() && c.Outcome == run.OK:
		return refuse("the node has asked nothing")
	case e != nil && !e.State.Final() || e == nil && n.Kind == run.Action && c.Outcome == run.OK:
		return refuse("the effect is not settled")
	case c.Receipt != (e != nil) || e != nil && e.State == effect.Rejected && c.Outcome == run.OK:
		return refuse("the effect's receipt says something else")
	}
	return nil
}

func (Ask) apply(w *World) error {
	r := &w.Run
	o := request.Opening{Run: RunID, Node: w.Plan.Node(r.Node), Visit: r.Visit, Attempt: r.Attempt, Session: Session, Task: "do it"}
	if o.Node.Kind == run.Decision {
		o.Title, o.Subject = "Do it?", Subject
	}
	q, err := request.Open(o, w.Now.Wall)
	if err != nil {
		return err
	}
	if err := w.move(run.Wait{Node: r.Node, Visit: r.Visit, Attempt: r.Attempt}); err != nil {
		return err
	}
	w.Requests = append(w.Requests, q)
	return w.tell(q.ID, request.Prompted{Form: request.Initial})
}

func (s Act) apply(w *World) error {
	var q *request.Request
	if found := w.Request(s.Request); found != nil && (s.Actor != launch.Model || s.Session == Session) {
		q = found
	}
	key := s.Act
	if s.Actor != launch.Model {
		key.Session = ""
	}
	at := slices.IndexFunc(w.Receipts, func(r request.Receipt) bool {
		return r.Session == key.Session && r.Request == key.Request && r.Key == key.Key
	})
	var had *request.Receipt
	if at >= 0 {
		had = &w.Receipts[at]
	}
	reply := request.Respond(q, s.Act, had, w.Now)
	broken := RefusedKeeps(q, reply)
	if reply.Receipt != nil {
		receipt := *reply.Receipt
		receipt.Session = key.Session
		w.Receipts = append(w.Receipts, receipt)
	}
	if reply.Changed {
		w.put(reply.Request, reply.Events)
	}
	return &answered{reply, broken}
}

func (s Tell) apply(w *World) error {
	switch s.Command.(type) {
	case request.End, request.Take, request.Use: // they go with what the run does
		return launch.Refuse(launch.ErrNotAllowed, "that follows from another step")
	}
	return w.tell(s.Request, s.Command)
}

func (w *World) tell(id string, c request.Command) error {
	q := w.Request(id)
	if q == nil {
		return launch.Refuse(launch.ErrNotFound, "no such request")
	}
	next, events, err := request.Apply(*q, c, w.Now)
	if err == nil {
		w.put(next, events)
	}
	return err
}

// put keeps a changed request, and the outcome of the action whose candidate was
// decided about.
func (w *World) put(next request.Request, events []request.Event) {
	*w.Request(next.ID) = next
	for _, e := range events {
		for i := range w.Receipts {
			if r := &w.Receipts[i]; e.Verdict != 0 && r.Request == next.ID && r.Key == e.Key.Key && r.Outcome == request.Started {
				r.Outcome = e.Verdict
				if e.Verdict != request.Taken {
					r.Kind, r.Reason = launch.ErrInvalid, "the candidate came to nothing"
				}
			}
		}
	}
}

func (s Reserve) apply(w *World) error {
	n := w.Plan.Node(w.Run.Node)
	if w.Run.Status != run.Running || n.Kind != run.Action || s.Key != w.Key() || s.Policy != n.Policy || s.Attempt != w.Run.Attempt {
		return launch.Refuse(launch.ErrStale, "the run is not at that effect")
	}
	have := w.Effect(s.Key)
	e, adopted, err := effect.Reserve(have, s.Reservation, w.Now.Wall)
	if err != nil {
		return err
	}
	if adopted {
		*have = e
		return nil
	}
	if n.Approval != "" {
		if err := w.approve(n, s.Reservation); err != nil {
			return err
		}
	}
	w.Effects = append(w.Effects, e)
	return nil
}

// approve uses the latest decision of the approving node.
func (w *World) approve(n *run.Node, want effect.Reservation) error {
	for _, s := range slices.Backward(w.Steps) {
		if s.Node != n.Approval || s.Outcome != run.OK {
			continue
		}
		id := request.ID(RunID, s.Node, s.Visit, s.Attempt)
		if q := w.Request(id); !n.Approves(s.Output) || q.Subject != want.Fingerprint {
			return launch.Refuse(launch.ErrNotAllowed, "something else was decided")
		}
		return w.tell(id, request.Use{Effect: want.Key.ID()})
	}
	return launch.Refuse(launch.ErrNotAllowed, "nothing was decided")
}

func (s Touch) apply(w *World) error {
	e := w.Effect(s.Key)
	if e == nil {
		return launch.Refuse(launch.ErrNotFound, "no such effect")
	}
	res, err := effect.Apply(*e, s.Command, w.Now.Wall)
	if err == nil {
		*e = res.Effect
	}
	return err
}

// Request returns the request of that id, or nil.
func (w *World) Request(id string) *request.Request {
	for i := range w.Requests {
		if w.Requests[i].ID == id {
			return &w.Requests[i]
		}
	}
	return nil
}

// asked returns the request of the current attempt, or nil.
func (w *World) asked() *request.Request {
	r := &w.Run
	if !r.Asked {
		return nil
	}
	return w.Request(request.ID(r.ID, r.Node, r.Visit, r.Attempt))
}

// Key is the key of the current execution's effect.
func (w *World) Key() effect.Key {
	return effect.ActionKey(RunID, w.Run.Node, w.Run.Visit, w.Run.Retry)
}

// Effect returns the effect of that key, or nil.
func (w *World) Effect(k effect.Key) *effect.Effect {
	for i := range w.Effects {
		if w.Effects[i].Key == k {
			return &w.Effects[i]
		}
	}
	return nil
}

// changes checks the invariants on the step from w to next.
func (w *World) changes(next *World) error {
	errs := []error{RunFixed(w.Run, next.Run), SpentRises(w.Run, next.Run)}
	for _, before := range w.Requests {
		if after := next.Request(before.ID); after != nil {
			errs = append(errs, Bound(before, *after), Final(before, *after), PromptBounds(before, *after))
		}
	}
	for _, before := range w.Effects {
		if after := next.Effect(before.Key); after != nil {
			errs = append(errs, EffectFixed(before, *after))
		}
	}
	for i, before := range w.Receipts {
		errs = append(errs, ReceiptFixed(before, next.Receipts[i]))
	}
	return errors.Join(errs...)
}

// rows checks the invariants of rows.
func (w *World) rows() error {
	runs := []run.Run{w.Run}
	errs := []error{run.Check(w.Run), OneResult(w.Steps), WalksPlan(&w.Plan, w.Run, w.Steps), RetriesDeclared(&w.Plan, w.Steps),
		IntervalsDisjoint(runs, w.Steps, w.Intervals), OneOpen(runs, w.Requests), Answered(w.Requests, w.Receipts),
		KeyUnique(w.Effects), ApprovalUsedOnce(w.Requests, w.Effects)}
	for _, q := range w.Requests {
		errs = append(errs, request.Check(q), ByMatrix(q))
	}
	for _, e := range w.Effects {
		errs = append(errs, effect.Check(e))
	}
	return errors.Join(errs...)
}
