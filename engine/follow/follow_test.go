package follow_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"example.com/piworkflows/engine/follow"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

type commands = []follow.Command

func owe(k intents.SourceKind, actor launch.Actor, active bool, outcome intents.Cause) follow.Owe {
	return follow.Owe{Source: intents.Source{Kind: k, Actor: actor, ActiveTurn: active, Outcome: outcome}}
}

// row is a launch after an event, with a run record unless it never ran.
func row(s launch.State, record bool) *launch.Launch {
	l := &launch.Launch{Mode: launch.Interactive, State: s}
	if record {
		l.Started = 1
	}
	return l
}

var launches = []struct {
	why    string
	event  launch.Event
	launch *launch.Launch
	active bool
	want   commands
}{
	{"a reservation owes nothing", launch.Event{Kind: launch.EvReserved}, row(launch.Queued, false), false, nil},
	{"nor does a claim", launch.Event{Kind: launch.EvClaimed}, row(launch.Starting, false), false, nil},
	{"a run that ran ends the row of failed launches", launch.Event{Kind: launch.EvStarted}, row(launch.Running, true), false,
		commands{follow.ChainRan{}}},
	{"completed: the post-workflow turn", launch.Event{Kind: launch.EvDone}, row(launch.Done, true), true,
		commands{owe(intents.OnEnded, 0, true, intents.Completed), follow.EndRun{}}},
	{"failed: likewise", launch.Event{Kind: launch.EvFailed, Code: launch.CodeNodeFailed}, row(launch.Failed, true), false,
		commands{owe(intents.OnEnded, 0, false, intents.Failed), follow.EndRun{}}},
	{"timed out: likewise, told as what it was", launch.Event{Kind: launch.EvFailed, Code: launch.CodeTimedOut}, row(launch.Failed, true), false,
		commands{owe(intents.OnEnded, 0, false, intents.TimedOut), follow.EndRun{}}},
	{"an unreadable record is a failed run", launch.Event{Kind: launch.EvFailed, Code: launch.CodeRecordUnreadable}, row(launch.Failed, true), false,
		commands{owe(intents.OnEnded, 0, false, intents.Failed), follow.EndRun{}}},
	{"a launch that never ran was acknowledged, so its failure is told", launch.Event{Kind: launch.EvFailed, Code: launch.CodeActivationFailed}, row(launch.Failed, false), false,
		commands{owe(intents.OnActivationFailed, 0, false, 0), follow.EndRun{}}},
	{"cancelled by the model in its turn", launch.Event{Kind: launch.EvCancelled, Actor: launch.Model}, row(launch.Cancelled, true), true,
		commands{owe(intents.OnCancel, launch.Model, true, 0), follow.EndRun{}}},
	{"cancelled by the host", launch.Event{Kind: launch.EvCancelled, Actor: launch.Host}, row(launch.Cancelled, true), false,
		commands{owe(intents.OnCancel, launch.Host, false, 0), follow.EndRun{}}},
	{"cancelled by a person: no turn, none from its chain, a passive notice", launch.Event{Kind: launch.EvCancelled, Actor: launch.Person}, row(launch.Cancelled, false), true,
		commands{follow.StopChain{}, owe(intents.OnCancel, launch.Person, true, 0), follow.EndRun{}, follow.Notice{Text: "was cancelled by a person; nothing of it runs on"}}},
	{"taken over in a turn of its own", launch.Event{Kind: launch.EvRecovered, Park: launch.ParkDue}, row(launch.Parked, true), true,
		commands{owe(intents.OnTakenOver, 0, true, 0)}},
	{"taken over for the second time without progress: handed over as well, after that", launch.Event{Kind: launch.EvRecovered, Park: launch.ParkAttention}, row(launch.Parked, true), true,
		commands{owe(intents.OnTakenOver, 0, true, 0), owe(intents.OnAttention, 0, true, 0)}},
	{"parked for attention: handed over", launch.Event{Kind: launch.EvParked, Park: launch.ParkAttention}, row(launch.Parked, true), false,
		commands{owe(intents.OnAttention, 0, false, 0)}},
	{"released politely, its record waits for a person: handed over", launch.Event{Kind: launch.EvReleased, Park: launch.ParkAttention}, row(launch.Parked, true), false,
		commands{owe(intents.OnAttention, 0, false, 0)}},
	{"released politely: nothing is lost", launch.Event{Kind: launch.EvReleased, Park: launch.ParkDue}, row(launch.Parked, true), true, nil},
	{"parked to wait: what is pending waits with it", launch.Event{Kind: launch.EvParked, Park: launch.ParkWaiting}, row(launch.Parked, true), false, nil},
	{"paused: likewise", launch.Event{Kind: launch.EvPaused, Actor: launch.Person, Park: launch.ParkPaused}, row(launch.Parked, true), false, nil},
	{"paused while it waits for a person: it was handed over before", launch.Event{Kind: launch.EvPaused, Actor: launch.Person, Park: launch.ParkAttention}, row(launch.Parked, true), false, nil},
	{"woken by an answer: likewise", launch.Event{Kind: launch.EvWoken, Park: launch.ParkDue}, row(launch.Parked, true), false,
		commands{follow.TakeBack{}}},
	{"resumed: an unsent hand-over is taken back", launch.Event{Kind: launch.EvResumed, Actor: launch.Person, Park: launch.ParkDue}, row(launch.Parked, true), false,
		commands{follow.TakeBack{}}},
}

