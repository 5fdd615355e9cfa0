package deliverytest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// Run checks a bridge against every rule, one sub-test for each. The factory is
// called once per rule. A failure states the rule, what happened, and what the
// author of the bridge should do. Rules that need what the agent cannot do are
// skipped by name.
func Run(t *testing.T, f Factory) {
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) { r.Check(t, f) })
	}
}

// Rules returns the rules in the order in which [Run] checks them.
func Rules() []Rule {
	var all []Rule
	for _, some := range [][]Rule{connectRules, sendRules, presentRules, turnRules, reportRules, evidenceRules, endRules} {
		all = append(all, some...)
	}
	return all
}

// Rule is one thing that a bridge can get wrong.
type Rule struct {
	Name  string  // stable, as "send/deadline"
	Says  string  // what a bridge has to do, and why
	Fix   string  // where to look when it does not
	Needs Ability // without them the rule is skipped
	check func(*kit)
}

// Check checks one rule on a fresh session. It is for tests of the kit, for runs
// in a testing/synctest bubble and for rules in parallel; others call [Run].
func (r Rule) Check(tb TB, f Factory) {
	tb.Helper()
	k := newKit(tb, r)
	k.Subject = f(tb, Host{Connect: k.connect, Model: k.model})
	if k.Patience == 0 {
		k.Patience = 10 * time.Second
	}
	if k.Quiet == 0 {
		k.Quiet = 50 * time.Millisecond
	}
	if missing := r.Needs & k.Cannot; missing != 0 {
		tb.Skipf("rule %s: not checked, because the agent has no %v", r.Name, missing)
	}
	tb.Cleanup(k.close) // before the factory's own: nothing may wait for the model then
	r.check(k)
}

// TB is the part of testing.TB that the kit uses.
type TB interface {
	Helper()
	Name() string
	TempDir() string
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any) // does not return
	Skipf(format string, args ...any)  // does not return
}

// Factory makes a fresh session that is not started, of an agent that connects
// to the host. It registers what has to be cleaned up with tb; that is called
// with the agent in any state.
type Factory func(tb TB, host Host) Subject

// Host is what the agent under test is connected to. The kit plays it.
type Host struct {
	// Connect registers the bridge, as delivery.Coordinator.Connect does. When
	// it fails the host is away, and the bridge tries again.
	Connect Bind
	// Model answers one request of the agent's model. It returns when the kit
	// lets it, or with an error when the context ends: the request was aborted.
	// Any other error is a failure of the provider. The model never calls tools.
	Model func(ctx context.Context) (text string, err error)
}

// Subject is what a factory makes.
type Subject struct {
	Agent
	// Cannot is what the agent or its bridge cannot do.
	Cannot Ability
	// Patience is how long the kit waits for what has to happen; 0 is 10 s.
	Patience time.Duration
	// Quiet is how long the kit watches for what must not happen where no later
	// event tells: that a fenced bridge connects again. Give it a bit more than
	// the bridge's first pause before it reconnects; 0 is 50 ms.
	Quiet time.Duration
}

// Agent drives the agent under test. The kit calls one method at a time. Each
// returns as soon as the thing is done, not when the turn that it begins or ends
// is over. What the agent cannot do is never called.
type Agent interface {
	// Start opens the session in a new process. The bridge connects by itself,
	// also later whenever the connection is lost.
	Start() error
	// Stop ends the process politely: the session announces its end.
	Stop() error
	// Kill ends the process as SIGKILL does.
	Kill() error
	// Prompt submits a text as a person does. During a turn it waits for the
	// model's next step.
	Prompt(text string) error
	// Escape stops the turn under way as a person does.
	Escape() error
	// Rewind makes the parent of that workflow message's entry the leaf of the
	// active branch. The entry stays in the session.
	Rewind(message string) error
	// Fork copies the active branch into a new session and goes on there, in the
	// same process.
	Fork() error
	// Branch returns the active branch as the process has it, from the root on.
	// The kit reads Role, Text, CustomType and Details.
	Branch() ([]Entry, error)
	// Disk returns what a process would find that opened the session now, also
	// when none is running.
	Disk() ([]Entry, error)
}

// Ability is a set of things that not every agent can do.
type Ability uint16

// The abilities.
const (
	Durability Ability = 1 << iota // the bridge can tell what is on disk
	Restart                        // a new process goes on with the session
	Kill                           // the process can be killed
	Escape                         // a person can stop a turn
	Queue                          // a person can prompt during a turn
	Retry                          // the agent asks again after a provider failure
	Rewind                         // the active branch can change
	Fork                           // a session can be copied
	Reconnect                      // the bridge survives the loss of its connection
	Replies                        // the bridge reports what a turn said
)

// String returns the names, joined by "+".
func (a Ability) String() string {
	var names []string
	for i, name := range []string{"durability", "restart", "kill", "escape", "queue", "retry", "rewind", "fork", "reconnect", "replies"} {
		if a&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, "+")
}

// failf ends the check.
func (k *kit) failf(format string, args ...any) {
	k.tb.Helper()
	k.tb.Fatalf("rule %s: %s\nwhat happened: %s\nwhat to do: %s\nthe host saw:\n%s",
		k.rule.Name, k.rule.Says, fmt.Sprintf(format, args...), k.rule.Fix, k.story())
}
