package launch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/launch/launchtest"
	"github.com/google/go-cmp/cmp"
)

// The fixed facts of testdata/contract/launch-commands.json.
const (
	lease     = 30 * time.Second
	wall      = launch.Time(1_700_000_000_000_000_000)
	runID     = launch.RunID("demo-01HZZZZZZZZZZZZZZZZZZZZZZZ")
	sessionID = launch.SessionKey("header@0123456789abcdef0123456789abcdef")
)

var (
	tokenA, tokenB = launch.DigestOf([]byte("A")), launch.DigestOf([]byte("B"))
	pinned, other  = launch.DigestOf([]byte("pinned")), launch.DigestOf([]byte("other"))
	nodeFailed     = launch.SafeError{Code: "node_failed", Message: "node draft failed; correct it"}
	notActivated   = launch.SafeError{Code: "activation_failed", Message: "tool missing; install it"}
	unreadable     = launch.SafeError{Code: "record_unreadable", Message: "record does not decode; start again"}
)

type situation struct {
	Name, State     string
	Record          bool
	Paused          bool
	HostPause       bool
	Park, Attention string
	Code            launch.Code
	Expiry          time.Duration
	Distrust        bool
	Expiries        uint8
	Strikes         uint8
}

type answer struct {
	To, Park, Attention string
	Code                launch.Code
	Paused, HostPause   bool
	Refused, Fence      string
}

// claimed is the claim that the situations are written for.
func claimed(expiry launch.Time) launch.Claim {
	return launch.Claim{Runner: "host-1", Token: tokenA, Expiry: expiry, Lease: lease}
}

func (s situation) build() (launch.Launch, launch.Now) {
	l := launch.Launch{
		ID: runID, Workflow: "demo", Source: "src", Digest: pinned, Mode: launch.Interactive,
		Session: sessionID, Content: launch.DigestOf([]byte("{}")), Chain: runID,
		State: named(s.State, launch.States()), Paused: s.Paused, HostPause: s.HostPause, Generation: 7, Activations: 7,
		Park:      named(s.Park, []launch.Park{launch.NotParked, launch.ParkDue, launch.ParkWaiting, launch.ParkPaused, launch.ParkAttention}),
		Attention: named(s.Attention, []launch.Attention{launch.NoAttention, launch.NoProgress, launch.SourceChanged, launch.EffectAmbiguous, launch.PromptsLost}),
		Expiries:  s.Expiries, Strikes: s.Strikes, Progress: 3, Created: wall - 100, Updated: wall - 50,
	}
	if l.State.Claimed() {
		l.Claim = claimed(wall.Add(s.Expiry))
	}
	if l.State == launch.Queued || l.State == launch.Starting && !s.Record {
		l.Input = []byte("{}")
	}
	if l.State == launch.Queued && !s.Paused || l.Park == launch.ParkDue {
		l.Ready = wall - 60
	}
	if s.Record {
		l.Started = wall - 80
	}
	if l.State.Terminal() {
		l.Finished = wall - 50
	}
	if s.Code != "" {
		l.Error = launch.SafeError{Code: s.Code, Message: "it failed; correct it"}
	}
	return l, launch.Now{Wall: wall, Distrust: s.Distrust}
}

func named[T fmt.Stringer](name string, all []T) T {
	for _, v := range all {
		if v.String() == name {
			return v
		}
	}
	panic("no such name: " + name)
}

type namedCommand struct {
	name string
	c    launch.Command
}