func TestLaunch(t *testing.T) {
	seen := map[launch.EventKind]bool{}
	for _, c := range launches {
		seen[c.event.Kind] = true
		var always commands // of a headless run too
		switch {
		case c.launch.State.Terminal() && c.launch.HasRecord():
			always = commands{follow.EndRequest{}}
		case c.event.Kind == launch.EvPaused:
			always = commands{follow.StopClock{}}
		}
		if diff := cmp.Diff(append(slices.Clone(always), c.want...), follow.Launch(c.event, c.launch, c.active)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
		headless := *c.launch
		headless.Mode = launch.Headless
		if diff := cmp.Diff(always, follow.Launch(c.event, &headless, c.active)); diff != "" {
			t.Errorf("%s, headless (-want +got):\n%s", c.why, diff)
		}
	}
	for k := launch.EvReserved; k <= launch.EvCancelled; k++ {
		if !seen[k] {
			t.Errorf("nothing is said about the event %s", k)
		}
	}
}

// Whatever is owed, the policy knows it: no source event of a launch falls
// through to its last row, except those that owe nothing without a turn.
func TestOwedIsInThePolicy(t *testing.T) {
	for _, c := range launches {
		for _, f := range c.want {
			o, ok := f.(follow.Owe)
			if d := intents.Policy(o.Source); ok && d == (intents.Decision{}) {
				t.Errorf("%s: %+v owes nothing", c.why, o.Source)
			}
		}
	}
	ended := follow.PersonCancelsEnded()
	want := commands{follow.StopChain{}, owe(intents.OnCancel, launch.Person, false, 0)}
	if diff := cmp.Diff(want, ended); diff != "" {
		t.Errorf("a person's cancel of an ended run stops its chain (-want +got):\n%s", diff)
	}
	if d := intents.Policy(ended[1].(follow.Owe).Source); !d.WithdrawChain || d.Owe {
		t.Errorf("it withdraws what the chain has pending and owes nothing: %+v", d)
	}
}

func TestIntent(t *testing.T) {
	wants := map[intents.EventKind]commands{
		intents.EvEligible:  {follow.QueueFallback{Intent: "i"}},
		intents.EvResolved:  {follow.CancelMessages{Intent: "i", Reason: "the intent is resolved"}},
		intents.EvWithdrawn: {follow.CancelMessages{Intent: "i", Reason: "the intent is withdrawn"}},
	}
	for _, k := range intents.EventKinds() {
		if diff := cmp.Diff(wants[k], follow.Intent(intents.Event{Kind: k, Intent: "i"})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", k, diff)
		}
	}
}

func TestSession(t *testing.T) {
	event := func(k session.EventKind) session.Event {
		return session.Event{Kind: k, Intent: "i", Message: "m", Of: session.Fallback}
	}
	open := event(session.EvRefused)
	open.Unanswered = true
	lost := event(session.EvUncarried)
	lost.Unanswered = true
	free := event(session.EvConfirmed)
	free.Intent = ""
	for _, c := range []struct {
		why   string
		event session.Event
		want  commands
	}{
		{"confirmed: its intent is resolved", event(session.EvConfirmed), commands{follow.Resolve{Intent: "i", Message: "m", By: intents.ByFallback}}},
		{"a message without an intent resolves none", free, nil},
		{"seen is not confirmed", event(session.EvSent), nil},
		{"seen, and its turn may be over: the request may be due again", session.Event{Kind: session.EvSent, Request: "q"}, commands{follow.Prompt{Request: "q"}}},
		{"refused: the attempt did not carry it", event(session.EvRefused), commands{follow.Settle{Intent: "i"}}},
		{"refused while an earlier ask is unanswered: it may carry it", open, nil},
		{"proven absent", event(session.EvUncarried), commands{follow.Settle{Intent: "i"}}},
		{"absent while another issue may have got through", lost, nil},
		{"blocked: the intent stays pending, visibly", event(session.EvBlocked), nil},
		{"cancelled: the intent decided that", event(session.EvCancelled), nil},
		{"a late end changes nothing", event(session.EvLateEnd), nil},
	} {
		if diff := cmp.Diff(c.want, follow.Session(c.event)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

// How each kind of message resolves the intent that it carries agrees with the
// contract's data.
func TestResolutionAgreesWithItsData(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/contract/session-kinds.json")
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		Kinds []struct{ Kind, ResolvesAs string }
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	for k := session.Step; k.Valid(); k++ {
		got := ""
		for _, c := range follow.Session(session.Event{Kind: session.EvConfirmed, Of: k, Intent: "i", Message: "m"}) {
			got = c.(follow.Resolve).By.String()
		}
		if row := data.Kinds[k-1]; row.Kind != k.String() || row.ResolvesAs != got {
			t.Errorf("%s resolves as %q; the data has %+v", k, got, row)
		}
	}
}
