package piworkflows

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/scheduler"
	"example.com/piworkflows/store"
)

// watchEvery is how often other processes' commits are looked for; nothing
// else polls (rule host/watch).
const watchEvery = time.Second

// Runtime is one open host. It is safe for concurrent use.
type Runtime struct {
	store     *store.Store
	registry  *engine.Registry
	scheduler *scheduler.Scheduler
	delivery  *delivery.Coordinator
	log       *slog.Logger

	presenters []*delivery.Presenter // under watch

	ended struct { // told after every commit that may have ended a run or answered a request
		sync.Mutex
		c chan struct{}
	}

	watch struct {
		sync.Mutex
		timer   clock.Timer
		due     launch.Mono
		version int64
		closed  bool
	}
}

// Open opens the file, creating it when it is missing, and starts the
// scheduler and the delivery coordinator. A definition of a waiting run that
// has changed meanwhile is found when the run is claimed.
//
// Errors: launch.ErrInvalid names the option that is wrong;
// launch.ErrIncompatible a file with another layout, untouched, and how to
// reset it; launch.ErrBusy a lock that another process held for too long.
func Open(o Options) (_ *Runtime, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Source == "" {
		o.Source = "default"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	registry, err := engine.NewRegistry(o.Source, o.Workflows...)
	if err != nil {
		return nil, err
	}
	so := store.Options{Clock: o.Clock, Entropy: o.Entropy, Lease: o.Lease, Probe: o.Probe,
		SQLite: store.SQLiteOptions{BusyTimeout: o.BusyTimeout}}
	r := &Runtime{registry: registry, log: o.Log}
	if o.Engine != nil {
		r.store = store.New(o.Engine, so)
	} else if r.store, err = store.Open(o.Path, so); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = r.Close(context.Background()) // what is open so far; err says why
		}
	}()
	r.ended.c = make(chan struct{})
	r.store.Subscribe(func(events []store.Event) {
		ended := false
		for _, e := range events {
			ended = ended || e.Launch >= launch.EvDone || e.Request != ""
			if o.Observe != nil {
				o.Observe(e)
			}
		}
		if ended {
			r.tellEnded()
		}
	})
	id, err := r.store.NewID()
	if err != nil {
		return nil, err
	}
	runner := "host-" + id
	if r.delivery, err = delivery.New(delivery.Options{Store: r.store, Runner: runner, Log: o.Log,
		Reported: func(k launch.SessionKey) { r.scheduler.Nudge(k) }}); err != nil {
		return nil, err
	}
	if r.scheduler, err = scheduler.New(scheduler.Options{Store: r.store, Registry: registry, Runner: runner,
		Capacity: o.Capacity, Lease: o.Lease, Renew: o.Renew, Sessions: r.delivery.Sessions, Log: o.Log}); err != nil {
		return nil, err
	}
	return r, r.look()
}

// look notices commits of other processes, and that this host slept.
func (r *Runtime) look() error {
	ctx := context.Background()
	version, err := r.store.Version(ctx)
	_, mono := r.store.Clock().Now()
	r.watch.Lock()
	defer r.watch.Unlock()
	if r.watch.closed {
		return nil
	}
	late := r.watch.due != 0 && mono.Sub(r.watch.due) > launch.ClockTolerance
	changed := err == nil && version != r.watch.version
	r.watch.version = version
	r.watch.due = mono.Add(watchEvery)
	r.watch.timer = r.store.Clock().AfterFunc(watchEvery, func() {
		if err := r.look(); err != nil && !errors.Is(err, launch.ErrClosed) {
			r.log.Warn("the store cannot be watched", "err", err)
		}
	})
	if late {
		if err := r.store.Distrust(ctx); err != nil {
			return err
		}
	}
	if changed || late {
		r.scheduler.Wake()
		r.delivery.Wake()
		for _, p := range r.presenters {
			p.Wake()
		}
		r.tellEnded()
	}
	return err
}

// Close stops claiming at once, lets running nodes finish until ctx ends, then
// cancels and gives back what is left, so that another host or a later one goes
// on with it. Nothing that is stopped so counts as a failure. A second Close
// does nothing.
func (r *Runtime) Close(ctx context.Context) error {
	r.watch.Lock()
	r.watch.closed = true
	if r.watch.timer != nil {
		r.watch.timer.Stop()
	}
	presenters := r.presenters
	r.presenters = nil
	r.watch.Unlock()
	for _, p := range presenters {
		p.Close()
	}
	var errs []error
	if r.scheduler != nil {
		errs = append(errs, r.scheduler.Close(ctx))
	}
	if r.delivery != nil {
		errs = append(errs, r.delivery.Close())
	}
	errs = append(errs, r.store.Close())
	r.tellEnded()
	return errors.Join(errs...)
}

