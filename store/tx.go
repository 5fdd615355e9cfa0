package store

import (
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
)

// tx is one command inside a transaction: the rows that it has read and
// changed, and what it makes known after the commit. Nothing is written before
// the command has decided, so a refusal leaves the transaction to others.
//
// A tx is used again for the next command: nothing outlives a command that
// points into one.
type tx struct {
	rows Rows
	now  launch.Now

	launches kept[launchRow, *launchRow]
	runs     kept[runRow, *runRow]
	steps    kept[stepRow, *stepRow]
	effects  kept[effectRow, *effectRow]
	intents  kept[intentRow, *intentRow]
	sources  kept[sourceRow, *sourceRow]
	sessions kept[sessionRow, *sessionRow]
	messages kept[messageRow, *messageRow]
	chains   kept[chainRow, *chainRow]
	requests kept[requestRow, *requestRow]
	receipts kept[receiptRow, *receiptRow]
	spent    kept[intervalRow, *intervalRow]
	settings kept[settingsRow, *settingsRow]
	shows    kept[presentationRow, *presentationRow]
	events   []stream
	event    eventRow // the one that is being written
	keys     keyOf
	data     []byte // of the fact that is being added
	out      []Event

	listed map[launch.SessionKey]bool // sessions whose pending intents and watched messages are kept
	reply  *Reply                     // what the settled turn said, of the running [Observe]
}

// tables returns everything that is kept.
func (x *tx) tables() [14]interface {
	flush(rows Rows) error
	reset()
} {
	return [...]interface {
		flush(rows Rows) error
		reset()
	}{&x.launches, &x.runs, &x.steps, &x.effects, &x.intents, &x.sources, &x.sessions, &x.messages, &x.chains,
		&x.requests, &x.receipts, &x.spent, &x.settings, &x.shows}
}

// reset makes x ready for a command.
func (x *tx) reset(rows Rows, now launch.Now) {
	x.rows, x.now, x.listed, x.reply = rows, now, nil, nil
	x.events, x.out = x.events[:0], x.out[:0]
	for _, k := range x.tables() {
		k.reset()
	}
}

// kept holds the rows of one table that a command has read or made.
type kept[R any, P interface {
	*R
	Row
}] []*entry[R]

type entry[R any] struct {
	old, cur R
	stored   bool // old is what the table holds
}

// maxSpare bounds the entries of a table whose memory the next command uses.
const maxSpare = 8

func (k *kept[R, P]) reset() {
	if len(*k) > maxSpare {
		*k = nil
	}
	for _, e := range *k {
		*e = entry[R]{}
	}
	*k = (*k)[:0]
}

// add returns a new entry, which is empty.
func (k *kept[R, P]) add() *entry[R] {
	n := len(*k)
	if n < cap(*k) && (*k)[:n+1][n] != nil {
		*k = (*k)[:n+1]
	} else {
		*k = append(*k, new(entry[R]))
	}
	return (*k)[n]
}

// find returns the kept row that satisfies same, or nil.
func (k kept[R, P]) find(same func(*R) bool) *R {
	for _, e := range k {
		if same(&e.cur) {
			return &e.cur
		}
	}
	return nil
}

// load reads a row by its key unless it is kept, and reports whether it exists.
func (k *kept[R, P]) load(x *tx, key R, same func(*R) bool) (*R, error) {
	if r := k.find(same); r != nil {
		return r, nil
	}
	e := k.add()
	e.old = key
	found, err := x.rows.Get(P(&e.old))
	if err != nil || !found {
		*e = entry[R]{}
		*k = (*k)[:len(*k)-1]
		return nil, err
	}
	e.cur, e.stored = e.old, true
	return &e.cur, nil
}

// adopt keeps a row that a scan has read.
func (k *kept[R, P]) adopt(r R) {
	e := k.add()
	e.old, e.cur, e.stored = r, r, true
}

// insert keeps a new row.
func (k *kept[R, P]) insert(r R) *R {
	e := k.add()
	e.cur = r
	return &e.cur
}

