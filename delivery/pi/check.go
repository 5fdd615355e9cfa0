package pi

import (
	"encoding/hex"

	"example.com/piworkflows/launch"
)

func invalid(format string, args ...any) error {
	return launch.Refuse(launch.ErrInvalid, format, args...)
}

// short refuses a text of more than n bytes.
func short(field, s string, n int) error { return launch.CheckSize(field, len(s), n) }

// optional refuses what is neither empty nor a key.
func optional(field, s string) error {
	if s == "" {
		return nil
	}
	return launch.CheckKey(field, s)
}

func first(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkDigest(s string) error {
	var d launch.Digest
	if len(s) != 2*len(d) {
		return invalid("digest must be the SHA-256 in hex")
	}
	if _, err := hex.Decode(d[:], []byte(s)); err != nil {
		return invalid("digest must be the SHA-256 in hex")
	}
	return nil
}

func checkOffset(n int) error {
	if n < 0 || n >= MaxContent {
		return invalid("offset must be from 0 to below %d", MaxContent)
	}
	return nil
}

func checkNames(field string, names []string) error {
	if len(names) > launch.MaxList {
		return invalid("%s has %d items; the bound is %d", field, len(names), launch.MaxList)
	}
	for _, n := range names {
		if err := launch.CheckKey(field, n); err != nil {
			return err
		}
	}
	return nil
}

func (b *fetchBody) check() error { return first(checkDigest(b.Digest), checkOffset(b.Offset)) }

func (b *chunkBody) check() error {
	if len(b.Data) == 0 || len(b.Data) > maxChunk {
		return invalid("data has %d bytes; it must have 1 to %d", len(b.Data), maxChunk)
	}
	return first(checkDigest(b.Digest), checkOffset(b.Offset))
}

func (b *largeBody) check() error {
	if b.Bytes < MaxFrame || b.Bytes > MaxContent { // the line end is not counted
		return invalid("bytes must be from %d to %d", MaxFrame, MaxContent)
	}
	return checkDigest(b.Digest)
}

// check does not look at version and token, which are judged first and apart.
func (b *helloBody) check() error {
	if b.PID < 1 {
		return invalid("pid must be positive")
	}
	_, err := launch.NewSessionKey(b.Session.ID, b.Session.File)
	return first(err, short("file", b.Session.File, 8<<10), launch.CheckKey("process", b.Process), optional("reason", b.Reason))
}

func (b *turnStartedBody) check() error {
	return first(launch.CheckKey("turn", b.Turn), optional("message", b.Message))
}

func (b *turnSettledBody) check() error {
	if ends[b.End] == 0 {
		return invalid("end must be completed, aborted or error")
	}
	if b.ByPerson && b.End != "aborted" {
		return invalid("byPerson goes with the end aborted alone")
	}
	if b.Whole && (b.End != "completed" || b.ReplyEntry == "") {
		return invalid("whole goes with the end completed and a replyEntry")
	}
	return first(launch.CheckKey("turn", b.Turn), optional("stopReason", b.StopReason),
		optional("promptEntry", b.PromptEntry), optional("replyEntry", b.ReplyEntry),
		short("prompt", b.Prompt, maxText), short("reply", b.Reply, maxReply))
}

func (b *inputBody) check() error {
	return first(launch.CheckKey("key", b.Key), optional("source", b.Source))
}

func (b *changedBody) check() error  { return optional("why", b.Why) }
func (b *shutdownBody) check() error { return optional("reason", b.Reason) }

// check leaves the arguments to the tool, whose answer the model can read.
func (b *toolBody) check() error {
	return first(launch.CheckKey("key", b.Key), short("toolCallId", b.ToolCallID, launch.MaxKey))
}

func (b *reportBody) check() error {
	names := make([]string, 0, len(b.Evidence))
	for _, e := range b.Evidence {
		if !e.Present && (e.Durable || e.Replied) {
			return invalid("evidence is durable or replied only when it is present")
		}
		names = append(names, e.Message)
	}
	return checkNames("evidence", names)
}

func (b *sentBody) check() error {
	if verdicts[b.Verdict] == 0 {
		return invalid("verdict must be taken, present, occupied or refused")
	}
	return short("reason", b.Reason, launch.MaxKey)
}

func (*abortedBody) check() error  { return nil }
func (b *unableBody) check() error { return short("reason", b.Reason, launch.MaxKey) }

// What a host says is made by this package; these keep the examples honest.

func (b *welcomeBody) check() error {
	if b.Epoch == 0 || b.Version < 1 {
		return invalid("welcome needs version and epoch")
	}
	return launch.CheckKey("tool name", b.Tool.Name)
}

func (b *okBody) check() error         { return optional("own", b.Own) }
func (b *refusedBody) check() error    { return launch.CheckKey("error", b.Error) }
func (b *toolResultBody) check() error { return nil }
func (b *lookBody) check() error       { return checkNames("names", b.Names) }

func (b *sendBody) check() error {
	if b.Epoch == 0 || len(b.Details) == 0 || b.Details[0] != '{' {
		return invalid("send needs epoch and details")
	}
	return first(launch.CheckKey("message", b.Message), optional("intent", b.Intent),
		launch.CheckKey("customType", b.CustomType), checkNames("others", b.Others))
}

func (b *abortBody) check() error { return launch.CheckKey("message", b.Message) }
func (*fencedBody) check() error  { return nil }
func (b *statusBody) check() error {
	return first(launch.CheckKey("run", b.Run), launch.CheckKey("status", b.Status))
}
func (b *byeBody) check() error { return short("reason", b.Reason, maxReason) }
