package deliverytest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"example.com/piworkflows/clock"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/launch"
)

// Options say how a process behaves. The zero value is a process without tools
// whose model always answers "ok".
type Options struct {
	// Model answers the requests. nil answers "ok".
	Model func(context.Context, Turn) Reply
	// Tools are what the model can call, by name.
	Tools map[string]Tool
	// Clock tells when a send's deadline has passed and when typed input counts
	// as forgotten. Without one neither ever happens.
	Clock clock.Clock
	// Process names the process. Empty numbers it within its file.
	Process string
	// NoDurability makes a bridge that cannot tell what is on disk.
	NoDurability bool
	// RPC makes a Pi without a terminal: an abort leaves hidden messages in
	// their queue (see [Process.SendMessage]), and the next run takes them.
	RPC bool
	// Careless makes a broken bridge that sends without looking whether the
	// session is free.
	Careless bool
}

// Tool is code that runs inside a turn. Its context ends when the turn is
// aborted or the process dies.
type Tool func(ctx context.Context, c Call) string

// Call is one tool call.
type Call struct {
	Tool string
	Args json.RawMessage
	// Terminate ends the run after the result, without another request.
	Terminate bool
	// ID and Turn are filled in when the call is made. Ids repeat in other
	// turns, as some providers' do.
	ID   string
	Turn string
}

// Turn is what the model is told with one request.
type Turn struct {
	Key     string // the turn's key
	Message string // id of the message that opened it, or empty
	Opener  Entry  // what opened it
	Request int    // n-th request of the turn, from 1
	Try     int    // from 1; above 1 after a provider failure
	Context []Entry
}

// Reply is what the model does.
type Reply struct {
	Text  string
	Calls []Call
	// Fail is a provider failure. Pi asks again, three times at most; then the
	// turn ends with an error.
	Fail bool
	// Escape has the person stop the turn while this reply streams.
	Escape bool
}

// Process is one running Pi. It is safe for concurrent use.
type Process struct {
	opt    Options
	name   string
	ctx    context.Context // ends with the process
	kill   context.CancelFunc
	sender chan struct{} // held by who sends reports

	mu      sync.Mutex
	dead    bool
	file    *File
	entries []Entry // what this process knows, in the order in which it knew it
	unsaved []Entry // on no disk, because the session has no assistant message yet
	leaf    string
	made    int

	run        *run // accepted or under way
	settling   bool // its settled handlers run: idle, and yet not free
	starts     []*run
	hidden     []Entry  // sent while busy: shown by nothing
	steer      []string // what the person typed during the run
	compacting bool
	typed      *string
	typedAt    launch.Time
	turns      int
	holds      []*Hold

	link    *bridge
	moved   chan struct{} // closed, and made anew, when a report is made or the link lost
	away    bool          // fenced: stays away until a person acts
	stopped bool          // the person stopped a turn, and the host may not know
	out     []report
	faults  faults
}

// Start opens the file. Several processes may have one file open; each appends
// to it and sees only its own entries and those that it found. A process that
// starts continues nothing.
func (f *File) Start(opt Options) *Process {
	f.mu.Lock()
	f.pids++
	name := fmt.Sprintf("%s:pid-%d", f.header, f.pids)
	f.mu.Unlock()
	if opt.Process != "" {
		name = opt.Process
	}
	p := &Process{opt: opt, name: name, file: f, sender: make(chan struct{}, 1), moved: make(chan struct{}), entries: f.Entries()}
	p.ctx, p.kill = context.WithCancel(context.Background())
	if n := len(p.entries); n > 0 {
		p.leaf = p.entries[n-1].ID
	}
	return p
}

// Name returns what tells the process from all others.
func (p *Process) Name() string { return p.name }

// File returns the session file that the process has open.
func (p *Process) File() *File {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.file
}

// Branch returns the active branch in memory.
func (p *Process) Branch() []Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.branch()
}

