package deliverytest

import (
	"slices"
	"strings"

	"example.com/piworkflows/delivery"
)

var reportRules = []Rule{
	{
		Name: "report/rest",
		Says: "when the session comes to rest the bridge says so and asks to be looked at; the host does not poll",
		Fix:  "call Changed after the last handler of a turn's end has returned, and after every other change of idleness or branch",
		check: func(k *kit) {
			c := k.open()
			for _, id := range []string{"m1", "m2"} {
				k.deliver(c, id)
			}
		},
	}, {
		Name: "report/input",
		Says: "a person's input is reported when it arrives, before its turn starts; what the host sends is no input",
		Fix:  "report Input from the agent's input event, not for messages and commands of extensions",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.deliver(c, "m1")
			if len(k.since(mark, is(heardInput))) > 0 {
				k.failf("a message of the host was reported as a person's input")
			}
			mark = k.mark()
			k.chat("hello again")
			story := k.since(mark, func(h heard) bool { return h.kind == heardInput || h.kind == heardStart })
			if story[0].kind != heardInput {
				k.failf("the start of a person's turn was reported and no input before it")
			}
		},
	}, {
		Name:  "report/pending",
		Says:  "input that waits in a running turn is reported, pends, and pends no more once it is taken",
		Fix:   "report Input also for what steers a turn, and answer Look with the agent's own queue of a person's text",
		Needs: Queue,
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.prompt("think")
			typed := k.mark()
			k.must("prompt in a turn", k.Prompt("also this"))
			k.await(typed, is(heardInput), "reported a person's input into a running turn")
			r := k.until(nil, "answered that input pends while a person's text waits in a turn", func(r delivery.Report) bool { return r.Pending })
			if r.Idle {
				k.failf("a look in a running turn was answered as idle")
			}
			k.send(c, c.message("m1"), "a person's text waited", delivery.Occupied)
			k.release()
			k.settled(mark, k.await(mark, is(heardStart), "reported the start of a person's turn"))
			k.rest()
			k.never("it was refused as Occupied", "m1")
		},
	}, {
		Name:  "report/repeat-start",
		Says:  "a start whose confirmation was lost is repeated on the next connection, with the same key, before the bridge first asks to be looked at",
		Fix:   "keep each report until it is confirmed, and hand over what is kept before you call Changed",
		Needs: Reconnect,
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.lose(heardStart)
			_, _ = c.send(c.message("m1")) // its answer may be lost too
			lost := k.await(mark, is(heardStart), "reported the start of a turn")
			k.ready(c.epoch)
			k.repeated(lost, c.epoch)
			k.release()
			k.ended(mark, "m1")
		},
	}, {
		Name:  "report/repeat-end",
		Says:  "an end whose confirmation was lost is repeated on the next connection, unchanged, before the bridge first asks to be looked at: the first look would close the turn as lost",
		Fix:   "keep each report until it is confirmed, and hand over what is kept before you call Changed",
		Needs: Reconnect,
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			k.lose(heardSettled)
			k.release()
			lost := k.await(mark, is(heardSettled), "reported the end of a turn")
			k.ready(c.epoch)
			k.repeated(lost, c.epoch)
			k.rest()
		},
	}, {
		Name:  "report/reply",
		Says:  "the final assistant text of a turn is reported right before its end, and as usable only if the turn completed and the person typed nothing into it: it may answer a request",
		Fix:   "call Replied from the settled event, with the last assistant entry after the message that opened the turn, whole; leave it out, or Usable false, for everything else",
		Needs: Replies,
		check: func(k *kit) {
			c := k.open()
			unusable := func(end heard, why string) {
				if end.reply != nil && end.reply.Usable {
					k.failf("%s, and the bridge says that its text %q is usable", why, end.reply.Text)
				}
			}
			for i, text := range []string{"It floats.", strings.Repeat("long ", 20_000) + "end"} {
				id := []string{"m1", "m2"}[i]
				k.say(text)
				mark := k.mark()
				k.send(c, c.message(id), "the session was free", delivery.Taken)
				switch end := k.ended(mark, id); {
				case end.reply == nil:
					k.failf("the model answered, and the end of its turn came without a reply")
				case end.reply.Text != text || !end.reply.Usable:
					k.failf("the model answered with %d bytes, and the reply has %d, usable %v", len(text), len(end.reply.Text), end.reply.Usable)
				}
			}
			k.say("It floats.")
			stopped := func(id, why string, stop func()) {
				mark := k.mark()
				k.hold()
				k.send(c, c.message(id), "the session was free", delivery.Taken)
				k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
				stop()
				k.release()
				unusable(k.ended(mark, id), why)
			}
			stopped("m3", "the host stopped the turn", func() { k.abort(c, "m3") })
			if k.Cannot&Queue == 0 {
				stopped("m4", "the person typed into the turn", func() {
					typed := k.mark()
					k.must("prompt in a turn", k.Prompt("also this"))
					k.await(typed, is(heardInput), "reported a person's input into a running turn")
				})
			}
			if k.Cannot&Escape == 0 {
				stopped("m5", "the person stopped the turn", func() { k.must("escape", k.Escape()) })
				k.chat("go on")
			}
			mark := k.mark()
			k.fail(1 << 30)
			k.send(c, c.message("m6"), "the session was free", delivery.Taken)
			unusable(k.ended(mark, "m6"), "the provider failed")
		},
	}, {
		Name:  "report/order",
		Says:  "reports are made in the order in which things happened, also those that wait for a connection",
		Fix:   "keep one queue for all reports of a session, and one sender",
		Needs: Reconnect,
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.leave(true)
			c.end(false)
			k.prompt("anybody?")
			k.leave(false)
			k.ready(c.epoch)
			k.await(mark, is(heardSettled), "reported the end of a turn that began without a host")
			k.rest()
			var story []heardKind
			for _, h := range k.since(mark, func(h heard) bool { return h.kind == heardInput || h.kind == heardStart || h.kind == heardSettled }) {
				story = append(story, h.kind)
			}
			if story = slices.Compact(story); !slices.Equal(story, []heardKind{heardInput, heardStart, heardSettled}) {
				k.failf("a prompt while the host was away was not reported as input, start, end")
			}
		},
	},
}

// repeated wants the lost report on the connection after the epoch, before the
// first Changed there.
func (k *kit) repeated(lost heard, epoch uint64) {
	k.tb.Helper()
	story := k.since(0, func(h heard) bool { return h.epoch > epoch })
	looked := slices.IndexFunc(story, is(heardChanged))
	at := slices.IndexFunc(story, func(h heard) bool {
		return h.kind == lost.kind && h.turn == lost.turn && h.message == lost.message && h.end == lost.end && h.byPerson == lost.byPerson
	})
	if at < 0 || at > looked {
		k.failf("this was not repeated before the first Changed of the next connection: %v", lost)
	}
}
