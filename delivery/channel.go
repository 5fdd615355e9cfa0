package delivery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

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
// The methods are called one at a time, with a context that ends with the host;
// Close waits for the call that runs. An error means "try again later", and holds
// up no other decision. Each call is made once, but for errors and crashes, which
// repeat it (rule delivery/channel); so a channel recognises a request that it shows
// already.
type Channel interface {
	// Deliver shows an open decision. One that is over is never shown.
	Deliver(ctx context.Context, p Presentation) error
	// Settle says that a decision is over, and how it ended. One that Deliver
	// failed to show may come too; a channel that does not know it has nothing to
	// do.
	Settle(ctx context.Context, p Presentation) error
}

// ChannelOptions of a host's channel.
type ChannelOptions struct {
	Store *store.Store
	// Name is under which the file remembers what the channel shows: 1 to 512
	// printable bytes, the same after each restart. One host at a time uses it.
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

	// Used by run alone.
	timer clock.Timer       // of the next try
	late  map[string]*delay // decisions whose last try failed
}

// delay is until when a decision is left alone.
type delay struct {
	failures int
	until    launch.Mono
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
	d := &Presenter{o: o, woken: make(chan struct{}, 1), late: map[string]*delay{}}
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
	if d.timer != nil {
		d.timer.Stop()
	}
}

// Wake looks again: another process committed. It does not block.
func (d *Presenter) Wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

func (d *Presenter) run(ctx context.Context) {
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-d.woken:
		}
		if d.timer != nil {
			d.timer.Stop()
			d.timer = nil
		}
		next, err := d.look(ctx)
		if ctx.Err() != nil || errors.Is(err, launch.ErrClosed) {
			return
		}
		if failures++; err == nil {
			failures = 0
		} else {
			d.o.Log.Warn("a channel is delayed", "channel", d.o.Name, "err", err)
			next = pauseAfter(failures - 1)
		}
		if next > 0 {
			d.timer = d.o.Store.Clock().AfterFunc(next, d.Wake)
		}
	}
}

// look does what the channel has to do now, and returns in how long to look
// again for what failed; 0 when nothing did.
func (d *Presenter) look(ctx context.Context) (next time.Duration, err error) {
	due, err := d.o.Store.Unpresented(ctx, d.o.Name)
	if err != nil {
		return 0, err
	}
	late := d.late
	d.late = map[string]*delay{} // what is no longer due is forgotten
	for _, id := range due {
		l := late[id]
		_, now := d.o.Store.Clock().Now()
		if l == nil || l.until <= now {
			err := d.present(ctx, id)
			if ctx.Err() != nil {
				return 0, ctx.Err()
			}
			if err == nil {
				continue
			}
			d.o.Log.Warn("a decision is not shown or taken back yet", "channel", d.o.Name, "request", id, "type", fmt.Sprintf("%T", err)) // its text may quote what is shown
			if l == nil {
				l = &delay{}
			}
			_, now = d.o.Store.Clock().Now()
			l.until = now.Add(pauseAfter(l.failures))
			l.failures++
		}
		d.late[id] = l
		if left := l.until.Sub(now); next == 0 || left < next {
			next = left
		}
	}
	return next, nil
}

// present shows one decision or takes it back, whatever is due now.
func (d *Presenter) present(ctx context.Context, id string) error {
	p, err := store.Do(ctx, d.o.Store, store.Present{Channel: d.o.Name, Request: id})
	if err != nil || !p.Due {
		return err
	}
	call := d.o.Channel.Deliver
	if p.Over {
		call = d.o.Channel.Settle
	}
	if err := call(ctx, p.Presentation); err != nil {
		return err
	}
	_, err = store.Do(context.WithoutCancel(ctx), d.o.Store, store.Shown{Channel: d.o.Name, Request: id, Over: p.Over})
	return err
}
