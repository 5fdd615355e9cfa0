package deliverytest

import (
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

var connectRules = []Rule{
	{
		Name: "connect/hello",
		Says: "a bridge introduces itself with the key of its session, a name of its process, and whether it can tell what is on disk",
		Fix:  "make the key with launch.NewSessionKey from the header id and the absolute file; name the process by pid and start time; set Durable only if Look reads the disk",
		check: func(k *kit) {
			h := k.open().hello
			if err := launch.CheckSessionKey(h.Session); err != nil {
				k.failf("the session key %q is not one: %v", h.Session, err)
			}
			if h.Process == "" {
				k.failf("the name of the process is empty, so that a takeover by another process looks like a reconnect")
			}
			if can := k.Cannot&Durability == 0; h.Durable != can {
				k.failf("Durable is %v, and the factory says %v", h.Durable, can)
			}
		},
	}, {
		Name:  "connect/identity",
		Says:  "after a restart the session has the same key and the process another name",
		Fix:   "derive the key from what is on disk, and the process's name from what no other process has, not from the session",
		Needs: Restart,
		check: func(k *kit) {
			first := k.open().hello
			second := k.again().hello
			if first.Session != second.Session {
				k.failf("the key was %q and is %q: everything that waits for the session is lost", first.Session, second.Session)
			}
			if first.Process == second.Process {
				k.failf("both processes call themselves %q: a send that the first left unanswered is not waited for", first.Process)
			}
		},
	}, {
		Name: "connect/changed",
		Says: "a bridge that has connected asks to be looked at, whatever the state of the session is; nothing is sent before",
		Fix:  "call Changed once after each successful Connect, after the reports that were not confirmed",
		check: func(k *kit) {
			k.start()
			k.rest()
		},
	}, {
		Name:  "connect/again",
		Says:  "a bridge whose connection is lost, or whose host is away, connects again by itself, and sending goes on",
		Fix:   "wait for Done and connect again with a growing pause; treat a failed Connect likewise",
		Needs: Reconnect,
		check: func(k *kit) {
			c := k.open()
			k.leave(true)
			c.end(false)
			k.prompt("is anybody there?") // the agent works without its host
			k.leave(false)
			n := k.ready(c.epoch)
			k.rest()
			k.deliver(n, "m1")
		},
	}, {
		Name: "fence/stays-away",
		Says: "a bridge that is fenced sends nothing any more and stays away until its session starts again or a person acts: another connection has the session, and two that take turns fence each other for ever",
		Fix:  "remember that Fenced was called before you look at Done, and do not connect again because of Done",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			c.end(true)
			if a, err := c.send(c.message("m1")); err == nil && a.Verdict != delivery.Refused {
				k.failf("a send to the fenced bridge was answered %s and not refused", named(a.Verdict))
			}
			k.count("m1", 0, "a fenced bridge appended it")
			select {
			case <-k.next(mark, heardConnect):
				k.failf("it connected again by itself")
			case <-time.After(k.Quiet):
			}
			if k.Cannot&Restart == 0 {
				k.again() // and here it has to
			}
		},
	}, {
		Name:  "fork/another-session",
		Says:  "a fork or clone is another session although its entries have the same ids: it announces the end of the old one and connects under its own key",
		Fix:   "report Shutdown when the agent switches sessions, then connect anew with a key from the new header id and file",
		Needs: Fork,
		check: func(k *kit) {
			c := k.open()
			k.deliver(c, "m1")
			k.must("fork", k.Fork())
			n := k.ready(c.epoch)
			if n.hello.Session == c.hello.Session {
				k.failf("both are %q: what is owed to the first session is sent to its copy", n.hello.Session)
			}
			if len(k.since(0, is(heardShutdown))) == 0 {
				k.failf("the old session's end was not announced with Shutdown")
			}
			if a, err := c.send(c.message("m2")); err == nil && a.Verdict != delivery.Refused {
				k.failf("a send to the session that was left was answered %s and not refused", named(a.Verdict))
			}
			k.never("a send to the session that was left was put into its copy", "m2")
		},
	},
}

var endRules = []Rule{
	{
		Name: "shutdown/announced",
		Says: "a polite end of the session is announced, so that the host can tell it from a death",
		Fix:  "report Shutdown from the agent's shutdown event and wait for its answer, within reason, before the process exits",
		check: func(k *kit) {
			k.open()
			k.must("stop", k.Stop())
			k.await(0, is(heardShutdown), "announced the end of the session (Shutdown)")
		},
	}, {
		Name:  "shutdown/death",
		Says:  "the death of the process ends the connection without a word: it is no announced end",
		Fix:   "call Close, not Shutdown, when the agent is gone without having said so",
		Needs: Kill,
		check: func(k *kit) {
			k.open()
			k.must("kill", k.Kill())
			k.await(0, func(h heard) bool { return h.kind == heardClose || h.kind == heardShutdown },
				"closed the connection of a process that was killed (Close)")
			if len(k.since(0, is(heardShutdown))) > 0 {
				k.failf("the end of a killed process was announced with Shutdown, which lifts a person's hold")
			}
		},
	},
}

// next returns a channel that is closed when something of that kind is heard
// from the mark on, or the check is over.
func (k *kit) next(mark int, kind heardKind) <-chan struct{} {
	found := make(chan struct{})
	go func() {
		defer close(found)
		for {
			k.mu.Lock()
			moved := k.moved
			k.mu.Unlock()
			if len(k.since(mark, is(kind))) > 0 {
				return
			}
			select {
			case <-moved:
			case <-k.over:
				return
			}
		}
	}()
	return found
}
