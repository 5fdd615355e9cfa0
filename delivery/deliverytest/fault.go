package deliverytest

import "example.com/piworkflows/delivery"

// faults are what a test has asked to go wrong.
type faults struct {
	answers, lose, looks, duplicate, refuse int
	refusal                                 delivery.Answer
	delay                                   bool
}

func (p *Process) fault(change func(*faults)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.faults)
}

// LoseAnswer makes the next n calls of Send do what they do and then answer
// with an error.
func (p *Process) LoseAnswer(n int) { p.fault(func(f *faults) { f.answers = n }) }

// LoseSend makes the next n sends that are taken vanish in Pi: the answer is
// Taken and no entry ever appears.
func (p *Process) LoseSend(n int) { p.fault(func(f *faults) { f.lose = n }) }

// Refuse makes the next n calls of Send answer so and do nothing else.
func (p *Process) Refuse(n int, verdict delivery.Verdict, reason string) {
	p.fault(func(f *faults) { f.refuse, f.refusal = n, delivery.Answer{Verdict: verdict, Reason: reason} })
}

// FailLook makes the next n calls of Look fail.
func (p *Process) FailLook(n int) { p.fault(func(f *faults) { f.looks = n }) }

// DuplicateReports makes the next n reports arrive twice.
func (p *Process) DuplicateReports(n int) { p.fault(func(f *faults) { f.duplicate = n }) }

// DelayReports holds reports back, and with them every answer of Look, while
// the agent goes on; release sends them in their order.
func (p *Process) DelayReports() (release func()) {
	p.fault(func(f *faults) { f.delay = true })
	return func() {
		p.fault(func(f *faults) { f.delay = false })
		p.flush()
	}
}
