package deliverytest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

const lookAndAppend = "look at everything and append in one synchronous step, in the agent's own process or under the lock through which all else reaches the agent"

var sendRules = []Rule{
	{
		Name: "send/appends",
		Says: "a send that is answered Taken was executed: the message is on the branch once, with its type and metadata, and opened one turn with one model request",
		Fix:  "answer Taken only after the agent has accepted the message, and append it as a structured entry",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			m := k.deliver(c, "m1")
			k.entry(m)
			if n := k.requests(mark); n != 1 {
				k.failf("the model was asked %d times for one message", n)
			}
		},
	}, {
		Name: "send/content",
		Says: "the content and the details arrive as they were given, also when they are large or look like a frame of the bridge's own protocol",
		Fix:  "encode what you transport, hand over by reference what does not fit into a frame, and cut nothing",
		check: func(k *kit) {
			c := k.open()
			hostile := "line\nline\r\n\t\"quoted\" \\ \u2028 é 世界 </message> {\"type\":\"send\"}\n\n"
			for _, size := range []int{1, 2_000, 20_000} { // 70 bytes, 140 KB, 1.4 MB
				id := fmt.Sprintf("m%d", size)
				m := c.passive(id)
				m.Content = strings.Repeat(hostile, size) + "end"
				m.Details, _ = json.Marshal(map[string]any{"messageId": id, "turnIntentId": m.Intent, "text": hostile, "list": []any{nil, true, 1.5, map[string]any{}}})
				k.send(c, m, "the session was free", delivery.Taken)
				k.until([]string{id}, "showed a message that it had taken", present)
				k.entry(m)
			}
		},
	}, {
		Name: "send/passive",
		Says: "a message that starts no turn is appended and starts none",
		Fix:  "hand TriggerTurn on to the agent",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			m := c.passive("m1")
			k.send(c, m, "the session was free", delivery.Taken)
			k.until([]string{"m1"}, "showed a message that it had taken", present)
			k.entry(m)
			k.prompt("did anything happen?") // which may have steered a turn that should not be
			k.rest()
			if len(k.since(mark, isTurn(heardStart, "m1"))) > 0 {
				k.failf("a turn was reported as opened by it: the passive message started a turn")
			}
			if n := k.requests(mark); n != 1 {
				k.failf("the model was asked %d times for one prompt: the passive message started a turn", n)
			}
		},
	}, {
		Name: "send/epoch",
		Says: "a send for another epoch than the connection's own is refused: whoever asked does not own the session any more",
		Fix:  "compare Message.Epoch with the epoch that Connect returned, inside the synchronous step",
		check: func(k *kit) {
			c := k.open()
			for _, by := range []uint64{c.epoch - 1, c.epoch + 1} {
				m := c.message("m1")
				m.Epoch = by
				k.send(c, m, "the epoch was not the current one", delivery.Refused)
			}
			k.never("it was sent for another epoch", "m1")
		},
	}, {
		Name:  "send/old-connection",
		Says:  "a connection that is over serves nobody: of two epochs only the current one sends",
		Fix:   "bind each connection to its epoch and drop it when the next one is made; look at that inside the synchronous step",
		Needs: Reconnect,
		check: func(k *kit) {
			c := k.open()
			n := k.drop(c)
			if a, err := c.send(c.message("m1")); err == nil && a.Verdict != delivery.Refused {
				k.failf("a send on the old connection was answered %s and not refused", named(a.Verdict))
			}
			k.never("it was sent on the old connection", "m1")
			k.deliver(n, "m2")
		},
	}, {
		Name: "send/deadline",
		Says: "a send whose deadline has passed is refused: the host may have decided otherwise since",
		Fix:  "compare Message.Deadline with the wall clock inside the synchronous step, not on arrival",
		check: func(k *kit) {
			c := k.open()
			m := c.message("m1")
			m.Deadline = launch.TimeOf(time.Now().Add(-time.Millisecond))
			k.send(c, m, "its deadline had passed", delivery.Refused)
			k.never("its deadline had passed", "m1")
			k.deliver(c, "m2")
		},
	}, {
		Name: "send/busy",
		Says: "nothing is sent into a running turn: the agent queues it out of sight, and it is lost, late or doubled",
		Fix:  lookAndAppend + "; answer Occupied from the turn's acceptance until the agent is at rest",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.prompt("think")
			k.send(c, c.message("m1"), "the agent was in a person's turn", delivery.Occupied)
			k.send(c, c.passive("m2"), "the agent was in a person's turn", delivery.Occupied)
			if r, _ := k.evidence(c, "m1"); r.Idle {
				k.failf("a look in a running turn was answered as idle")
			}
			k.release()
			k.settled(mark, k.await(mark, is(heardStart), "reported the start of a person's turn"))
			k.rest()
			k.never("it was refused as Occupied", "m1", "m2")
			k.deliver(c, "m1")
		},
	}, {
		Name: "send/busy-from-send",
		Says: "the session is busy from the moment in which a send is taken, before its turn has begun: a second one would join the same turn",
		Fix:  "count what was taken and has not begun as busy, in Send and in Look",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.send(c, c.message("m2"), "another message had just been taken", delivery.Occupied)
			if r, _ := k.evidence(c, "m1"); r.Idle {
				k.failf("a look right after a send was answered as idle")
			}
			k.release()
			k.ended(mark, "m1")
			k.never("it was refused as Occupied", "m2")
			k.count("m1", 1, "it was sent once")
		},
	}, {
		Name: "send/settling",
		Says: "while a turn's end is being handled the agent calls itself idle, and yet what is asked for then starts later: no two sends are taken before the first has begun",
		Fix:  "answer Occupied until the end of the turn is handled, or count what you took as busy",
		check: func(k *kit) {
			k.open()
			answers := k.during(heardSettled,
				func(c *kitConn) delivery.Message {
					k.hold() // what is taken stays under way
					return c.message("m1")
				},
				func(c *kitConn) delivery.Message { return c.message("m2") })
			k.must("prompt", k.Prompt("and then?"))
			a := answers()
			k.release()
			if !a[1].late && a[0].Verdict == delivery.Taken && a[1].Verdict == delivery.Taken {
				k.failf("two sends were taken while the end of one turn was reported")
			}
		},
	}, {
		Name: "send/input",
		Says: "from a person's input until its turn has started nothing is sent: the prompt would be rejected and what was typed lost",
		Fix:  "hold sends from the agent's input event to the start of the turn, for at most 30 s",
		check: func(k *kit) {
			k.open()
			mark := k.mark()
			k.hold()
			answers := k.during(heardInput, func(c *kitConn) delivery.Message { return c.message("m1") })
			err := k.Prompt("precious text")
			if a := answers()[0]; a.err == nil && a.Verdict == delivery.Taken {
				k.failf("a send was taken while a person's input waited for its turn")
			}
			k.must("prompt", err)
			k.release()
			start := k.await(mark, is(heardStart), "reported the start of a person's turn")
			k.settled(mark, start)
			k.rest()
			k.never("a person's input waited when it was sent", "m1")
		},
	}, {
		Name:  "send/after-escape",
		Says:  "after a person has stopped a turn nothing is sent until the host knows it: the bridge knows first",
		Fix:   "answer Occupied as long as the report of a turn that a person stopped is not confirmed",
		Needs: Escape | Reconnect,
		check: func(k *kit) {
			c := k.open()
			k.hold()
			k.prompt("think")
			k.at(heardSettled, func(*kitConn) bool {
				k.leave(true)
				return true
			})
			mark := k.mark()
			k.must("escape", k.Escape())
			k.await(mark, is(heardSettled), "reported the end of a turn that a person stopped")
			answers := k.during(heardSettled, func(c *kitConn) delivery.Message { return c.message("m1") })
			k.leave(false)
			k.ready(c.epoch)
			if a := answers()[0]; !a.late && a.Verdict == delivery.Taken {
				k.failf("a send was taken although the host had not confirmed that a person stopped the turn")
			}
		},
	},
}

func present(r delivery.Report) bool { return len(r.Evidence) == 1 && r.Evidence[0].Present }

// entry wants the message on the branch once and as it was given.
func (k *kit) entry(m delivery.Message) {
	k.tb.Helper()
	k.count(m.ID, 1, "it was sent once")
	for _, e := range k.branch() {
		if e.MessageID() != m.ID {
			continue
		}
		if e.CustomType != m.CustomType {
			k.failf("message %s has the type %q and not %q", m.ID, e.CustomType, m.CustomType)
		}
		if e.Text != m.Content {
			k.failf("the content of message %s is %d bytes and not the %d that were sent", m.ID, len(e.Text), len(m.Content))
		}
		var got, want any
		if json.Unmarshal(e.Details, &got) != nil || json.Unmarshal(m.Details, &want) != nil || !reflect.DeepEqual(got, want) {
			k.failf("the details of message %s are not those that were sent", m.ID)
		}
	}
}