func (k *kept[R, P]) flush(rows Rows) error {
	for _, e := range *k {
		var old Row
		if e.stored {
			old = P(&e.old)
		}
		if err := rows.Put(old, P(&e.cur)); err != nil {
			return err
		}
	}
	return nil
}

// flush writes everything that the command changed.
func (x *tx) flush() error {
	for i := range x.events {
		x.event = x.events[i].row(x.now.Wall)
		if err := x.rows.Put(nil, &x.event); err != nil {
			return err
		}
	}
	for _, k := range x.tables() {
		if err := k.flush(x.rows); err != nil {
			return err
		}
	}
	return nil
}

var errNoRun = launch.Refuse(launch.ErrNotFound, "no such run; check the run id")

// launch returns the launch with that id, or a refusal.
func (x *tx) launch(id launch.RunID) (*launchRow, error) {
	if _, ok := x.keys.get(id); !ok {
		return nil, errNoRun
	}
	l, err := x.launches.load(x, launchRow{launch.Launch{ID: id}}, func(r *launchRow) bool { return r.ID == id })
	if err == nil && (l == nil || l.ID != id) { // the ULID of another workflow's run
		return nil, errNoRun
	}
	return l, err
}

// launchOf returns the launch of a run of which only the key is known, as a scan
// of another table reads it.
func (x *tx) launchOf(key launch.RunID) (*launchRow, error) {
	r := launchRow{launch.Launch{ID: key}}
	found, err := x.rows.Get(&r)
	if err == nil && !found {
		err = launch.Refuse(launch.ErrInternal, "the launch of a run is missing; run verify and restore a backup")
	}
	if err != nil {
		return nil, err
	}
	return x.launch(r.ID)
}

// first returns the first row of an index below prefix, kept.
func (x *tx) firstLaunch(ix *Index, prefix ...Value) (*launchRow, error) {
	var r launchRow
	found := false
	if err := x.rows.Scan(ix, prefix, 1, &r, func() bool { found = true; return false }); err != nil || !found {
		return nil, err
	}
	if have := x.launches.find(func(o *launchRow) bool { return o.ID == r.ID }); have != nil {
		return have, nil
	}
	x.launches.adopt(r)
	return x.launches.find(func(o *launchRow) bool { return o.ID == r.ID }), nil
}

// reservation returns the live interactive launch of a session, or nil.
func (x *tx) reservation(k launch.SessionKey) (*launchRow, error) {
	return x.firstLaunch(launchesBySession, Value{Kind: Text, Text: string(k)})
}

// claims counts the live claims in the file.
func (x *tx) claims() (int, error) { return x.rows.Count(launchesDue, claimedRows) }

var (
	claimedRows = []Value{{Kind: Int, Int: 1}}
	waitingRows = []Value{{Kind: Int, Int: 0}}
)

// session returns the row of a session, made when it is new.
func (x *tx) session(k launch.SessionKey) (*sessionRow, error) {
	s, err := x.sessions.load(x, sessionRow{session.Session{Key: k}}, func(r *sessionRow) bool { return r.Key == k })
	if err != nil || s != nil {
		return s, err
	}
	return x.sessions.insert(sessionRow{session.Session{Key: k, Created: x.now.Wall, Updated: x.now.Wall}}), nil
}

// list keeps the pending intents and the watched messages of a session.
func (x *tx) list(k launch.SessionKey) error {
	if x.listed[k] {
		return nil
	}
	var i intentRow
	if err := x.rows.Scan(intentsPending, []Value{{Kind: Text, Text: string(k)}}, launch.MaxList, &i, func() bool {
		if x.intents.find(func(o *intentRow) bool { return o.ID == i.ID }) == nil {
			x.intents.adopt(i)
		}
		return true
	}); err != nil {
		return err
	}
	var m messageRow
	if err := x.rows.Scan(messagesWatched, []Value{{Kind: Text, Text: string(k)}}, launch.MaxList, &m, func() bool {
		if x.messages.find(func(o *messageRow) bool { return o.ID == m.ID }) == nil {
			x.messages.adopt(m)
		}
		return true
	}); err != nil {
		return err
	}
	if x.listed == nil {
		x.listed = map[launch.SessionKey]bool{}
	}
	x.listed[k] = true
	return nil
}

