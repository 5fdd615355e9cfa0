package pi

import (
	"encoding/json"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery"
	"example.com/piworkflows/internal/canon"
	"example.com/piworkflows/launch"
)

// Version of the protocol. Both sides name theirs and refuse any other.
const Version = 1

// Bounds of the protocol, in bytes.
const (
	// MaxFrame bounds a frame, its line end included.
	MaxFrame = 1 << 20
	// MaxContent bounds a frame that is sent by reference.
	MaxContent = 4 << 20
	// MaxQueue bounds what waits to be read by one peer.
	MaxQueue = 8 << 20

	maxHello  = 64 << 10
	maxChunk  = 256 << 10 // before base64
	maxText   = 8 << 10   // of a prompt in a report
	maxReply  = 128 << 10 // of a reply in a report
	maxReason = 200
)

// frame is the envelope of every message.
type frame struct {
	Kind string          `json:"kind"`
	ID   uint64          `json:"id"` // of a request, and of its answer
	Body json.RawMessage `json:"body"`
}

// What either side says.
type (
	fetchBody struct {
		Digest string `json:"digest"`
		Offset int    `json:"offset"`
	}
	chunkBody struct {
		Digest string `json:"digest"`
		Offset int    `json:"offset"`
		Data   []byte `json:"data"` // base64
	}
	largeBody struct {
		Digest string `json:"digest"`
		Bytes  int    `json:"bytes"`
	}
)

// What an extension says.
type (
	helloBody struct {
		Version int         `json:"version"`
		Token   string      `json:"token"`
		Session sessionBody `json:"session"`
		Process string      `json:"process"`
		PID     int         `json:"pid"`
		Reason  string      `json:"reason"`
		Durable bool        `json:"durable"`
		After   uint64      `json:"after,omitempty"` // epoch of its last connection
	}
	sessionBody struct {
		ID   string `json:"id"`
		File string `json:"file"`
	}
	turnStartedBody struct {
		Turn    string `json:"turn"`
		Message string `json:"message,omitempty"`
	}
	turnSettledBody struct {
		Turn        string `json:"turn"`
		End         string `json:"end"`
		ByPerson    bool   `json:"byPerson"`
		Aborted     bool   `json:"aborted"`
		StopReason  string `json:"stopReason,omitempty"`
		PromptEntry string `json:"promptEntry,omitempty"`
		ReplyEntry  string `json:"replyEntry,omitempty"`
		Prompt      string `json:"prompt,omitempty"`
		Reply       string `json:"reply,omitempty"`
		// Whole says that the reply is a finished text of the message's own turn,
		// not cut, and that the person typed nothing into it.
		Whole bool `json:"whole,omitempty"`
	}
	inputBody struct {
		Key    string `json:"key"`
		Source string `json:"source,omitempty"`
	}
	changedBody struct {
		Why string `json:"why,omitempty"`
	}
	shutdownBody struct {
		Reason string `json:"reason,omitempty"`
	}
	toolBody struct {
		Key        string `json:"key"`
		ToolCallID string `json:"toolCallId,omitempty"`
		Person     bool   `json:"person"`
		Args       string `json:"args"` // JSON text; of a person, what stands after /workflow
	}
	reportBody struct {
		Idle     bool           `json:"idle"`
		Pending  bool           `json:"pending"`
		Evidence []evidenceBody `json:"evidence"`
	}
	evidenceBody struct {
		Message string `json:"message"`
		Present bool   `json:"present"`
		Durable bool   `json:"durable"`
		Replied bool   `json:"replied"`
	}
	sentBody struct {
		Verdict string `json:"verdict"`
		Reason  string `json:"reason,omitempty"`
	}
	abortedBody struct{}
	unableBody  struct {
		Reason string `json:"reason"`
	}
)

// What a host says.
type (
	welcomeBody struct {
		Version int                  `json:"version"`
		Epoch   uint64               `json:"epoch"`
		Tool    piworkflows.ToolSpec `json:"tool"`
	}
	okBody struct {
		Own string `json:"own,omitempty"`
	}
	refusedBody struct {
		Error  string `json:"error"`
		Reason string `json:"reason"`
	}
	toolResultBody struct {
		Text    string          `json:"text"`
		Details json.RawMessage `json:"details,omitempty"`
		IsError bool            `json:"isError"`
	}
	lookBody struct {
		Names []string `json:"names"`
	}
	sendBody struct {
		Message     string          `json:"message"`
		Others      []string        `json:"others"`
		Intent      string          `json:"intent,omitempty"`
		Epoch       uint64          `json:"epoch"`
		Deadline    int64           `json:"deadline"` // milliseconds since 1970, 0 is none
		TriggerTurn bool            `json:"triggerTurn"`
		CustomType  string          `json:"customType"`
		Content     string          `json:"content"`
		Details     json.RawMessage `json:"details"`
	}
	abortBody struct {
		Message string `json:"message"`
	}
	fencedBody struct{}
	statusBody struct {
		Run    string `json:"run"`
		Status string `json:"status"`
	}
	byeBody struct {
		Reason string `json:"reason"`
		Final  bool   `json:"final,omitempty"` // to connect again in the same way is of no use
	}
)

