package delivery

import (
	"context"
	"errors"
	"log/slog"
	"sync"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// Presentation is a decision as a channel gets to see it, while it is open and
// once more when it is over. A channel never sees what the decision is about,
// only what its author wrote for people.
type Presentation = store.Presentation

// Channel shows human decisions somewhere: in a chat, on a page, in a mail. An
// answer comes back through the runtime's Decide, with the person that the
// channel has verified and the id of the channel's event, and names the request
// and the revision that were shown.
//
// The methods are called one at a time, with a context that ends with the host.
// An error means "try again later". After a crash the same call may be repeated,
// so a channel recognises a request that it shows already.
type Channel interface {
	// Deliver shows an open decision.
	Deliver(ctx context.Context, p Presentation) error
	// Settle says that a decision which is shown, or which a call of Deliver may
	// have shown, is over, and how it ended.
	Settle(ctx context.Context, p Presentation) error
}

// ChannelOptions of a host's channel.
type ChannelOptions struct {
	Store *store.Store
	// Name is under which the file remembers what the channel shows: 1 to 512
	// printable bytes, the same after each restart.
	Name    string
	Channel Channel
	Log     *slog.Logger // nil: nowhere
}

// Presenter drives one channel. It looks after each commit that concerns a
// decision; nothing polls.
type Presenter struct {
	o       ChannelOptions
	woken   chan struct{}
	unwatch func()
	cancel  context.CancelFunc
	done    sync.WaitGroup
	timer   clock.Timer // of the next try; run's own
}

// NewPresenter starts to drive a channel.
func NewPresenter(o ChannelOptions) (*Presenter, error) {
	if o.Store == nil || o.Channel == nil {
		return nil, launch.Refuse(launch.ErrInvalid, "a channel needs a store and a Channel")
	}
	if err := launch.CheckKey("channel name", o.Name); err != nil {
		return nil, err
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	d := &Presenter{o: o, woken: make(chan struct{}, 1)}
	d.Wake()
	d.unwatch = o.Store.Subscribe(func(events []store.Event) {
		for i := range events {
			if events[i].Request != "" {
				d.Wake()
				return
			}
		}
	})
	var ctx context.Context
	ctx, d.cancel = context.WithCancel(context.Background())
	d.done.Go(func() { d.run(ctx) })
	return d, nil
}

// Close ends the driving and waits for a call that runs.
func (d *Presenter) Close() {
	d.unwatch()
	d.cancel()
	d.done.Wait()
}

// Wake looks again: another process committed. It does not block.
func (d *Presenter) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// maxPresent bounds what is read of the decisions at once.
const maxPresent = 100

func (d *Presenter) run(ctx context.Context) {
	defer d.disarm()
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-d.woken:
		}
		d.disarm()
		err := d.look(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, launch.ErrClosed):
			return
		case err == nil:
			failures = 0
		default:
			d.o.Log.Warn("a channel is delayed", "channel", d.o.Name, "err", err)
			d.timer = d.o.Store.Clock().AfterFunc(pauseAfter(failures), d.Wake)
			failures++
		}
	}
}

func (d *Presenter) disarm() {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// look does what the channel has to do now.
func (d *Presenter) look(ctx context.Context) error {
	for {
		all, err := d.o.Store.Presentations(ctx, d.o.Name, maxPresent)
		if err != nil || len(all) == 0 {
			return err
		}
		var failed error
		for _, p := range all {
			err := d.tell(ctx, p)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failed = errors.Join(failed, err)
		}
		if failed != nil {
			return failed
		}
	}
}

// tell makes one call and records it. That a decision may be shown from now on is
// recorded before, so that the channel is told of its end in any case.
func (d *Presenter) tell(ctx context.Context, p Presentation) error {
	record := func(c store.Shown) error {
		c.Channel, c.Request = d.o.Name, p.Request
		_, err := store.Do(ctx, d.o.Store, c)
		return err
	}
	if p.Over {
		if err := d.o.Channel.Settle(ctx, p); err != nil {
			return err
		}
		return record(store.Shown{Over: true})
	}
	if err := record(store.Shown{Begins: true}); err != nil {
		return err
	}
	if err := d.o.Channel.Deliver(ctx, p); err != nil {
		return err
	}
	return record(store.Shown{})
}
