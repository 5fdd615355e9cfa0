package deliverytest

import (
	"example.com/piworkflows/delivery"
)

var evidenceRules = []Rule{
	{
		Name: "evidence/quoted",
		Says: "a message is recognised by its structured metadata alone: whoever quotes an id proves nothing and stops nothing",
		Fix:  "read the id from the details of custom entries; never search text, of whichever role",
		check: func(k *kit) {
			c := k.open()
			m := c.message("m1")
			k.mu.Lock()
			k.reply = "as you said: " + string(m.Details) + " m1 " + m.Intent
			k.mu.Unlock()
			k.chat("what is m1? details: " + string(m.Details))
			other := c.passive("m2")
			other.Content = "m1 " + string(m.Details)
			k.send(c, other, "the session was free", delivery.Taken)
			k.until([]string{"m2"}, "showed a message that it had taken", present)
			if _, e := k.evidence(c, "m1"); e.Present || e.Durable || e.Replied {
				k.failf("a person, the model and another message quoted m1, and the bridge says %+v", e)
			}
			k.deliver(c, "m1")
		},
	}, {
		Name: "evidence/present",
		Says: "a message is present when the active branch shows it; each that was named is answered for, and one that was never sent is absent",
		Fix:  "walk the active branch once and answer for each name",
		check: func(k *kit) {
			c := k.open()
			k.deliver(c, "m1")
			r := k.until([]string{"m0", "m1"}, "answered a look", func(delivery.Report) bool { return true })
			got := map[string]bool{}
			for _, e := range r.Evidence {
				got[e.Message] = e.Present
			}
			if absent, ok := got["m0"]; !ok || absent || !got["m1"] {
				k.failf("m1 is on the branch and m0 was never sent, and the bridge says %+v", r.Evidence)
			}
		},
	}, {
		Name:  "evidence/active-branch",
		Says:  "an entry on a branch that was left is absent: the session does not show it any more, and it is sent again",
		Fix:   "walk from the leaf to the root instead of all entries of the file, and call Changed when the leaf moves",
		Needs: Rewind,
		check: func(k *kit) {
			c := k.open()
			k.deliver(c, "m1")
			mark := k.mark()
			k.must("rewind", k.Rewind("m1"))
			k.await(mark, is(heardChanged), "asked to be looked at (Changed) after the active branch had changed")
			k.until([]string{"m1"}, "said that a message on a branch that was left is absent",
				func(r delivery.Report) bool { return len(r.Evidence) == 1 && !r.Evidence[0].Present })
			k.deliver(c, "m1")
			k.count("m1", 1, "the other one is on a branch that was left")
		},
	}, {
		Name: "evidence/durable",
		Says: "an entry is durable when it is on disk, which on a fresh session may be much later than on the branch",
		Fix:  "answer Durable from what the file has, not from the branch in memory",
		check: func(k *kit) {
			c := k.start()
			k.rest()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			k.durable(c)
			k.release()
			k.ended(mark, "m1")
			k.durable(c)
			if k.Cannot&Durability == 0 {
				k.until([]string{"m1"}, "said that an entry is durable whose turn is over",
					func(r delivery.Report) bool { return len(r.Evidence) == 1 && r.Evidence[0].Durable })
			}
		},
	}, {
		Name:  "evidence/death",
		Says:  "after the death of the process the branch is what the disk has: what was lost is absent and can be sent again",
		Fix:   "keep nothing that the bridge knows of messages over the death of its process",
		Needs: Kill | Restart,
		check: func(k *kit) {
			c := k.start()
			k.rest()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			_, before := k.evidence(c, "m1")
			k.must("kill", k.Kill())
			onDisk := k.disk("m1") > 0
			if before.Durable && !onDisk {
				k.failf("m1 was said to be durable and did not survive the death of the process")
			}
			k.release()
			c = k.start()
			k.rest()
			if _, e := k.evidence(c, "m1"); e.Present != onDisk {
				k.failf("on disk %v, and the bridge says %+v", onDisk, e)
			}
			want := delivery.Taken
			if onDisk {
				want = delivery.Present
			}
			k.send(c, c.message("m1"), "that is what the disk says", want)
			k.rest()
			k.count("m1", 1, "it was sent until it was there")
		},
	}, {
		Name: "evidence/replied",
		Says: "a message is replied to when a finished answer of the model to it follows, not when one was begun, failed or cut, and not by the answer to somebody else",
		Fix:  "look for an assistant entry with a final stop reason between the message and the next message or prompt",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			if _, e := k.evidence(c, "m1"); e.Replied {
				k.failf("the model has not answered, and the bridge says %+v", e)
			}
			k.abort(c, "m1")
			k.ended(mark, "m1")
			k.release()
			if _, e := k.evidence(c, "m1"); e.Replied {
				k.failf("the answer was cut, and the bridge says %+v", e)
			}
			k.chat("never mind")
			if _, e := k.evidence(c, "m1"); e.Replied {
				k.failf("the answer was cut and a person's prompt was answered, and the bridge says %+v", e)
			}
			k.deliver(c, "m2")
			if _, e := k.evidence(c, "m2"); !e.Present || !e.Replied {
				k.failf("the model has answered, and the bridge says %+v", e)
			}
		},
	},
}

// durable wants no more than the truth about m1.
func (k *kit) durable(c *kitConn) {
	k.tb.Helper()
	_, e := k.evidence(c, "m1")
	if !e.Present {
		k.failf("m1 is on the branch, and the bridge says %+v", e)
	}
	if e.Durable && k.disk("m1") == 0 {
		k.failf("m1 is on the branch and not on disk, and the bridge says that it is durable")
	}
}

// disk returns how often the disk has the message.
func (k *kit) disk(message string) int {
	k.tb.Helper()
	d, err := k.Disk()
	k.must("show its disk", err)
	return count(d, message)
}
