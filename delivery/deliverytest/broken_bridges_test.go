package deliverytest_test

import (
	"context"
	"errors"
	"slices"
	"strings"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/delivery/deliverytest"
)

// brokenBridges has at least one bridge for each rule.
var brokenBridges = []broken{
	{
		why: "does not name its process", rule: "connect/hello", says: "the name of the process is empty",
		hello: func(_ *scripted, h *delivery.Hello) { h.Process = "" },
	}, {
		why: "claims to see the disk", rule: "connect/hello", says: "Durable is true", cannot: deliverytest.Durability,
		hello: func(_ *scripted, h *delivery.Hello) { h.Durable = true },
	}, {
		why: "names its process after the session", rule: "connect/identity", says: "both processes call themselves",
		hello: func(_ *scripted, h *delivery.Hello) { h.Process = "pi" },
	}, {
		why: "makes a new key at each start", rule: "connect/identity", says: "everything that waits for the session is lost",
		hello: func(_ *scripted, h *delivery.Hello) { h.Session = deliverytest.NewFile(h.Process, "/s1.jsonl").Key() },
	}, {
		why: "never asks to be looked at", rule: "connect/changed", says: "never asked to be looked at",
		reports: reports(func(_ *scripted, r *reporter) { r.changed = func() {} }),
	}, {
		why: "does not connect again", rule: "connect/again", says: "never connected", once: true,
	}, {
		why: "connects again although it is fenced", rule: "fence/stays-away", says: "it connected again by itself",
		session: func(_ *scripted, b delivery.Session) delivery.Session {
			fenced := false
			return wrap{Session: b, fenced: func() { fenced = true }, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
				if fenced {
					return delivery.Answer{Verdict: delivery.Refused, Reason: "fenced"}, nil
				}
				return b.Send(ctx, m)
			}}
		},
	}, {
		why: "sends although it is fenced", rule: "fence/stays-away", says: "was answered Taken and not refused", once: true,
		session: func(_ *scripted, b delivery.Session) delivery.Session { return wrap{Session: b, fenced: func() {}} },
	}, {
		why: "takes a fork for the session", rule: "fork/another-session", says: "is sent to its copy",
		hello: func(_ *scripted, h *delivery.Hello) { h.Session = deliverytest.NewFile("s1", "/s1.jsonl").Key() },
	}, {
		why: "leaves without a word", rule: "shutdown/announced", says: "never announced",
		reports: reports(func(_ *scripted, r *reporter) {
			r.shutdown = func(context.Context) error { r.Reporter.Close(); return nil }
		}),
	}, {
		why: "announces a death", rule: "shutdown/death", says: "announced with Shutdown",
		reports: reports(func(_ *scripted, r *reporter) {
			r.close = func() { _ = r.Reporter.Shutdown(context.Background()); r.Reporter.Close() }
		}),
	}, {
		why: "loses a send", rule: "send/appends", says: "never reported the start of the turn that message m1 opened", loses: true,
	}, {
		why: "sends twice", rule: "send/appends", says: "is 2 times on the branch",
		session: forces(func(s *scripted, m delivery.Message, a delivery.Answer) bool {
			if a.Verdict == delivery.Taken {
				s.process().SendMessage(m)
			}
			return false
		}),
	}, {
		why: "cuts the content", rule: "send/content", says: "is 65536 bytes and not",
		session: message(func(_ *scripted, m *delivery.Message) { m.Content = m.Content[:min(len(m.Content), 64<<10)] }),
	}, {
		why: "starts a turn with everything", rule: "send/passive", says: "the passive message started a turn",
		session: message(func(_ *scripted, m *delivery.Message) { m.TriggerTurn = true }),
	}, {
		why: "ignores the epoch", rule: "send/epoch", says: "the epoch was not the current one",
		session: message(func(s *scripted, m *delivery.Message) { m.Epoch = s.reporter().Epoch() }),
	}, {
		why: "serves two epochs", rule: "send/old-connection", says: "was answered Taken and not refused",
		session: func(s *scripted, _ delivery.Session) delivery.Session {
			return wrap{Session: &latest{s}, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
				m.Epoch = s.reporter().Epoch()
				return (&latest{s}).Send(ctx, m)
			}}
		},
	}, {
		why: "sends after its deadline", rule: "send/deadline", says: "its deadline had passed",
		session: message(func(_ *scripted, m *delivery.Message) { m.Deadline = 0 }),
	}, {
		why: "sends into a running turn", rule: "send/busy", says: "the agent was in a person's turn", careless: true,
	}, {
		why: "says Occupied and lets the agent queue it", rule: "send/busy", says: "it was refused as Occupied",
		session: func(s *scripted, b delivery.Session) delivery.Session {
			return wrap{Session: b, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
				a, err := b.Send(ctx, m)
				if a.Verdict == delivery.Occupied {
					s.process().SendMessage(m)
				}
				return a, err
			}}
		},
	}, {
		why: "does not count its own send as busy", rule: "send/busy-from-send", says: "another message had just been taken",
		session: forces(func(s *scripted, m delivery.Message, a delivery.Answer) bool {
			last := s.note("sent", m.ID)
			return a.Verdict == delivery.Occupied && last != "" && last != m.ID
		}),
	}, {
		why: "trusts the agent's own isIdle", rule: "send/settling", says: "two sends were taken",
		session: forces(func(s *scripted, _ delivery.Message, a delivery.Answer) bool {
			return a.Verdict == delivery.Occupied && s.process().Idle()
		}),
	}, {
		why: "does not hold for input", rule: "send/input", says: "while a person's input waited",
		session: forces(func(_ *scripted, _ delivery.Message, a delivery.Answer) bool {
			return a.Reason == "the person's input waits"
		}),
	}, {
		why: "forgets an Escape", rule: "send/after-escape", says: "had not confirmed that a person stopped the turn",
		session: forces(func(_ *scripted, _ delivery.Message, a delivery.Answer) bool {
			return a.Reason == "the person stopped a turn"
		}),
	}, {
		why: "resends without looking", rule: "present/message", says: "was answered Taken and not Present",
		session: forces(func(s *scripted, _ delivery.Message, a delivery.Answer) bool {
			return a.Verdict == delivery.Present && s.process().Idle()
		}),
	}, {
		why: "ignores other issues", rule: "present/other-issue", says: "m1 is another issue of it",
		session: message(func(_ *scripted, m *delivery.Message) { m.Others = nil }),
	}, {
		why: "ignores the intent", rule: "present/intent", says: "m1 carries its intent",
		session: message(func(_ *scripted, m *delivery.Message) { m.Intent = "" }),
	}, {
		why: "remembers what it sent instead of looking", rule: "present/restart", says: "that the new process has loaded",
		session: forces(func(s *scripted, m delivery.Message, a delivery.Answer) bool {
			by := s.process().Name()
			known := s.note(by+m.ID, "sent") != ""
			return a.Verdict == delivery.Present && !known
		}),
	}, {
		why: "looks at idleness first", rule: "present/ask-again", says: "in its own turn",
		session: func(s *scripted, b delivery.Session) delivery.Session {
			return wrap{Session: b, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
				a, err := b.Send(ctx, m)
				if a.Verdict == delivery.Present && !s.process().Idle() {
					a = delivery.Answer{Verdict: delivery.Occupied, Reason: "busy"}
				}
				return a, err
			}}
		},
	}, {
		why: "takes chat for the work that was sent last", rule: "turn/opened-by", says: "the bridge reported otherwise",
		reports: reports(func(s *scripted, r *reporter) {
			r.start = func(ctx context.Context, turn, message string) (delivery.Ownership, error) {
				if message == "" {
					message = s.note("message", "")
				}
				s.note("message", message)
				return r.Reporter.TurnStarted(ctx, turn, message)
			}
		}),
	}, {
		why: "reports the end of each try", rule: "turn/settled-once", says: "was reported 2 times",
		reports: reports(func(s *scripted, r *reporter) {
			r.start = func(ctx context.Context, turn, message string) (delivery.Ownership, error) {
				if s.note("turn", turn) == turn {
					_ = r.Reporter.TurnSettled(ctx, turn, delivery.Error, false)
				}
				return r.Reporter.TurnStarted(ctx, turn, message)
			}
		}),
	}, {
		why: "makes a new key for each try", rule: "turn/retry", says: "the repeated start has the key",
		reports: reports(func(s *scripted, r *reporter) {
			r.start = func(ctx context.Context, turn, message string) (delivery.Ownership, error) {
				key := s.note("key of "+turn, "") + "x"
				s.note("key of "+turn, key)
				return r.Reporter.TurnStarted(ctx, turn+key, message)
			}
			r.settled = func(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
				key := s.note("key of "+turn, "")
				s.note("key of "+turn, key)
				return r.Reporter.TurnSettled(ctx, turn+key, end, byPerson)
			}
		}),
	}, {
		why: "takes a failure for an end", rule: "turn/error", says: "the turn ended completed",
		reports: reports(func(_ *scripted, r *reporter) {
			r.settled = func(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
				if end == delivery.Error {
					end = delivery.Completed
				}
				return r.Reporter.TurnSettled(ctx, turn, end, byPerson)
			}
		}),
	}, {
		why: "takes every abort for its own", rule: "turn/stopped-by-person", says: "by a person false",
		reports: reports(func(_ *scripted, r *reporter) {
			r.settled = func(ctx context.Context, turn string, end delivery.End, _ bool) error {
				return r.Reporter.TurnSettled(ctx, turn, end, false)
			}
		}),
	}, {
		why: "takes every abort for a person's", rule: "abort/own", says: "by a person true",
		reports: reports(func(_ *scripted, r *reporter) {
			r.settled = func(ctx context.Context, turn string, end delivery.End, _ bool) error {
				return r.Reporter.TurnSettled(ctx, turn, end, end == delivery.Aborted)
			}
		}),
	}, {
		why: "aborts whatever runs", rule: "abort/named-turn", says: "an abort named m0, and the turn of m1 ended aborted",
		session: func(s *scripted, b delivery.Session) delivery.Session {
			return wrap{Session: b, abort: func(context.Context, string) error { s.process().Escape(); return nil }}
		},
	}, {
		why: "comes to rest and does not say so", rule: "report/rest", says: "it has to call Changed when that comes true",
		reports: reports(func(s *scripted, r *reporter) {
			r.settled = func(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
				s.note("settled", "yes")
				return r.Reporter.TurnSettled(ctx, turn, end, byPerson)
			}
			r.changed = func() {
				if s.note("said", "yes") == "" {
					r.Reporter.Changed()
				}
			}
		}),
		session: looks(func(s *scripted, _ []string, r *delivery.Report) {
			if s.note("settled", "") != "" { // its handlers have not all returned
				r.Idle = false
			}
		}),
	}, {
		why: "does not report input", rule: "report/input", says: "no input before it",
		reports: reports(func(_ *scripted, r *reporter) { r.input = func(context.Context) error { return nil } }),
	}, {
		why: "reports its own messages as input", rule: "report/input", says: "reported as a person's input",
		reports: reports(func(_ *scripted, r *reporter) {
			r.start = func(ctx context.Context, turn, message string) (delivery.Ownership, error) {
				_ = r.Reporter.Input(ctx)
				return r.Reporter.TurnStarted(ctx, turn, message)
			}
		}),
	}, {
		why: "reports nothing pending", rule: "report/pending", says: "never answered that input pends",
		session: looks(func(_ *scripted, _ []string, r *delivery.Report) { r.Pending = false }),
	}, {
		why: "reports idle while input pends", rule: "report/pending", says: "answered as idle",
		session: looks(func(_ *scripted, _ []string, r *delivery.Report) { r.Idle = r.Idle || r.Pending }),
	}, {
		why: "reports idle in a turn", rule: "send/busy", says: "answered as idle",
		session: looks(func(_ *scripted, _ []string, r *delivery.Report) { r.Idle = true }),
	}, {
		why: "tells a start once, heard or not", rule: "report/repeat-start", says: "this was not repeated",
		reports: reports(func(s *scripted, r *reporter) {
			r.start = func(ctx context.Context, turn, message string) (delivery.Ownership, error) {
				if s.note("start of "+turn, "told") == "" {
					_, _ = r.Reporter.TurnStarted(ctx, turn, message)
				}
				return delivery.None, nil
			}
		}),
	}, {
		why: "tells an end once, heard or not", rule: "report/repeat-end", says: "this was not repeated",
		reports: reports(func(s *scripted, r *reporter) {
			r.settled = func(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
				if s.note("end of "+turn, "told") == "" {
					_ = r.Reporter.TurnSettled(ctx, turn, end, byPerson)
				}
				return nil
			}
		}),
	}, {
		why: "asks to be looked at before it has repeated an end", rule: "report/repeat-end", says: "this was not repeated before the first Changed",
		reports: reports(func(_ *scripted, r *reporter) { r.Reporter.Changed() }),
	}, {
		why: "takes what is half said for an answer", rule: "report/reply", says: "stopped the turn, and the bridge says that its text",
		reports: reports(func(_ *scripted, r *reporter) {
			r.replied = func(turn string, said delivery.Reply) { said.Usable = true; r.Reporter.Replied(turn, said) }
		}),
	}, {
		why: "takes the answer to the person for one to the message", rule: "report/reply", says: "typed into the turn, and the bridge says that its text",
		reports: reports(func(s *scripted, r *reporter) {
			r.replied = func(turn string, said delivery.Reply) {
				b := s.process().Branch()
				said.Usable = b[len(b)-1].Stop == deliverytest.Finished
				r.Reporter.Replied(turn, said)
			}
		}),
	}, {
		why: "cuts a long answer", rule: "report/reply", says: "and the reply has 65536, usable true",
		reports: reports(func(_ *scripted, r *reporter) {
			r.replied = func(turn string, said delivery.Reply) {
				said.Text = said.Text[:min(len(said.Text), 64<<10)]
				r.Reporter.Replied(turn, said)
			}
		}),
	}, {
		why: "reports no answer and claims to", rule: "report/reply", says: "came without a reply",
		reports: reports(func(_ *scripted, r *reporter) { r.replied = func(string, delivery.Reply) {} }),
	}, {
		why: "reports input late", rule: "report/order", says: "not reported as input, start, end",
		reports: reports(func(s *scripted, r *reporter) {
			r.input = func(context.Context) error { s.note("input", "late"); return nil }
			r.settled = func(ctx context.Context, turn string, end delivery.End, byPerson bool) error {
				if s.note("input", "") != "" {
					_ = r.Reporter.Input(ctx)
				}
				return r.Reporter.TurnSettled(ctx, turn, end, byPerson)
			}
		}),
	}, {
		why: "takes quoted text for evidence", rule: "evidence/quoted", says: "quoted m1",
		session: evidence(func(s *scripted, e *delivery.Evidence) {
			e.Present = slices.ContainsFunc(s.process().Branch(), func(l deliverytest.Entry) bool {
				return strings.Contains(l.Text+string(l.Details), e.Message)
			})
		}),
	}, {
		why: "does not send what somebody quoted", rule: "evidence/quoted", says: "the session was free",
		session: func(s *scripted, b delivery.Session) delivery.Session {
			return wrap{Session: b, send: func(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
				for _, l := range s.process().Branch() {
					if strings.Contains(l.Text, m.ID) {
						return delivery.Answer{Verdict: delivery.Present}, nil
					}
				}
				return b.Send(ctx, m)
			}}
		},
	}, {
		why: "says nothing of what is absent", rule: "evidence/present", says: "m0 was never sent",
		session: looks(func(_ *scripted, _ []string, r *delivery.Report) {
			r.Evidence = slices.DeleteFunc(r.Evidence, func(e delivery.Evidence) bool { return !e.Present })
		}),
	}, {
		why: "looks at the whole file", rule: "evidence/active-branch", says: "a message on a branch that was left is absent",
		session: evidence(func(s *scripted, e *delivery.Evidence) {
			e.Present = e.Present || s.file.MaxCount(e.Message) > 0
		}),
	}, {
		why: "takes the branch for the disk", rule: "evidence/durable", says: "not on disk, and the bridge says that it is durable",
		session: evidence(func(_ *scripted, e *delivery.Evidence) { e.Durable = e.Present }),
	}, {
		why: "never says that anything is durable", rule: "evidence/durable", says: "never said that an entry is durable",
		session: evidence(func(_ *scripted, e *delivery.Evidence) { e.Durable = false }),
	}, {
		why: "keeps what it knows over a death", rule: "evidence/death", says: "on disk false, and the bridge says",
		session: evidence(func(s *scripted, e *delivery.Evidence) {
			if s.note(e.Message, "") != "" || e.Present {
				e.Present = true
				s.note(e.Message, "seen")
			}
		}),
	}, {
		why: "takes a cut answer for a reply", rule: "evidence/replied", says: "the answer was cut, and",
		session: evidence(func(s *scripted, e *delivery.Evidence) {
			b := s.process().Branch()
			at := slices.IndexFunc(b, func(l deliverytest.Entry) bool { return l.MessageID() == e.Message })
			e.Replied = at >= 0 && slices.ContainsFunc(b[at:], func(l deliverytest.Entry) bool { return l.Role == deliverytest.Assistant })
		}),
	}, {
		why: "takes the answer to somebody else for a reply", rule: "evidence/replied", says: "a person's prompt was answered",
		session: evidence(func(s *scripted, e *delivery.Evidence) {
			b := s.process().Branch()
			at := slices.IndexFunc(b, func(l deliverytest.Entry) bool { return l.MessageID() == e.Message })
			e.Replied = at >= 0 && slices.ContainsFunc(b[at:], func(l deliverytest.Entry) bool { return l.Stop == deliverytest.Finished })
		}),
	},
}

// note remembers a value and returns the one before.
func (s *scripted) note(name, value string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.notes[name]
	s.notes[name] = value
	return old
}

func (s *scripted) reporter() deliverytest.Reporter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r
}

// latest is whichever bridge is the newest.
type latest struct{ s *scripted }

var errNone = errors.New("no bridge yet")

func (l *latest) bridge() delivery.Session {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.s.newest
}

func (l *latest) Look(ctx context.Context, names []string) (delivery.Report, error) {
	if b := l.bridge(); b != nil {
		return b.Look(ctx, names)
	}
	return delivery.Report{}, errNone
}

func (l *latest) Send(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
	return l.bridge().Send(ctx, m)
}

func (l *latest) Abort(ctx context.Context, message string) error {
	return l.bridge().Abort(ctx, message)
}

func (l *latest) Fenced() { l.bridge().Fenced() }
