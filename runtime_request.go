package piworkflows

import (
	"context"
	"encoding/json"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/effect"
	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// PersonAnswer is what a person answers through a channel that the host has
// verified: a chat, a page, a mail.
type PersonAnswer struct {
	Request  string // the exact request
	Revision uint64 // that the person saw; see [delivery.Presentation]
	// Person is who answers, as the channel has verified; Channel where; Event the
	// channel's own id of the click or message. Each has 1 to 512 printable bytes.
	// The same event with the same content is the same answer.
	Person, Channel, Event string
}

// Answered is how an answer stands.
type Answered struct {
	Outcome string // accepted, adopted, validating
	Run     launch.RunID
	Node    string
}

// Decide makes a decision on behalf of a person. The first valid one wins:
// launch.ErrAlreadyDecided names who won, ErrStale another revision, ErrExpired a
// deadline that has passed, ErrInvalid the choice or text that does not fit.
func (r *Runtime) Decide(ctx context.Context, a PersonAnswer, choice, text string) (Answered, error) {
	payload, err := json.Marshal(request.Decision{Choice: choice, Text: text})
	if err != nil { // two strings always encode
		return Answered{}, err
	}
	return r.person(ctx, a, request.ActDecide, payload)
}

// Answer answers a checkpoint on behalf of a person, with JSON of the form that
// the checkpoint declares. Errors are those of [Runtime.Decide].
func (r *Runtime) Answer(ctx context.Context, a PersonAnswer, output json.RawMessage) (Answered, error) {
	return r.person(ctx, a, request.ActAnswer, output)
}

func (r *Runtime) person(ctx context.Context, a PersonAnswer, action request.Action, payload []byte) (Answered, error) {
	done, err := r.respond(ctx, store.Respond{Act: request.Act{Request: a.Request, Action: action, Actor: launch.Person,
		Key: launch.DigestOf([]byte(a.Channel + "\x00" + a.Event)).String(), Revision: a.Revision, Payload: payload,
		Person: a.Person, Channel: a.Channel, Event: a.Event}})
	if err == nil {
		err = done.Refused
	}
	if err != nil {
		return Answered{}, err
	}
	return Answered{done.Outcome.String(), done.Run, done.Node}, nil
}

// verdictWithin is how long an action waits for the verdict of a node's own code.
const verdictWithin = 30 * time.Second

// respond carries out an action on a request. While the answer is checked it
// waits for the verdict, by repeating the action under its key.
func (r *Runtime) respond(ctx context.Context, c store.Respond) (store.Response, error) {
	clock := r.store.Clock()
	over := make(chan struct{})
	timer := clock.AfterFunc(verdictWithin, func() { close(over) })
	defer timer.Stop()
	for checked := false; ; checked = true {
		r.ended.Lock()
		changed := r.ended.c
		r.ended.Unlock()
		done, err := store.Do(ctx, r.store, c)
		if checked && done.Outcome == request.Adopted { // by this very call
			done.Outcome = request.Taken
		}
		if err != nil || done.Outcome != request.Started {
			return done, err
		}
		select {
		case <-changed:
		case <-over:
			return done, nil
		case <-ctx.Done():
			return done, nil // it stands; the caller learns the verdict later
		}
	}
}

// ResolveEffect settles an effect that may or may not have happened, as a person
// found out: launch.ErrAlreadyDecided when it is settled otherwise. output is what
// the node would have returned, as JSON, or nil when that is lost; the node then
// fails, and the workflow goes on from there as it declares.
func (r *Runtime) ResolveEffect(ctx context.Context, id launch.RunID, effectID string, happened bool, evidence string, output json.RawMessage) error {
	verdict := effect.SaysRejected
	if happened {
		verdict = effect.SaysApplied
	}
	_, err := store.Do(ctx, r.store, store.ResolveEffect{Run: id, Effect: effectID, Verdict: verdict, Evidence: evidence, Output: output, Actor: launch.Person})
	return err
}

// Settings returns the live settings of a run as JSON, with their revision; 0
// when its workflow declares none.
func (r *Runtime) Settings(ctx context.Context, id launch.RunID) (value json.RawMessage, revision uint32, err error) {
	return r.store.Settings(ctx, id, 0)
}

// Configure changes the live settings of a run by a JSON merge patch against the
// revision that the caller saw, and returns the new revision. An attempt that has
// begun goes on with what it saw. Errors: launch.ErrStale for another revision,
// ErrInvalid for what does not fit, ErrSourceChanged when this host has another
// definition than the run.
func (r *Runtime) Configure(ctx context.Context, id launch.RunID, revision uint32, patch json.RawMessage) (uint32, error) {
	return r.configure(ctx, id, revision, patch, launch.Host, "", 0)
}

func (r *Runtime) configure(ctx context.Context, id launch.RunID, revision uint32, patch json.RawMessage, by launch.Actor, from launch.SessionKey, epoch uint64) (uint32, error) {
	l, err := r.store.Launch(ctx, id)
	if err != nil {
		return 0, err
	}
	c := store.Configure{Run: id, Revision: revision, Patch: patch, Actor: by, Session: from, Epoch: epoch}
	if wf, ok := r.registry.Lookup(l.Workflow); ok {
		plan := wf.Plan()
		c.Plan, c.Digest = &plan, wf.Digest()
	}
	return store.Do(ctx, r.store, c)
}

// Present shows every human decision of the file on a channel, from now on until
// the runtime closes. The name is under which the file remembers what the channel
// shows; one host at a time uses it. Errors: launch.ErrInvalid, launch.ErrClosed.
func (r *Runtime) Present(name string, c delivery.Channel) error {
	r.watch.Lock()
	defer r.watch.Unlock()
	if r.watch.closed {
		return launch.Refuse(launch.ErrClosed, "the host is closed; open a new one")
	}
	p, err := delivery.NewPresenter(delivery.ChannelOptions{Store: r.store, Name: name, Channel: c, Log: r.log})
	if err == nil {
		r.presenters = append(r.presenters, p)
	}
	return err
}