// Idle is Pi's own isIdle: false from the moment a send is accepted, but true
// in settled handlers although a turn may be about to start.
func (p *Process) Idle() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.idle()
}

// Wait returns when no run is under way or about to start, or when the process
// is dead.
func (p *Process) Wait() {
	for {
		p.mu.Lock()
		r, dead := p.run, p.dead
		p.mu.Unlock()
		if r == nil {
			return
		}
		<-r.done
		if dead {
			return
		}
	}
}

// Kill ends the process at once, as kill -9 does: what is not on disk is lost
// and the connection drops without a word. It may be called in a tool.
func (p *Process) Kill() {
	if b := p.die(); b != nil {
		b.r.Close()
	}
}

// Shutdown ends the process politely: it aborts the run, announces the end and
// exits. Like all that follows it is not called in a tool.
func (p *Process) Shutdown() {
	p.leave()
	p.Kill()
}

// Reload stops the run and starts the extension anew in the same session.
// Reports that were not confirmed are kept.
func (p *Process) Reload() { p.leave() }

// Clone copies the active branch into a new session and switches to it.
func (p *Process) Clone(headerID, path string) *File {
	p.mu.Lock()
	leaf := p.leaf
	p.mu.Unlock()
	return p.Fork(leaf, headerID, path)
}

// Fork copies the branch down to the entry, ids and details included, into a
// new session and switches this process to it. The old connection ends with a
// shutdown; the new session has to be connected.
func (p *Process) Fork(entry, headerID, file string) *File {
	f := NewFile(headerID, file)
	p.leave()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.entries, p.unsaved, p.leaf, p.file, p.out = path(p.entries, entry), nil, entry, f, nil
	if hasAssistant(p.entries) {
		f.write(p.entries...)
	} else {
		p.unsaved = slices.Clone(p.entries)
	}
	return f
}

// leave stops the run, says that the session shuts down, and forgets what an
// extension instance knows.
func (p *Process) leave() {
	for {
		p.mu.Lock()
		r, b := p.run, p.link
		p.dropStarts()
		if r == nil || p.dead {
			p.unlink()
			p.away, p.stopped, p.typed = false, false, nil
			p.mu.Unlock()
			if b != nil {
				if err := b.r.Shutdown(p.ctx); err != nil {
					p.File().note(func(j *journal) { j.faults = append(j.faults, err) })
				}
			}
			return
		}
		p.abort(r, false)
		p.mu.Unlock()
		<-r.done
	}
}

func (p *Process) die() *bridge {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.link
	p.dead = true
	p.unlink()
	p.kill()
	p.dropStarts()
	return b
}

func (p *Process) dropStarts() {
	for _, r := range p.starts {
		r.cancel()
		close(r.done)
	}
	p.starts = nil
}

func (p *Process) idle() bool { return (p.run == nil || p.settling) && !p.compacting }

func (p *Process) branch() []Entry { return path(p.entries, p.leaf) }

// append puts an entry on the branch, and on disk as soon as the session has an
// assistant message.
func (p *Process) append(e Entry) {
	p.made++
	e.ID, e.Parent = fmt.Sprintf("%s/e%d", p.name, p.made), p.leaf
	fresh := !hasAssistant(p.entries)
	p.entries, p.leaf = append(p.entries, e), e.ID
	if fresh && e.Role != Assistant {
		p.unsaved = append(p.unsaved, e)
		return
	}
	p.file.write(append(p.unsaved, e)...)
	p.unsaved = nil
}

// now returns the wall clock's time, or 0 without a clock.
func (p *Process) now() launch.Time {
	if p.opt.Clock == nil {
		return 0
	}
	wall, _ := p.opt.Clock.Now()
	return wall
}

// entryOf is the entry that a message makes.
func entryOf(m delivery.Message) Entry {
	return Entry{Role: Custom, Text: m.Content, CustomType: m.CustomType, Details: slices.Clone(m.Details)}
}