// body is a message's content. check refuses what strict decoding lets pass.
type body interface {
	kind() string
	check() error
}

func (*fetchBody) kind() string       { return "fetch" }
func (*chunkBody) kind() string       { return "chunk" }
func (*largeBody) kind() string       { return "large" }
func (*helloBody) kind() string       { return "hello" }
func (*turnStartedBody) kind() string { return "turnStarted" }
func (*turnSettledBody) kind() string { return "turnSettled" }
func (*inputBody) kind() string       { return "input" }
func (*changedBody) kind() string     { return "changed" }
func (*shutdownBody) kind() string    { return "shutdown" }
func (*toolBody) kind() string        { return "tool" }
func (*reportBody) kind() string      { return "report" }
func (*sentBody) kind() string        { return "sent" }
func (*abortedBody) kind() string     { return "aborted" }
func (*unableBody) kind() string      { return "unable" }
func (*welcomeBody) kind() string     { return "welcome" }
func (*okBody) kind() string          { return "ok" }
func (*refusedBody) kind() string     { return "refused" }
func (*toolResultBody) kind() string  { return "toolResult" }
func (*lookBody) kind() string        { return "look" }
func (*sendBody) kind() string        { return "send" }
func (*abortBody) kind() string       { return "abort" }
func (*fencedBody) kind() string      { return "fenced" }
func (*statusBody) kind() string      { return "status" }
func (*byeBody) kind() string         { return "bye" }

// newBody makes an empty message of a kind.
func newBody(from side, kind string) body {
	for _, make := range bodies[from] {
		if b := make(); b.kind() == kind {
			return b
		}
	}
	return nil
}

// side is who says a message.
type side uint8

const (
	_ side = iota
	fromExtension
	fromHost
)

var bodies = map[side][]func() body{
	fromExtension: {
		func() body { return new(helloBody) }, func() body { return new(turnStartedBody) },
		func() body { return new(turnSettledBody) }, func() body { return new(inputBody) },
		func() body { return new(changedBody) }, func() body { return new(shutdownBody) },
		func() body { return new(toolBody) }, func() body { return new(reportBody) },
		func() body { return new(sentBody) }, func() body { return new(abortedBody) },
		func() body { return new(unableBody) }, func() body { return new(fetchBody) },
		func() body { return new(chunkBody) }, func() body { return new(largeBody) },
	},
	fromHost: {
		func() body { return new(welcomeBody) }, func() body { return new(okBody) },
		func() body { return new(refusedBody) }, func() body { return new(toolResultBody) },
		func() body { return new(lookBody) }, func() body { return new(sendBody) },
		func() body { return new(abortBody) }, func() body { return new(fencedBody) },
		func() body { return new(statusBody) }, func() body { return new(byeBody) },
		func() body { return new(fetchBody) }, func() body { return new(chunkBody) },
		func() body { return new(largeBody) },
	},
}

// decode reads one frame, strictly (rule pi/strict).
func decode(from side, line []byte, maxBytes int) (id uint64, b body, err error) {
	var f frame
	if err := canon.Decode(line, maxBytes, "frame", &f); err != nil {
		return 0, nil, err
	}
	b = newBody(from, f.Kind)
	if b == nil {
		return 0, nil, launch.Refuse(launch.ErrInvalid, "frame has a kind that this side does not take")
	}
	if err := canon.Decode(f.Body, maxBytes, b.kind(), b); err != nil {
		return 0, nil, err
	}
	return f.ID, b, b.check()
}

// encode makes a frame with its line end.
func encode(id uint64, b body) ([]byte, error) {
	line, err := json.Marshal(struct { // frame, with a body that is not encoded yet
		Kind string `json:"kind"`
		ID   uint64 `json:"id"`
		Body body   `json:"body"`
	}{b.kind(), id, b})
	if err != nil {
		return nil, launch.Refuse(launch.ErrInternal, "a frame cannot be encoded")
	}
	if len(line) >= MaxContent {
		return nil, launch.Refuse(launch.ErrInvalid, "a %s has %d bytes; the bound is %d", b.kind(), len(line), MaxContent)
	}
	return append(line, '\n'), nil
}

var ends = map[string]delivery.End{"completed": delivery.Completed, "aborted": delivery.Aborted, "error": delivery.Error}

var verdicts = map[string]delivery.Verdict{"taken": delivery.Taken, "present": delivery.Present,
	"occupied": delivery.Occupied, "refused": delivery.Refused}

var ownerships = map[delivery.Ownership]string{delivery.None: "none", delivery.Owned: "active", delivery.Settled: "settled"}