// pending returns the pending intents of a session that satisfy want.
func (x *tx) pending(k launch.SessionKey, want func(*intents.Intent) bool) ([]*intentRow, error) {
	if err := x.list(k); err != nil {
		return nil, err
	}
	var all []*intentRow
	for _, e := range x.intents {
		if e.cur.Session == k && e.cur.Pending() && want(&e.cur.Intent) {
			all = append(all, &e.cur)
		}
	}
	return all, nil
}

// intent returns an intent by id, or nil.
func (x *tx) intent(id string) (*intentRow, error) {
	return x.intents.load(x, intentRow{intents.Intent{ID: id}}, func(r *intentRow) bool { return r.ID == id })
}

// message returns a message by id, or nil.
func (x *tx) message(id string) (*messageRow, error) {
	return x.messages.load(x, messageRow{session.Message{ID: id}}, func(r *messageRow) bool { return r.ID == id })
}

// chain returns what a chain has used; a chain without a row has used nothing.
func (x *tx) chain(id launch.RunID) (session.Chain, error) {
	c, err := x.chains.load(x, chainRow{session.Chain{ID: id}}, func(r *chainRow) bool { return r.ID == id })
	if err != nil || c == nil {
		return session.Chain{ID: id}, err
	}
	return c.Chain, nil
}

// setChain keeps a chain that has changed.
func (x *tx) setChain(k launch.SessionKey, c session.Chain) error {
	now, err := x.chain(c.ID)
	if err != nil || now == c {
		return err
	}
	s, err := x.session(k)
	if err != nil {
		return err
	}
	if have := x.chains.find(func(r *chainRow) bool { return r.ID == c.ID }); have != nil {
		have.Chain = c
	} else {
		x.chains.insert(chainRow{c})
	}
	x.sessionEvent(s, Event{Kind: "chain.changed", Run: c.ID}, 0, encode(c))
	return nil
}

// world returns what is stored of a session, with the messages named besides
// the watched ones, and the other issues of their subjects.
func (x *tx) world(k launch.SessionKey, named ...string) (session.World, error) {
	s, err := x.session(k)
	if err != nil {
		return session.World{}, err
	}
	if err := x.list(k); err != nil {
		return session.World{}, err
	}
	for _, id := range named {
		if id == "" || launch.CheckKey("message", id) != nil {
			continue
		}
		m, err := x.message(id)
		if err != nil {
			return session.World{}, err
		}
		if m == nil || m.Watched {
			continue
		}
		for issue := uint8(1); issue <= session.MaxIssues; issue++ { // all or none are watched
			if _, err := x.message(session.MessageID(m.Subject, issue)); err != nil {
				return session.World{}, err
			}
		}
	}
	w := session.World{Session: s.Session}
	for _, e := range x.messages {
		if e.cur.Session == k {
			w.Messages = append(w.Messages, e.cur.Message)
		}
	}
	return w, nil
}

// apply applies a command to a session, keeps what it changed, and carries out
// what follows.
func (x *tx) apply(k launch.SessionKey, c session.Command, named ...string) (session.Change, error) {
	if q, ok := c.(session.Queue); ok { // which looks at every issue of its subject
		for issue := uint8(1); issue <= session.MaxIssues; issue++ {
			named = append(named, session.MessageID(q.Message.Subject, issue))
		}
	}
	w, err := x.world(k, named...)
	if err != nil {
		return session.Change{}, err
	}
	ch, err := session.Apply(w, c, x.now)
	if err != nil {
		return ch, err
	}
	s, err := x.session(k)
	if err != nil {
		return ch, err
	}
	events := s.Events
	s.Session = ch.World.Session
	s.Events = events
	for i := range ch.World.Messages {
		m := &ch.World.Messages[i]
		if have := x.messages.find(func(r *messageRow) bool { return r.ID == m.ID }); have != nil {
			have.Message = *m
		} else {
			x.messages.insert(messageRow{*m})
		}
	}
	for _, e := range ch.Events {
		x.messageEvent(s, ch.World.Message(e.Message), e)
	}
	return ch, x.followSession(k, ch.Events)
}
