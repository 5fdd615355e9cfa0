package deliverytest

import "example.com/piworkflows/delivery"

var presentRules = []Rule{
	{
		Name: "present/message",
		Says: "before every send the bridge looks whether the message is on the branch, and answers Present: asking again never sends twice",
		Fix:  lookAndAppend + "; find the message by details.messageId",
		check: func(k *kit) {
			c := k.open()
			m := k.deliver(c, "m1")
			k.send(c, m, "it was on the branch", delivery.Present)
			k.rest()
			k.count("m1", 1, "it was on the branch when it was sent again")
		},
	}, {
		Name: "present/other-issue",
		Says: "another issue of the same subject on the branch satisfies it, and nothing more is sent",
		Fix:  "look for every id in Message.Others as for Message.ID",
		check: func(k *kit) {
			c := k.open()
			k.deliver(c, "m1")
			m := c.message("m2")
			m.Others = []string{"m0", "m1"}
			k.send(c, m, "m1 is another issue of it and on the branch", delivery.Present)
			k.never("another issue of it was on the branch", "m2")
		},
	}, {
		Name: "present/intent",
		Says: "a message whose intent another message on the branch carries is not sent: the session got its turn",
		Fix:  "look for Message.Intent in details.turnIntentId of the branch's entries",
		check: func(k *kit) {
			c := k.open()
			first := k.deliver(c, "m1")
			m := c.message("m2")
			m.Intent = first.Intent
			k.send(c, m, "m1 carries its intent and is on the branch", delivery.Present)
			k.never("its intent was on the branch", "m2")
			m = c.message("m3") // and a message without intent matches none
			m.Intent = ""
			k.send(c, m, "it carries no intent", delivery.Taken)
		},
	}, {
		Name:  "present/restart",
		Says:  "what is on the branch counts whichever process put it there",
		Fix:   "look at the branch that the agent has loaded, not at what this process remembers to have sent",
		Needs: Restart,
		check: func(k *kit) {
			k.deliver(k.open(), "m1")
			c := k.again()
			k.send(c, c.message("m1"), "it was on the branch that the new process has loaded", delivery.Present)
			k.rest()
			k.count("m1", 1, "it was on the branch when it was sent again")
		},
	}, {
		Name: "present/ask-again",
		Says: "after a lost answer the host asks again for the same message, at once, in its turn and after it; the message is there once and opens one turn",
		Fix:  lookAndAppend + "; answer Present as soon as it is on the branch, also in a running turn, and until then Present or Occupied",
		check: func(k *kit) {
			c := k.open()
			mark := k.mark()
			k.hold()
			m := c.message("m1")
			k.send(c, m, "the session was free", delivery.Taken)
			k.send(c, m, "it was on its way", delivery.Present, delivery.Occupied)
			k.await(mark, is(heardRequest), "let the agent ask its model for a message that it had taken")
			k.send(c, m, "it was on the branch, in its own turn", delivery.Present)
			if k.Cannot&Reconnect == 0 {
				c = k.drop(c)
				m.Epoch = c.epoch
				k.send(c, m, "it was on the branch, and the connection another one", delivery.Present)
			}
			k.release()
			k.ended(mark, "m1")
			k.send(c, m, "its turn was over", delivery.Present)
			k.rest()
			k.count("m1", 1, "it was sent once and asked for several times")
			if n := k.requests(mark); n != 1 {
				k.failf("the model was asked %d times for one message", n)
			}
		},
	},
}