func (r *Runtime) tellEnded() {
	r.ended.Lock()
	defer r.ended.Unlock()
	close(r.ended.c)
	r.ended.c = make(chan struct{})
}

// Wait returns the view of a run once it has ended, here or in another process.
// Errors: launch.ErrNotFound, launch.ErrClosed, and those of ctx.
func (r *Runtime) Wait(ctx context.Context, id launch.RunID) (view.View, error) {
	for {
		r.ended.Lock()
		c := r.ended.c
		r.ended.Unlock()
		v, err := r.Status(ctx, id)
		if err != nil || v.Finished != "" {
			return v, err
		}
		select {
		case <-c:
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

// Runner returns the host's name in the file, unique for each Open.
func (r *Runtime) Runner() string { return r.scheduler.Runner() }

// StartOptions say what to start.
type StartOptions struct {
	Workflow string
	Input    json.RawMessage // nil means {}
	// Session makes the run interactive: it takes that session's one
	// reservation, waits for the session's boundary, and its end owes the
	// session a turn. Empty makes it headless.
	Session launch.SessionKey
	// RequestKey makes a repeated start return the first answer: same key and
	// same content adopt, other content is a conflict. It is scoped to the
	// session, or for headless runs to Scope.
	RequestKey string
	Scope      string
	// Group is the origin of headless runs for fairness between origins.
	Group string
	// Actor is launch.Person or launch.Host; 0 means launch.Host.
	Actor launch.Actor
}

// Started is an acknowledgement: the launch is durable with its final run id.
type Started = store.Started

// Start reserves a run after every check that can be made. A refusal leaves
// nothing behind. Errors: launch.ErrNotFound for an unknown workflow,
// ErrInvalid, ErrConflict, ErrSessionBusy, ErrBusy, ErrClosed.
func (r *Runtime) Start(ctx context.Context, o StartOptions) (Started, error) {
	if o.Actor == 0 {
		o.Actor = launch.Host
	}
	if o.Actor != launch.Host && o.Actor != launch.Person {
		return Started{}, launch.Refuse(launch.ErrInvalid, "StartOptions.Actor must be launch.Person or launch.Host; the model starts through its session's tool")
	}
	return r.start(ctx, o, 0, "")
}

func (r *Runtime) start(ctx context.Context, o StartOptions, epoch uint64, toolCall string) (Started, error) {
	wf, ok := r.registry.Lookup(o.Workflow)
	if !ok {
		return Started{}, launch.Refuse(launch.ErrNotFound, "this host has no workflow of that name; it has: %s", r.names())
	}
	if o.Input == nil {
		o.Input = json.RawMessage("{}")
	}
	input, err := wf.CheckInput(o.Input)
	if err != nil {
		return Started{}, err
	}
	id, err := r.store.NewID()
	if err != nil {
		return Started{}, err
	}
	request := launch.Request{
		ID: launch.NewRunID(wf.Name(), id), Workflow: wf.Name(), Source: r.registry.Source(), Digest: wf.Digest(),
		Mode: launch.Headless, Group: o.Group, Input: input, Scope: o.Scope, RequestKey: o.RequestKey, Actor: o.Actor,
	}
	if o.Session != "" {
		request.Mode, request.Session, request.Scope = launch.Interactive, o.Session, string(o.Session)
	}
	return store.Do(ctx, r.store, store.Start{Request: request, Epoch: epoch, ToolCall: toolCall})
}

// RestartOptions say which run to run again.
type RestartOptions struct {
	Run launch.RunID // one that has ended
	// Revision is its execution revision, RunRevision of its view: what the
	// caller saw.
	Revision uint64
	// RequestKey makes a repeated restart return the first answer; see
	// [StartOptions].
	RequestKey string
	Actor      launch.Actor // launch.Person or launch.Host; 0 means launch.Host
}

// Restart reserves a fresh run with the input of one that has ended, under the
// definition that this host has now. Nothing else is copied: no steps, settings,
// approvals or effects. Errors: those of [Runtime.Start], launch.ErrStale for
// another revision, ErrUnsettledEffect while an effect of it may or may not have
// happened, ErrNotAllowed for a run that has not ended or never ran.
func (r *Runtime) Restart(ctx context.Context, o RestartOptions) (Started, error) {
	if o.Actor == 0 {
		o.Actor = launch.Host
	}
	if o.Actor != launch.Host && o.Actor != launch.Person {
		return Started{}, launch.Refuse(launch.ErrInvalid, "RestartOptions.Actor must be launch.Person or launch.Host; the model restarts through its session's tool")
	}
	return r.restart(ctx, o, "", 0, "")
}

func (r *Runtime) restart(ctx context.Context, o RestartOptions, from launch.SessionKey, epoch uint64, toolCall string) (Started, error) {
	l, err := r.store.Launch(ctx, o.Run)
	if err != nil {
		return Started{}, err
	}
	if o.Actor == launch.Model && l.Session != from {
		return Started{}, launch.Refuse(launch.ErrNotFound, "no such run; check the run id")
	}
	wf, ok := r.registry.Lookup(l.Workflow)
	if !ok {
		return Started{}, launch.Refuse(launch.ErrNotFound, "this host has no workflow %s any more; it has: %s", l.Workflow, r.names())
	}
	id, err := r.store.NewID()
	if err != nil {
		return Started{}, err
	}
	request := launch.Request{
		ID: launch.NewRunID(wf.Name(), id), Workflow: wf.Name(), Source: r.registry.Source(), Digest: wf.Digest(),
		Mode: l.Mode, Session: l.Session, Group: l.Group, RequestKey: o.RequestKey, Scope: l.Scope, Parent: l.ID, Actor: o.Actor,
	}
	if request.RequestKey != "" && request.Scope == "" {
		request.Scope = "restart"
	}
	if l.Session != "" {
		request.Scope = string(l.Session)
	}
	return store.Do(ctx, r.store, store.Start{Request: request, Revision: o.Revision, Epoch: epoch, From: from, ToolCall: toolCall})
}

// Status returns the live view of a run; it changes nothing.
func (r *Runtime) Status(ctx context.Context, id launch.RunID) (view.View, error) {
	f, err := r.store.Facts(ctx, id)
	if err != nil {
		return view.View{}, err
	}
	return view.Of(f), nil
}

// SessionRun returns the run that a session shows: its live one, else the one
// that was started last; empty when it never had one.
func (r *Runtime) SessionRun(ctx context.Context, k launch.SessionKey) (launch.RunID, error) {
	if err := launch.CheckSessionKey(k); err != nil {
		return "", err
	}
	return r.store.Displayed(ctx, k)
}

// Output returns the latest accepted output of a node of a run, such as the
// last node of a completed one. ok is false when it has none.
func (r *Runtime) Output(ctx context.Context, id launch.RunID, node string) (output json.RawMessage, ok bool, err error) {
	return r.store.Output(ctx, id, node)
}

// Cancellation says who won; that the run had ended before is an answer, not an
// error.
type Cancellation = store.Cancellation

// Cancel ends a run on behalf of a person or of the host. A person's cancel
// also stops the automatic future of the run's chain.
func (r *Runtime) Cancel(ctx context.Context, id launch.RunID, by launch.Actor) (Cancellation, error) {
	if by != launch.Person && by != launch.Host {
		return Cancellation{}, launch.Refuse(launch.ErrInvalid, "a run is cancelled by launch.Person or launch.Host; the model cancels through its session's tool")
	}
	return store.Do(ctx, r.store, store.Cancel{Run: id, Actor: by})
}

// Pause holds a run for a person: its running node finishes and no next one
// starts until Resume.
func (r *Runtime) Pause(ctx context.Context, id launch.RunID) error {
	_, err := store.Do(ctx, r.store, store.Pause{Run: id})
	return err
}

// Resume lets a run go on that a person paused or that waits for attention.
func (r *Runtime) Resume(ctx context.Context, id launch.RunID) error {
	_, err := store.Do(ctx, r.store, store.Resume{Run: id})
	return err
}

// Unblock makes a blocked message of a session pending again.
func (r *Runtime) Unblock(ctx context.Context, k launch.SessionKey, message string) error {
	_, err := store.Do(ctx, r.store, store.Reopen{Session: k, Message: message})
	return err
}

// AbandonSession gives up a session that will never return: the host cancels
// its run, and what the session is owed is withdrawn, with that reason. Should
// it return after all, it is connected and used as any other. Errors:
// launch.ErrInvalid, launch.ErrNotFound for a session that was never heard of.
func (r *Runtime) AbandonSession(ctx context.Context, k launch.SessionKey) error {
	_, err := store.Do(ctx, r.store, store.Abandon{Session: k})
	return err
}

// Conn is a bridge's side of one connection, with the model's tool.
type Conn struct {
	*delivery.Conn
	r *Runtime
}

// Connect registers a bridge to one session. See [delivery.Session] for what a
// bridge does and [delivery.Conn] for what it reports.
func (r *Runtime) Connect(ctx context.Context, h delivery.Hello, s delivery.Session) (*Conn, error) {
	c, err := r.delivery.Connect(ctx, h, s)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, r: r}, nil
}
