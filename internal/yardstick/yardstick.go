package yardstick

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"zombiezen.com/go/sqlite"
)

// CommandsPerLifecycle is how many durable commands [Yardstick.Lifecycle] makes: reserve, claim,
// start, finish. With one caller each is a commit of its own.
const CommandsPerLifecycle = 4

// Yardstick is the hand-written reference for a launch's life: queued, starting, running, done. Each
// of the four commands checks the state it finds, writes the launch's row and adds an event to its
// history, and is acknowledged after COMMIT. Commands that wait while another commits share the next
// transaction, so the same value serves one caller and many.
type Yardstick struct {
	// RandomIDs makes launch ids that are not in the order of time, so that each launch of a group
	// dirties a page of its own. Set it before the first lifecycle.
	RandomIDs bool

	conn  *sqlite.Conn
	group group

	begin, complete, rollback                 *sqlite.Stmt
	taken, load, insert, claim, start, finish *sqlite.Stmt
	event                                     *sqlite.Stmt
}

// Open creates a yardstick's file in dir. The directory must not hold one yet.
func Open(dir string) (*Yardstick, error) {
	conn, err := openFile(dir, "yardstick.db", schema...)
	if err != nil {
		return nil, err
	}
	y := &Yardstick{conn: conn}
	err = prepare(conn, map[**sqlite.Stmt]string{
		&y.begin:    "BEGIN IMMEDIATE",
		&y.complete: "COMMIT",
		&y.rollback: "ROLLBACK",
		&y.taken: `SELECT 1 FROM launch WHERE request_key = ?1 AND session = ?2
			UNION ALL SELECT 1 FROM launch WHERE session = ?2 AND finished_at IS NULL LIMIT 1`,
		&y.load: "SELECT state, events, generation, token_hash FROM launch WHERE id = ?1",
		&y.insert: `INSERT INTO launch(id, state, events, session, request_key, content, workflow, definition,
			input, generation, created_at) VALUES (?1, 1, 1, ?3, ?4, ?5, ?6, ?7, ?8, 0, ?2)`,
		&y.claim: `UPDATE launch SET state = 2, events = events + 1, generation = generation + 1,
			runner = ?3, token_hash = ?4, expires_at = ?5 WHERE id = ?1`,
		&y.start: "UPDATE launch SET state = 3, events = events + 1, input = NULL, started_at = ?2 WHERE id = ?1",
		&y.finish: `UPDATE launch SET state = 4, events = events + 1, runner = NULL, token_hash = NULL,
			expires_at = NULL, finished_at = ?2 WHERE id = ?1`,
		&y.event: "INSERT INTO event(launch, n, kind, at, body) VALUES (?1, ?2, ?3, ?4, ?5)",
	})
	if err != nil {
		conn.Close()
		return nil, err
	}
	return y, nil
}

// Close closes the file; nothing may be running.
func (y *Yardstick) Close() error { return y.conn.Close() }

// Lifecycle takes one new launch, in a session of its own, from nothing to done and returns when that
// is durable. It may be called from many goroutines. A context that ends stops it between two commands.
func (y *Yardstick) Lifecycle(ctx context.Context) error {
	c := newCommand()
	if y.RandomIDs {
		rand.Read(c.id[:])
	}
	for c.kind = reserve; c.kind <= finish; c.kind++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := y.submit(c); err != nil {
			return fmt.Errorf("yardstick: command %d of a lifecycle: %w", c.kind, err)
		}
	}
	return nil
}

// command is one step of one launch, and the answer to it.
type command struct {
	kind       kind
	id         ulid.ULID
	requestKey ulid.ULID
	session    string
	tokenHash  [32]byte
	err        error     // the answer; the group's leader writes it before it wakes the caller
	wake       chan bool // true: lead the next group; false: answered
}

// kind numbers the commands so that command k leads from state k-1 to state k.
type kind int64

const (
	reserve kind = iota + 1
	claim
	start
	finish
)

