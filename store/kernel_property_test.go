package store_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
	"pgregory.net/rapid"
)

// Any sequence of commands, over two sessions and headless runs, two hosts
// whose claims get lost, and bridges whose branches lose what was on them,
// gives equal answers, events and rows in memory and on SQLite, keeps every
// invariant after every command, and leaves every table as it was when refused.
func TestKernelProperty(t *testing.T) {
	dir := t.TempDir()
	files, seen := 0, map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range sequencesPerCheck {
			files++
			path := filepath.Join(dir, fmt.Sprint(files))
			// A seed is a step, and zero is none, so that a failure shrinks to the
			// steps that it needs.
			seeds := rapid.SliceOfN(rapid.Uint64(), 40, 160).Draw(t, "steps")
			k := newKernel(t, path)
			k.seen = seen
			for _, seed := range seeds {
				if k.seed = seed; seed != 0 {
					k.step()
				}
			}
			k.finish()
			os.Remove(path)
		}
	})
	t.Log(seen)
	if files < 100*sequencesPerCheck || t.Failed() {
		return // so few sequences tell nothing about what happens
	}
	for _, what := range happens {
		if seen[what] == 0 {
			t.Errorf("it never happens: %s", what)
		}
	}
}

// happens are things that the sequences are worth their time for, each so often
// that it does not fail to happen by chance.
var happens = []string{
	"request.opened", "request.candidate", "request.accepted", "request.rejected", "request.cancelled", "request.prompted", "request.used",
	"run.reattempted", "effect.applied", "effect.rejected", "effect.ambiguous",
	"assistant by respond", "checkpoint by answer", "decision by decide", "checkpoint by timeout",
	"outcome accepted", "outcome adopted", "outcome conflict", "outcome notFound", "outcome validating",
	"notified", "restarted", "interval", "reminded",
}

// rapid checks 100 times unless told otherwise.
const sequencesPerCheck = 2

var kernelSessions = [2]launch.SessionKey{"one@0123456789abcdef0123456789abcdef", "two@0123456789abcdef0123456789abcdef"}

// kernel drives two stores in step, and knows what their hosts and bridges do.
type kernel struct {
	t       *rapid.T
	memory  *bench
	sqlite  *bench
	before  store.All
	version int64 // of the store in memory, after the last command
	log     []string
	jumped  bool        // since the last command
	doubt   launch.Mono // until when the clock may be distrusted
	seed    uint64      // of the step

	n        int // commands so far; makes ids and tokens
	claims   []*held
	bridges  [2]bridge
	attempts []kernelAttempt
	granted  []grant // in this step
	acked    []launch.RunID
	acts     []store.Respond
	seen     map[string]int
	trace    trace
}

type kernelAttempt struct {
	session int
	attempt
}

// grant is an attempt that a command recorded for who had offered to make it.
type grant struct {
	session int
	send    store.Send
	token   launch.Digest
}

// bridge is one session's agent: its connection and its branch.
type bridge struct {
	epochs []uint64 // all of its connections; the last one is live
	branch []string // ids of messages on the active branch
	away   []string // and of those on another one
	onDisk int      // how many of branch are durable
	turn   string   // active turn
	opens  string   // message that was appended and has not started its turn
}

func newKernel(t *rapid.T, path string) *kernel {
	k := &kernel{t: t, memory: newBench(""), sqlite: newBench(path)}
	k.trace.init()
	t.Cleanup(func() { k.memory.close(); k.sqlite.close() })
	return k
}

func (k *kernel) finish() {
	k.compare()
	k.reopen()
	for _, id := range k.acked {
		if _, err := k.sqlite.store.Launch(bg, id); err != nil {
			k.fail("run %s was acknowledged and is gone: %v", id, err)
		}
	}
}

func (k *kernel) fail(format string, v ...any) {
	k.t.Helper()
	k.t.Fatalf("%s\nafter\n  %s", fmt.Sprintf(format, v...), strings.Join(k.log, "\n  "))
}

func (k *kernel) compare() {
	if a, b := must(k.memory.dump()), must(k.sqlite.dump()); !reflect.DeepEqual(a, b) {
		k.fail("memory and SQLite hold different rows:\n%s", strings.Join(diffDumps(a, b), "\n"))
	}
}

func (k *kernel) reopen() {
	if err := errors.Join(k.memory.reopen(), k.sqlite.reopen()); err != nil {
		k.fail("reopen: %v", err)
	}
	k.compare()
}

