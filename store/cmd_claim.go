package store

import (
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

// Claim takes a launch for this host. Answer: [Claimed], whose State tells
// whether the host holds it now: a changed definition fails the launch, or
// parks it for attention, in the same transaction.
type Claim struct {
	Run      launch.RunID
	Runner   string
	Token    launch.Digest // hash of the claim's token
	Lease    time.Duration
	Digest   launch.Digest // of the host's definition
	Source   string        // of the host
	Plan     *run.Plan
	Capacity int // live claims in the file that this host respects
	// Begin starts the run in the same transaction, which is right when
	// activation needs no user code. A run that has a record always begins.
	Begin bool
	// Lost is set to take over a lost lease of that generation first.
	Lost       bool
	Generation uint64
}

// Claimed is the answer to [Claim] and [Activate].
type Claimed struct {
	State      launch.State
	Generation uint64
	Input      []byte
	Next       Next // with State running
}

func (c Claim) run(x *tx) (Claimed, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Claimed{}, err
	}
	if l.State.Terminal() {
		return Claimed{}, launch.Refuse(launch.ErrEnded, "run %s has already ended: %s", l.ID, l.State)
	}
	if err := c.mine(x, l); err != nil {
		return Claimed{}, err
	}
	live, err := x.claims()
	if err != nil {
		return Claimed{}, err
	}
	if c.Lost && l.State.Claimed() {
		live-- // its own lost claim
	}
	if live >= c.Capacity {
		return Claimed{}, launch.Refuse(launch.ErrFull, "all %d slots are taken; run %s waits for one", c.Capacity, l.ID)
	}
	if c.Lost {
		if err := x.recover(l, c.Generation); err != nil {
			return Claimed{}, err
		}
		if l.State == launch.Failed || l.Ready == 0 {
			return Claimed{State: l.State}, nil
		}
	}
	var progress uint64
	if l.HasRecord() {
		r, err := x.record(l)
		if err != nil {
			return Claimed{}, err
		}
		progress = r.Progress
	}
	command := launch.ClaimCommand{
		Authority: launch.Authority{Runner: c.Runner, Token: c.Token}, Lease: c.Lease, Digest: c.Digest, Progress: progress,
	}
	if err := x.applyLaunch(l, command); err != nil {
		return Claimed{}, err
	}
	if l.State == launch.Starting && (c.Begin || l.HasRecord()) {
		return x.begin(l, c.Plan)
	}
	return Claimed{State: l.State, Generation: l.Generation, Input: l.Input}, nil
}

// mine refuses a host that is not the owning one, and an activation before its
// boundary (rules scheduler/owner and scheduler/boundary).
func (c *Claim) mine(x *tx, l *launchRow) error {
	if l.Mode == launch.Headless {
		if l.Source != c.Source {
			return launch.Refuse(launch.ErrNotAllowed, "run %s belongs to another source; its own host claims it", l.ID)
		}
		return nil
	}
	s, err := x.session(l.Session)
	if err != nil {
		return err
	}
	if s.Host != c.Runner {
		return launch.Refuse(launch.ErrNotAllowed, "run %s belongs to a session that is not connected to this host", l.ID)
	}
	why, err := x.waits(l, s)
	if err == nil && why != "" {
		err = launch.Refuse(launch.ErrNotAllowed, "run %s waits: %s", l.ID, why)
	}
	return err
}

var errNoPlan = launch.Refuse(launch.ErrInvalid, "the plan is not set; pass the one that is pinned for the run")

// begin takes a starting launch to running: the run record exists, and the
// current node is ready for its worker.
func (x *tx) begin(l *launchRow, p *run.Plan) (Claimed, error) {
	if p == nil {
		return Claimed{}, errNoPlan
	}
	input := l.Input
	first := !l.HasRecord()
	var r *runRow
	if first {
		begun, err := run.Begin(l.ID, p, input, x.now.Wall)
		if err != nil {
			return Claimed{}, err
		}
		r = x.runs.insert(runRow{begun})
		if p.Settings != nil {
			x.settings.insert(settingsRow{Run: l.ID, Revision: 1, Value: p.Settings.Defaults, By: launch.Host, At: x.now.Wall})
		}
	} else {
		var err error
		if r, err = x.record(l); err != nil {
			return Claimed{}, err
		}
		input = r.Input
	}
	if err := x.applyLaunch(l, launch.StartCommand{Authority: authority(l)}); err != nil {
		return Claimed{}, err
	}
	if !first {
		next, err := x.goOnFrom(l, r, p)
		return Claimed{State: l.State, Generation: l.Generation, Input: input, Next: next}, err
	}
	x.nodeEvent(l, r.At(run.Entered))
	next, err := x.enter(l, r, p)
	return Claimed{State: l.State, Generation: l.Generation, Input: input, Next: next}, err
}

// goOnFrom goes on with a run that was parked. A request keeps its attempt, and
// a retry has a new one already; everything else was interrupted.
func (x *tx) goOnFrom(l *launchRow, r *runRow, p *run.Plan) (Next, error) {
	retrying := r.Status == run.Waiting
	if err := x.applyRun(l, r, run.Unpark{}, p); err != nil {
		return Next{}, err
	}
	q, err := x.asked(r)
	if err != nil {
		return Next{}, err
	}
	if q != nil {
		return x.takeOver(l, r, q, p)
	}
	if !retrying {
		if err := x.applyRun(l, r, run.Reattempt{}, p); err != nil {
			return Next{}, err
		}
	}
	return x.enter(l, r, p)
}

// Activate starts a claimed launch whose activation check has passed. Answer:
// [Claimed].
type Activate struct {
	Run launch.RunID
	launch.Authority
	Plan *run.Plan
}

func (c Activate) run(x *tx) (Claimed, error) {
	l, err := x.launch(c.Run)
	if err != nil {
		return Claimed{}, err
	}
	if err := launch.Owns(l.Launch, c.Authority, x.now); err != nil {
		return Claimed{}, err
	}
	if l.State != launch.Starting {
		return Claimed{}, launch.Refuse(launch.ErrNotAllowed, "run %s is %s, not starting", l.ID, l.State)
	}
	return x.begin(l, c.Plan)
}