// everyCommand lists the commands of the contract table under their names.
func everyCommand() []namedCommand {
	var all []namedCommand
	add := func(name string, c launch.Command) { all = append(all, namedCommand{name, c}) }

	own := launch.Authority{Runner: "host-1", Token: tokenA, Generation: 7}
	foreign := []struct {
		name string
		a    launch.Authority
	}{
		{"/no-authority", launch.Authority{}},
		{"/no-token", launch.Authority{Runner: "host-1", Generation: 7}},
		{"/other-owner", launch.Authority{Runner: "host-2", Token: tokenA, Generation: 7}},
		{"/other-token", launch.Authority{Runner: "host-1", Token: tokenB, Generation: 7}},
		{"/other-generation", launch.Authority{Runner: "host-1", Token: tokenA, Generation: 8}},
		{"/earlier-of-host", launch.Authority{Runner: "host-1", Token: tokenB, Generation: 6}},
		{"/replaced", launch.Authority{Runner: "host-2", Token: tokenB, Generation: 6}},
	}
	records := []struct {
		name string
		r    launch.Record
	}{
		{"none", launch.Record{}},
		{"running", launch.Record{Status: launch.RecordRunning, Progress: 3}},
		{"waiting", launch.Record{Status: launch.RecordWaiting, Progress: 3}},
		{"attention", launch.Record{Status: launch.RecordAttention, Progress: 3}},
		{"done", launch.Record{Status: launch.RecordDone, Progress: 3}},
		{"failed", launch.Record{Status: launch.RecordFailed, Progress: 3, Error: nodeFailed}},
		{"cancelled", launch.Record{Status: launch.RecordCancelled, Progress: 3}},
		{"unreadable", launch.Record{Status: launch.RecordUnreadable}},
	}

	byHost2 := launch.Authority{Runner: "host-2", Token: tokenB}
	add("claim", launch.ClaimCommand{Authority: byHost2, Lease: lease, Digest: pinned, Progress: 3})
	add("claim/again", launch.ClaimCommand{Authority: own, Lease: lease, Digest: pinned, Progress: 3})
	add("claim/other-definition", launch.ClaimCommand{Authority: byHost2, Lease: lease, Digest: other, Progress: 3})
	add("claim/no-runner", launch.ClaimCommand{Authority: launch.Authority{Token: tokenB}, Lease: lease, Digest: pinned, Progress: 3})
	add("claim/no-token", launch.ClaimCommand{Authority: launch.Authority{Runner: "host-2"}, Lease: lease, Digest: pinned, Progress: 3})

	for _, w := range []struct {
		name, canonical string
		make            func(launch.Authority) launch.Command
	}{
		{"start", "", func(a launch.Authority) launch.Command { return launch.StartCommand{Authority: a} }},
		{"renew", "", func(a launch.Authority) launch.Command { return launch.RenewCommand{Authority: a, Lease: lease} }},
		{"release", "/running", func(a launch.Authority) launch.Command {
			return launch.ReleaseCommand{Authority: a, Record: records[1].r}
		}},
		{"park", "/due", func(a launch.Authority) launch.Command {
			return launch.ParkCommand{Authority: a, Why: launch.ParkDue}
		}},
		{"finish", "", func(a launch.Authority) launch.Command { return launch.FinishCommand{Authority: a} }},
		{"fail", "/node_failed", func(a launch.Authority) launch.Command {
			return launch.FailCommand{Authority: a, Error: nodeFailed}
		}},
	} {
		add(w.name+w.canonical, w.make(own))
		for _, f := range foreign {
			add(w.name+f.name, w.make(f.a))
		}
	}
	for _, r := range records {
		if r.name != "running" {
			add("release/"+r.name, launch.ReleaseCommand{Authority: own, Record: r.r})
		}
		add("recover/"+r.name, launch.RecoverCommand{Generation: 7, Record: r.r})
	}
	add("recover/progress", launch.RecoverCommand{Generation: 7, Record: launch.Record{Status: launch.RecordRunning, Progress: 4}})
	add("recover/other-generation", launch.RecoverCommand{Generation: 6, Record: records[1].r})

	add("park/waiting", launch.ParkCommand{Authority: own, Why: launch.ParkWaiting})
	add("park/paused", launch.ParkCommand{Authority: own, Why: launch.ParkPaused})
	add("park/attention", launch.ParkCommand{Authority: own, Why: launch.ParkAttention, Attention: launch.EffectAmbiguous})
	add("park/attention-without-reason", launch.ParkCommand{Authority: own, Why: launch.ParkAttention})
	add("park/none", launch.ParkCommand{Authority: own})

	for a, name := range []string{"nobody", "model", "person", "host", "worker", "timer"} {
		add("pause/"+name, launch.PauseCommand{Actor: launch.Actor(a)})
		add("resume/"+name, launch.ResumeCommand{Actor: launch.Actor(a)})
		add("cancel/"+name, launch.CancelCommand{Actor: launch.Actor(a)})
	}
	add("resume/person-waiting", launch.ResumeCommand{Actor: launch.Person, Waiting: true})
	add("wake", launch.WakeCommand{})
	add("wake/answered", launch.WakeCommand{Answered: true})
	add("attend/effect_ambiguous", launch.AttendCommand{Attention: launch.EffectAmbiguous})
	add("attend/prompts_lost", launch.AttendCommand{Attention: launch.PromptsLost})
	add("attend/none", launch.AttendCommand{})

	add("fail/activation_failed", launch.FailCommand{Authority: own, Error: notActivated})
	add("fail/record_unreadable", launch.FailCommand{Authority: own, Error: unreadable})
	add("fail/no-error", launch.FailCommand{Authority: own})
	add("fail/unknown-code", launch.FailCommand{Authority: own, Error: launch.SafeError{Code: "oops", Message: "x"}})
	add("settle/done", launch.SettleCommand{})
	add("settle/node_failed", launch.SettleCommand{Error: nodeFailed})
	add("settle/activation_failed", launch.SettleCommand{Error: notActivated})
	return all
}

