package deliverytest

import "example.com/piworkflows/delivery"

var turnRules = []Rule{
	{
		Name: "turn/opened-by",
		Says: "a turn's start is reported with the id of the workflow message that opened it, and with none if a person did; each turn has its own key",
		Fix:  "take the id from the details of the entry that the agent starts with, never from text or from what was sent last",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.deliver(c, "m1")
			k.chat("as to m1: {\"messageId\":\"m1\"}")
			k.deliver(c, "m2")
			starts := k.since(mark, is(heardStart))
			keys := map[string]string{}
			for i, s := range starts {
				if s.turn == "" {
					k.failf("a turn has an empty key")
				}
				if other, ok := keys[s.turn]; ok && other != s.message {
					k.failf("two turns have the key %q", s.turn)
				}
				keys[s.turn] = s.message
				if want := []string{"m1", "", "m2"}; i >= len(want) || s.message != want[i] {
					k.failf("turns were opened by m1, a person and m2, and the bridge reported otherwise")
				}
			}
		},
	}, {
		Name: "turn/settled-once",
		Says: "a turn is over once, at settled, and not when the agent pauses before it tries again",
		Fix:  "report TurnSettled from the agent's settled event, once per turn, with the end that the last answer had",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.fail(1)
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.ended(mark, "m1")
			k.chat("and you?")
			ends := map[string]int{}
			for _, h := range k.since(mark, is(heardSettled)) {
				if ends[h.turn]++; ends[h.turn] > 1 {
					k.failf("the end of turn %q was reported %d times", h.turn, ends[h.turn])
				}
			}
			for _, h := range k.since(mark, is(heardSettled)) {
				if h.end != delivery.Completed || h.byPerson {
					k.failf("a turn that the model finished ended %v, by a person %v", h.end, h.byPerson)
				}
			}
		},
	}, {
		Name:  "turn/retry",
		Says:  "when the agent tries again after a provider failure it is the same turn: the start is repeated, if at all, with the same key and message",
		Fix:   "make a key when the session leaves rest, and keep it until settled",
		Needs: Retry,
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.fail(2)
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			end := k.await(mark, is(heardSettled), "reported the end of a turn that was tried again")
			for _, h := range k.since(mark, is(heardStart)) {
				if h.turn != end.turn || h.message != "m1" {
					k.failf("the repeated start has the key %q and the message %q; the turn is %q of m1", h.turn, h.message, end.turn)
				}
			}
			k.rest()
			k.count("m1", 1, "a retry does not repeat the message")
		},
	}, {
		Name: "turn/error",
		Says: "a turn that the provider ended is an error, not an abort and no success",
		Fix:  "take the end from the stop reason of the last assistant entry",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.fail(1 << 30)
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			if end := k.ended(mark, "m1"); end.end != delivery.Error || end.byPerson {
				k.failf("every request failed, and the turn ended %v, by a person %v", end.end, end.byPerson)
			}
		},
	}, {
		Name:  "turn/stopped-by-person",
		Says:  "a turn that a person stopped ended Aborted, by a person: that holds the session",
		Fix:   "report byPerson for every abort that this bridge did not make itself",
		Needs: Escape,
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			k.must("escape", k.Escape())
			if end := k.ended(mark, "m1"); end.end != delivery.Aborted || !end.byPerson {
				k.failf("the turn ended %v, by a person %v", end.end, end.byPerson)
			}
		},
	}, {
		Name: "abort/own",
		Says: "a turn that the host had aborted ended Aborted, and not by a person",
		Fix:  "set a flag on the turn before you abort it, and clear it with the turn",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			k.abort(c, "m1")
			if end := k.ended(mark, "m1"); end.end != delivery.Aborted || end.byPerson {
				k.failf("the turn ended %v, by a person %v", end.end, end.byPerson)
			}
			if k.Cannot&Escape == 0 { // the flag is not left behind
				mark = k.mark()
				k.prompt("think")
				k.must("escape", k.Escape())
				start := k.await(mark, is(heardStart), "reported the start of a person's turn")
				if end := k.settled(mark, start); !end.byPerson {
					k.failf("a person stopped the turn after it, and the bridge reported an abort of its own")
				}
			}
		},
	}, {
		Name: "abort/named-turn",
		Says: "an abort stops the turn that the message opened, if it is the active one, and no other",
		Fix:  "compare the id with that of the active turn in the same step in which you abort",
		check: func(k *kit) {
			c := k.open()
			finish := func(mark int, whose string) {
				k.release()
				start := k.await(mark, is(heardStart), "reported the start of a turn")
				if end := k.settled(mark, start); end.end != delivery.Completed {
					k.failf("%s ended %v", whose, end.end)
				}
				k.rest()
			}
			mark := k.mark()
			k.hold()
			k.send(c, c.message("m1"), "the session was free", delivery.Taken)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			k.abort(c, "m0")
			finish(mark, "an abort named m0, and the turn of m1")
			mark = k.mark()
			k.hold()
			k.prompt("think")
			k.abort(c, "m1")
			finish(mark, "an abort named m1, whose turn was over, and a person's turn")
		},
	},
}

// fail makes the next n requests of the model fail, if the agent tries again
// after it.
func (k *kit) fail(n int) {
	if k.Cannot&Retry != 0 && n < 1<<30 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = n
}