// do carries one command out on both stores and checks everything.
func do[A any](k *kernel, c store.Command[A]) (A, error) {
	k.n++
	if _, mono := k.memory.clock.Now(); k.jumped {
		k.jumped, k.doubt = false, mono.Add(launch.DefaultLease)
	}
	k.memory.take()
	k.sqlite.take()
	withdraw := k.offer()
	answer, err := store.Do(bg, k.memory.store, c)
	events := k.memory.take()
	k.log = append(k.log, fmt.Sprintf("%T%+v: %+v, %v", c, c, answer, err))
	answer2, err2 := store.Do(bg, k.sqlite.store, c)
	events2 := k.sqlite.take()
	switch {
	case !reflect.DeepEqual(answer, answer2) || fmt.Sprint(err) != fmt.Sprint(err2):
		k.fail("answers differ: in memory %+v, %v\non SQLite %+v, %v", answer, err, answer2, err2)
	case !reflect.DeepEqual(events, events2):
		k.fail("events differ: in memory %+v\non SQLite %+v", events, events2)
	}
	withdraw(err == nil)
	after := must(k.memory.all())
	if err != nil {
		var r *launch.Refusal
		if !errors.As(err, &r) || r.Kind == launch.ErrInternal || r.Message == "" {
			k.fail("refused as a fault: %v", err)
		}
		if r.Fence != launch.FenceNone && r.Kind != launch.ErrStale && r.Kind != launch.ErrExpired {
			k.fail("kind %s with fence %s", r.Kind, r.Fence)
		}
		if v := must(k.memory.store.Version(bg)); v != k.version || len(events) > 0 {
			k.fail("refused (%v) and changed something", err)
		}
		if k.n%8 == 0 && !reflect.DeepEqual(must(k.memory.dump()), must(k.sqlite.dump())) {
			k.fail("refused (%v) and changed on SQLite", err)
		}
		if _, isClaim := any(c).(store.Claim); isClaim && !errors.Is(err, launch.ErrEnded) && !errors.Is(err, launch.ErrNotAllowed) && !errors.Is(err, launch.ErrFull) &&
			!errors.Is(err, launch.ErrPaused) && !errors.Is(err, launch.ErrStale) {
			k.fail("nobody can claim this run any more: %v", err)
		}
	} else {
		if bad := rowInvariants(after); bad != nil {
			k.fail("%v", bad)
		}
		k.note(answer, events, after)
		if bad := k.trace.check(k, c, answer, k.before, after, events); bad != nil {
			k.fail("%v", bad)
		}
	}
	if k.n%16 == 0 {
		k.compare()
	}
	k.before, k.version = after, must(k.memory.store.Version(bg))
	return answer, err
}

// offer often leaves a try in both sessions. The returned function withdraws
// them and keeps what the command has made of them.
func (k *kernel) offer() (withdraw func(committed bool)) {
	if k.odds(50) {
		return func(bool) {}
	}
	var left [2][2]*store.Offer
	var tries [2]store.Try
	told := 0
	for s, key := range kernelSessions {
		tries[s] = store.Try{Session: key, Epoch: k.epoch(s), Token: launch.DigestOf(fmt.Appendf(nil, "offer-%d-%d", k.n, s))}
		for i, b := range []*bench{k.memory, k.sqlite} {
			left[s][i] = b.store.Offer(tries[s], func() { told++ })
		}
	}
	return func(committed bool) {
		for s := range left {
			send, made := left[s][0].Withdraw()
			send2, made2 := left[s][1].Withdraw()
			if made != made2 || !reflect.DeepEqual(send, send2) || made && !committed {
				k.fail("an offer came to %v %+v in memory, %v %+v on SQLite, committed %v", made, send, made2, send2, committed)
			}
			if made {
				told -= 2
				k.granted = append(k.granted, grant{s, send, tries[s].Token})
			}
		}
		if told != 0 {
			k.fail("%d more are told of their attempts than were made", told)
		}
	}
}

// distrusted reports whether the stores may believe in no deadline now.
func (k *kernel) distrusted() bool {
	_, mono := k.memory.clock.Now()
	return mono < k.doubt
}

// one draws a number below n from the seed of the step.
func (k *kernel) one(n int) int {
	k.seed += 0x9e3779b97f4a7c15
	z := k.seed
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) % uint64(n))
}

func (k *kernel) odds(percent int) bool { return k.one(100) >= 100-percent }

func pickOf[V any](k *kernel, from ...V) V {
	return from[k.one(len(from))]
}
