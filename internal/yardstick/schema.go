package yardstick

// schema keeps what any honest solution to the same problem keeps: at most one live launch per
// session, a request key that adopts for ever, the claim's fence, private input until the start,
// queued work and expired leases that are found without a scan, and a readable history. It is laid
// out for speed: binary keys in the order of time, and indexes of live rows whose conditions only
// the commands change that must.
var schema = []string{
	`CREATE TABLE launch(
		id          BLOB PRIMARY KEY CHECK (length(id) = 16),
		state       INTEGER NOT NULL CHECK (state BETWEEN 1 AND 4),
		events      INTEGER NOT NULL,
		session     TEXT NOT NULL,
		request_key BLOB NOT NULL,
		content     BLOB NOT NULL CHECK (length(content) = 32),
		workflow    TEXT NOT NULL,
		definition  BLOB NOT NULL CHECK (length(definition) = 32),
		input       BLOB CHECK (input IS NULL OR state <= 2),
		generation  INTEGER NOT NULL,
		runner      TEXT,
		token_hash  BLOB CHECK (length(token_hash) = 32),
		expires_at  INTEGER,
		created_at  INTEGER NOT NULL,
		started_at  INTEGER,
		finished_at INTEGER,
		CHECK ((token_hash IS NULL) = (expires_at IS NULL)),
		CHECK ((finished_at IS NULL) = (state < 4))
	) STRICT, WITHOUT ROWID`,
	"CREATE UNIQUE INDEX request ON launch(request_key, session)",
	"CREATE UNIQUE INDEX reservation ON launch(session) WHERE finished_at IS NULL",
	"CREATE INDEX queue ON launch(created_at) WHERE state = 1",
	"CREATE INDEX lease ON launch(expires_at) WHERE expires_at IS NOT NULL",
	`CREATE TABLE event(
		launch BLOB NOT NULL,
		n      INTEGER NOT NULL,
		kind   INTEGER NOT NULL,
		at     INTEGER NOT NULL,
		body   BLOB NOT NULL,
		PRIMARY KEY (launch, n)
	) STRICT, WITHOUT ROWID`,
}
