package clock_test

import (
	"slices"
	"testing"
	"time"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/launch"
)

func TestManual(t *testing.T) {
	start := launch.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	c := clock.NewManual(start)
	var fired []string
	at := func(name string) func() {
		return func() {
			wall, _ := c.Now()
			fired = append(fired, name+" "+wall.Sub(start).String())
		}
	}
	c.AfterFunc(3*time.Second, at("third"))
	c.AfterFunc(time.Second, func() {
		at("first")()
		c.AfterFunc(time.Second, at("second, armed by the first"))
	})
	stopped := c.AfterFunc(time.Second, at("stopped"))
	if !stopped.Stop() || stopped.Stop() {
		t.Error("a timer is stopped once")
	}
	c.Advance(2500 * time.Millisecond)
	if want := []string{"first 1s", "second, armed by the first 2s"}; !slices.Equal(fired, want) {
		t.Errorf("fired %q, want %q", fired, want)
	}
	wall, mono := c.Now()
	c.Jump(-time.Hour)
	if w, m := c.Now(); m != mono || wall.Sub(w) != time.Hour {
		t.Error("a jump moves the wall clock alone")
	}
	c.Advance(time.Second)
	if len(fired) != 3 {
		t.Error("a jump of the wall clock held a timer back")
	}
}

func TestSystem(t *testing.T) {
	c := clock.System()
	_, before := c.Now()
	done := make(chan struct{})
	c.AfterFunc(time.Millisecond, func() { close(done) })
	<-done
	if _, after := c.Now(); after.Sub(before) < time.Millisecond {
		t.Error("the monotonic clock has not moved while a timer ran")
	}
}