func matches(pattern, name string) bool {
	if p, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, p)
	}
	if p, ok := strings.CutPrefix(pattern, "*"); ok {
		return strings.HasSuffix(name, p)
	}
	return pattern == name
}

// TestEveryCommandInEverySituation walks the whole contract table.
func TestEveryCommandInEverySituation(t *testing.T) {
	var table struct {
		Rules, About          []string
		Situations            []situation
		Authorities, Commands map[string]string
		Blocks                []struct {
			Situations []string
			Why        string
			Rows       []struct {
				On []string
				answer
			}
		}
	}
	contract(t, "launch-commands.json", &table)

	commands := everyCommand()
	blocks := map[string]int{}
	for i, b := range table.Blocks {
		for _, s := range b.Situations {
			if _, twice := blocks[s]; twice {
				t.Errorf("situation %s stands in two blocks", s)
			}
			blocks[s] = i
		}
	}
	used := map[string]bool{}                                     // rows that decided something
	taken := map[launch.CommandKind]map[[2]launch.State]bool{}    // edges seen
	seen := map[launch.State]bool{}                               // states covered
	kinds := map[launch.CommandKind]bool{launch.CmdReserve: true} // commands covered
	for _, s := range table.Situations {
		at, ok := blocks[s.Name]
		if !ok {
			t.Errorf("situation %s stands in no block", s.Name)
			continue
		}
		block := table.Blocks[at]
		before, now := s.build()
		seen[before.State] = true
		if err := launchtest.CheckRows([]launch.Launch{before}); err != nil {
			t.Fatalf("%s: the situation itself is impossible: %v", s.Name, err)
		}
	command:
		for _, c := range commands {
			kinds[c.c.Kind()] = true
			for i, row := range block.Rows {
				for _, p := range row.On {
					if !matches(p, c.name) {
						continue
					}
					used[fmt.Sprint(at, "/", i, "/", p)] = true
					entry := apply(before, c.c, now)
					if d := cmp.Diff(row.answer, told(entry)); d != "" {
						t.Errorf("%s + %s: %s (-contract +code):\n%s%v", s.Name, c.name, block.Why, d, entry.Err)
					}
					for _, e := range entry.Events {
						if e.From != e.To {
							if taken[c.c.Kind()] == nil {
								taken[c.c.Kind()] = map[[2]launch.State]bool{}
							}
							taken[c.c.Kind()][[2]launch.State{e.From, e.To}] = true
						}
					}
					if err := (launchtest.Trace{entry}).Check(); err != nil {
						t.Errorf("%s + %s: %v", s.Name, c.name, err)
					}
					if err := launchtest.CheckRows([]launch.Launch{entry.After}); err != nil {
						t.Errorf("%s + %s: %v", s.Name, c.name, err)
					}
					continue command
				}
			}
			t.Errorf("%s + %s: the contract has no answer", s.Name, c.name)
		}
	}
	for at, b := range table.Blocks {
		for i, row := range b.Rows {
			for _, p := range row.On {
				if !used[fmt.Sprint(at, "/", i, "/", p)] {
					t.Errorf("block %v: %q decides nothing", b.Situations, p)
				}
			}
		}
	}
	for _, s := range launch.States() {
		if !seen[s] {
			t.Errorf("no situation has state %s", s)
		}
	}
	for k := launch.CmdReserve; k.String() != "unknown"; k++ {
		if !kinds[k] {
			t.Errorf("no command is a %s", k)
		}
	}
	// Every edge is taken by every command that the table names for it, and
	// by no other.
	for _, e := range launch.Table() {
		for _, c := range e.By {
			if c != launch.CmdReserve && !taken[c][[2]launch.State{e.From, e.To}] {
				t.Errorf("the table lists %s -> %s by %s, but nothing takes it", e.From, e.To, c)
			}
		}
	}
}

// apply applies c and records it, checking that the argument stays as it is.
func apply(l launch.Launch, c launch.Command, now launch.Now) launchtest.Entry {
	kept := l
	kept.Input = append([]byte(nil), l.Input...)
	after, events, err := launch.Apply(l, c, now)
	if !cmp.Equal(kept.Input, append([]byte(nil), l.Input...)) {
		panic("Apply changed the input of its argument")
	}
	return launchtest.Entry{Before: l, Command: c, Now: now, After: after, Events: events, Err: err}
}

// told is what the caller of a command learns, in the contract's words.
func told(e launchtest.Entry) answer {
	if e.Err != nil {
		var r *launch.Refusal
		if !errors.As(e.Err, &r) {
			return answer{Refused: "not a refusal: " + e.Err.Error()}
		}
		return answer{Refused: r.Kind.String(), Fence: r.Fence.String()}
	}
	l := e.After
	return answer{To: l.State.String(), Park: l.Park.String(), Attention: l.Attention.String(), Code: l.Error.Code, Paused: l.Paused, HostPause: l.HostPause}
}
