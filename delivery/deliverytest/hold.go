package deliverytest

// Point is a moment at which a process can be stopped with [Process.Hold]. The
// points of a run are listed in their order.
type Point uint8

// The points.
const (
	_             Point = iota
	PointSend           // a send has reached the bridge, which has not looked yet
	PointAccepted       // the session is busy with a run that has not begun
	PointStart          // the agent has started; its start is not reported
	PointStarted        // the start is reported; the message is on no branch and no disk
	PointVisible        // the message is on the branch; in a fresh session not on disk
	PointReply          // an assistant message has ended and is on disk, and all before it
	PointTool           // a tool call is to be executed
	PointToolDone       // it was executed; its result is not on disk
	PointRetry          // the provider failed; the agent waits before it starts again
	PointEnd            // the agent has ended; the session is not idle yet
	PointSettled        // the session is idle; the end is not reported
	PointReported       // the end is reported; settled handlers have not all returned
)

// String returns the point's name.
func (p Point) String() string {
	names := [...]string{"none", "send", "accepted", "start", "started", "visible", "reply", "tool", "toolDone",
		"retry", "end", "settled", "reported"}
	if int(p) >= len(names) {
		return "unknown"
	}
	return names[p]
}

// Hold stops one arrival at a point.
type Hold struct {
	point             Point
	reached, released chan struct{}
	dead              <-chan struct{}
}

// Hold makes the process stop when it next arrives at the point. Several holds
// on one point stop as many arrivals. The death of the process ends them all.
func (p *Process) Hold(point Point) *Hold {
	h := &Hold{point: point, reached: make(chan struct{}), released: make(chan struct{}), dead: p.ctx.Done()}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h
}

// Wait returns true once the process has arrived, false if it died before.
func (h *Hold) Wait() bool {
	select {
	case <-h.reached:
		return true
	case <-h.dead:
		return false
	}
}

// Release lets the process go on. It is called once, also before the arrival.
func (h *Hold) Release() { close(h.released) }

// at stops while a hold says so.
func (p *Process) at(point Point) {
	if h := p.takeHold(point); h != nil {
		close(h.reached)
		select {
		case <-h.released:
		case <-h.dead:
		}
	}
}

func (p *Process) takeHold(point Point) *Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range p.holds {
		if h.point == point {
			p.holds = append(p.holds[:i:i], p.holds[i+1:]...)
			return h
		}
	}
	return nil
}
