package deliverytest

import (
	"encoding/json"
	"slices"
	"sync"

	"example.com/piworkflows/launch"
)

// Role is what an entry of a session file is.
type Role uint8

// The roles.
const (
	_          Role = iota
	User            // a person's message
	Assistant       // a model's message; ended as its Stop says
	ToolResult      // what a tool returned
	Custom          // a message that an extension sent
	Compaction      // a summary; what it summarises stays on the branch
)

// String returns the wire name.
func (r Role) String() string {
	return [...]string{"none", "user", "assistant", "toolResult", "custom", "compaction"}[min(int(r), 5)]
}

// Stop is how an assistant message ended.
type Stop uint8

// The stop reasons.
const (
	_        Stop = iota
	Finished      // the model had said everything
	ToolUse       // tool calls follow
	Cut           // someone aborted it
	Failed        // the provider failed
)

// String returns the wire name.
func (s Stop) String() string {
	return [...]string{"none", "stop", "toolUse", "aborted", "error"}[min(int(s), 4)]
}

// Entry is one line of a session file. Parent makes the file a tree.
type Entry struct {
	ID, Parent string
	Role       Role
	Text       string
	CustomType string
	Details    json.RawMessage
	Stop       Stop   // of an assistant message
	Calls      []Call // of an assistant message
	CallID     string // of a tool result
}

// MessageID returns the messageId of a custom message's details, or "".
func (e Entry) MessageID() string { return e.details().Message }

// IntentID returns the turnIntentId of a custom message's details, or "".
func (e Entry) IntentID() string { return e.details().Intent }

type marks struct {
	Message string `json:"messageId"`
	Intent  string `json:"turnIntentId"`
}

func (e Entry) details() (d marks) {
	if e.Role != Custom || json.Unmarshal(e.Details, &d) != nil {
		return marks{}
	}
	return d
}

// File is one session file: what is on disk, and so what survives the death of
// the processes that opened it. Nothing locks it.
type File struct {
	header, path string
	key          launch.SessionKey

	mu       sync.Mutex
	lines    []Entry
	pids     int
	onAppend func(Entry) // of a file that is kept on the real disk; nil: none
	log      journal
}

// NewFile returns an empty session file. The path is absolute and is only a
// name. It panics if the two make no valid session key.
func NewFile(headerID, path string) *File {
	key, err := launch.NewSessionKey(headerID, path)
	if err != nil {
		panic(err)
	}
	return &File{header: headerID, path: path, key: key}
}

// Key returns the session's key.
func (f *File) Key() launch.SessionKey { return f.key }

// Entries returns the lines on disk in file order.
func (f *File) Entries() []Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

// Branch returns the branch that a process would find active on opening the
// file: the one that ends with the last line.
func (f *File) Branch() []Entry {
	lines := f.Entries()
	if len(lines) == 0 {
		return nil
	}
	return path(lines, lines[len(lines)-1].ID)
}

// Paths returns every path from a root to a leaf.
func (f *File) Paths() [][]Entry {
	lines := f.Entries()
	parents := map[string]bool{}
	for _, e := range lines {
		parents[e.Parent] = true
	}
	var all [][]Entry
	for _, e := range lines {
		if !parents[e.ID] {
			all = append(all, path(lines, e.ID))
		}
	}
	return all
}

// Count returns how often the message is on the active branch.
func (f *File) Count(messageID string) int { return count(f.Branch(), messageID) }

// MaxCount returns how often the message is on the branch path that holds it
// most often. More than one is a message delivered twice.
func (f *File) MaxCount(messageID string) int {
	most := 0
	for _, p := range f.Paths() {
		most = max(most, count(p, messageID))
	}
	return most
}

// Tear loses the last line, as a death in the middle of its write does: the
// next open drops a torn line. Call it when no process has the file open.
func (f *File) Tear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = f.lines[:max(len(f.lines)-1, 0)]
}

func (f *File) write(entries ...Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range entries {
		if f.onAppend != nil {
			f.onAppend(e)
		}
		f.lines = append(f.lines, e)
	}
}

// path returns the entries from the root to the leaf.
func path(entries []Entry, leaf string) []Entry {
	byID := make(map[string]Entry, len(entries))
	for _, e := range entries {
		byID[e.ID] = e
	}
	var up []Entry
	for e, ok := byID[leaf]; ok; e, ok = byID[e.Parent] {
		up = append(up, e)
	}
	slices.Reverse(up)
	return up
}

func count(branch []Entry, messageID string) (n int) {
	for _, e := range branch {
		if messageID != "" && e.MessageID() == messageID {
			n++
		}
	}
	return n
}

func hasAssistant(entries []Entry) bool {
	return slices.ContainsFunc(entries, func(e Entry) bool { return e.Role == Assistant })
}

// seen returns a branch as the model is shown it: a tool call that has no
// result, because the process died in it, is answered with a note.
func seen(branch []Entry) []Entry {
	var out []Entry
	for i := 0; i < len(branch); {
		e := branch[i]
		out = append(out, e)
		calls := e.Calls
		for i++; i < len(branch) && branch[i].Role == ToolResult; i++ {
			out = append(out, branch[i])
			id := branch[i].CallID
			calls = slices.DeleteFunc(slices.Clone(calls), func(c Call) bool { return c.ID == id })
		}
		for _, c := range calls {
			out = append(out, Entry{Role: ToolResult, CallID: c.ID, Text: NoResult})
		}
	}
	return out
}

// NoResult is what the model is told of a tool call whose process died in it.
const NoResult = "No result provided"