// newCommand makes the ids and the claim's token of a new launch.
func newCommand() *command {
	c := &command{id: ulid.Make(), requestKey: ulid.Make(), wake: make(chan bool, 1)}
	var token [16]byte
	rand.Read(token[:])
	c.tokenHash = sha256.Sum256(token[:])
	c.session = fmt.Sprintf("%s@%x", c.id, c.tokenHash[:16])
	return c
}

// commit runs a group in one transaction. A refused command leaves the others alone, because it is
// refused before its first write; an error of SQLite fails them all.
func (y *Yardstick) commit(group []*command) {
	now := time.Now().UnixMicro()
	err := run(y.begin)
	for i := 0; err == nil && i < len(group); i++ {
		group[i].err, err = y.apply(group[i], now)
	}
	if err == nil {
		err = run(y.complete)
	}
	if err == nil {
		return
	}
	if !y.conn.AutocommitEnabled() {
		err = errors.Join(err, run(y.rollback))
	}
	for _, c := range group {
		c.err = err
	}
}

// apply checks what is there, writes the launch's row and adds the event.
func (y *Yardstick) apply(c *command, now int64) (refusal, err error) {
	var events, generation int64
	if c.kind == reserve {
		refusal, err = y.checkFree(c)
	} else {
		events, generation, refusal, err = y.check(c)
	}
	if refusal != nil || err != nil {
		return refusal, err
	}

	put := [...]*sqlite.Stmt{reserve: y.insert, claim: y.claim, start: y.start, finish: y.finish}[c.kind]
	put.BindBytes(1, c.id[:])
	put.BindInt64(2, now)
	switch c.kind {
	case reserve:
		put.BindText(3, c.session)
		put.BindBytes(4, c.requestKey[:])
		put.BindBytes(5, definition[:])
		put.BindText(6, "yardstick")
		put.BindBytes(7, definition[:])
		put.BindBytes(8, input)
	case claim:
		generation++
		put.BindText(3, hostName)
		put.BindBytes(4, c.tokenHash[:])
		put.BindInt64(5, now+leaseLength.Microseconds())
	}
	if err := run(put); err != nil {
		return nil, err
	}

	y.event.BindBytes(1, c.id[:])
	y.event.BindInt64(2, events+1)
	y.event.BindInt64(3, int64(c.kind))
	y.event.BindInt64(4, now)
	y.event.BindBytes(5, fmt.Appendf(nil, `{"from":%d,"to":%d,"generation":%d}`, c.kind-1, c.kind, generation))
	return nil, run(y.event)
}

// checkFree refuses a reservation whose request key was used or whose session has a live launch.
func (y *Yardstick) checkFree(c *command) (refusal, err error) {
	y.taken.BindBytes(1, c.requestKey[:])
	y.taken.BindText(2, c.session)
	taken, err := y.taken.Step()
	if err != nil {
		return nil, err
	}
	if taken {
		refusal = errTaken
	}
	return refusal, y.taken.Reset()
}

// check refuses a command whose launch is not in the state before it or is under another claim.
func (y *Yardstick) check(c *command) (events, generation int64, refusal, err error) {
	y.load.BindBytes(1, c.id[:])
	found, err := y.load.Step()
	if err != nil {
		return 0, 0, nil, err
	}
	refusal = errStale
	if found && kind(y.load.ColumnInt64(0)) == c.kind-1 {
		events, generation = y.load.ColumnInt64(1), y.load.ColumnInt64(2)
		var held [32]byte
		if y.load.ColumnBytes(3, held[:]); c.kind == claim || held == c.tokenHash {
			refusal = nil
		}
	}
	return events, generation, refusal, y.load.Reset()
}

var (
	errTaken = errors.New("request key was used or session has a live launch")
	errStale = errors.New("launch is in another state or under another claim")
)

// What the launches hold.
const (
	hostName    = "host-01JZ4C8Q6T"
	leaseLength = 30 * time.Second
)

var (
	input      = []byte(`{"topic":"a small input, as most are","limit":3}`)
	definition = sha256.Sum256([]byte("yardstick"))
)
