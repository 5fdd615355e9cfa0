package launch

import "time"

// Time is a wall-clock instant in nanoseconds since the Unix epoch. Zero means
// "not set". Times are compared as integers, never as text.
type Time int64

// Mono is a reading of a monotonic clock in nanoseconds. Only differences of
// two readings of one process mean anything, so it is never stored as a time.
type Mono int64

// TimeOf converts a standard library time.
func TimeOf(t time.Time) Time { return Time(t.UnixNano()) }

// Std converts to a standard library time in UTC.
func (t Time) Std() time.Time { return time.Unix(0, int64(t)).UTC() }

// Add returns t+d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns t-u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// String formats t in RFC 3339 with milliseconds, or "-" when not set.
func (t Time) String() string {
	if t == 0 {
		return "-"
	}
	return t.Std().Format("2006-01-02T15:04:05.000Z")
}

// Add returns m+d.
func (m Mono) Add(d time.Duration) Mono { return m + Mono(d) }

// Sub returns m-u.
func (m Mono) Sub(u Mono) time.Duration { return time.Duration(m - u) }

// Now is what a command is told about time: one reading, made when the write
// lock was held.
type Now struct {
	Wall Time
	// Mono and Clock are a reading of the monotonic clock and the identity of
	// that clock, which is unique per process start. Readings of two clocks are
	// never compared (rule launch/clock).
	Mono  Mono
	Clock string
	// Distrust is set for one lease length after this host's clock jumped or
	// its timers fired late. No lease counts as expired and no deadline as
	// passed meanwhile (rule launch/clock).
	Distrust bool
}

// Passed reports whether a deadline lies in the past, which it never does
// while the clock is distrusted. The zero deadline never passes.
func (n Now) Passed(deadline Time) bool {
	return deadline != 0 && !n.Distrust && n.Wall >= deadline
}

// ClockTolerance is how far a wall clock may drift from the monotonic clock,
// or a timer fire late, before the clock is distrusted; and how far beyond a
// full lease an expiry may lie ahead before it counts as expired.
const ClockTolerance = 5 * time.Second

// Watch notices clock jumps and sleeps of one host (rule launch/clock). The
// zero value is ready to use. It is not safe for concurrent use.
type Watch struct {
	seen     bool
	wall     Time
	mono     Mono
	distrust Mono // until then
	on       bool
}

// Observe records one reading of both clocks and returns the [Now] that a
// command made at that reading is told. lease is the host's lease length.
func (w *Watch) Observe(wall Time, mono Mono, lease time.Duration) Now {
	if w.seen {
		drift := wall.Sub(w.wall) - mono.Sub(w.mono)
		if drift > ClockTolerance || drift < -ClockTolerance {
			w.Late(mono, lease)
		}
	}
	w.seen, w.wall, w.mono = true, wall, mono
	if w.on && mono >= w.distrust {
		w.on = false
	}
	return Now{Wall: wall, Distrust: w.on}
}

// Late records that a timer of this host fired more than [ClockTolerance]
// after it was due, as happens after a sleep.
func (w *Watch) Late(mono Mono, lease time.Duration) {
	w.on, w.distrust = true, mono.Add(lease)
}
