package effect

import "example.com/piworkflows/launch"

// Trigger is what a command means to an effect; see [Table].
type Trigger uint8

// The triggers.
const (
	_                   Trigger = iota
	ReceiptApplied              // its code returned: it happened
	ReceiptRejected             // its code returned: it did not happen
	ReceiptUnknown              // its code returned and cannot tell
	RecoverRepeatable           // its worker was lost, policy repeatable
	RecoverObserved             // its worker was lost, policy observed
	RecoverUnrepeatable         // its worker was lost, policy unrepeatable or run ended
	ObservedFound               // the author's observer found it
	ObservedMissing             // the author's observer is sure that it is not there
	PersonApplied               // a person has evidence that it happened
	PersonRejected              // a person has evidence that it did not
	triggerEnd
)

var triggerNames = [triggerEnd]string{"", "receipt_applied", "receipt_rejected", "receipt_unknown",
	"recover_repeatable", "recover_observed", "recover_unrepeatable",
	"observed_found", "observed_missing", "person_applied", "person_rejected"}

// String returns the wire name.
func (t Trigger) String() string {
	if t == 0 || t >= triggerEnd {
		return "unknown"
	}
	return triggerNames[t]
}

// Next is what the host does after a command.
type Next uint8

// What is next. NextNothing is the zero value: the effect is settled, or its
// code is running.
const (
	NextNothing Next = iota
	NextRun          // run the action's code again under the same key
	NextObserve      // run the author's observer
	NextPerson       // park the run for attention
)

// String returns the wire name.
func (n Next) String() string {
	switch n {
	case NextNothing:
		return "nothing"
	case NextRun:
		return "run"
	case NextObserve:
		return "observe"
	case NextPerson:
		return "person"
	}
	return "unknown"
}

// Cell is what one trigger does in one state: a refusal, or the state after it
// and what is next.
type Cell struct {
	From     State
	On       Trigger
	Refuse   launch.Kind // 0 when legal
	To       State       // when legal
	Next     Next        // when legal
	Evidence bool        // the receipt changes nothing and is kept as evidence
}

// Table returns a copy of the whole table, all states with all triggers (rule
// effect/table).
func Table() []Cell {
	var all []Cell
	for s := Pending; s < stateEnd; s++ {
		all = append(all, table[s][1:]...)
	}
	return all
}

const (
	decided = launch.ErrAlreadyDecided // a final state stands
	early   = launch.ErrWrongKind      // a person resolves only what is ambiguous
)

var table = func() (m [stateEnd][triggerEnd]Cell) {
	for _, c := range []Cell{
		{From: Pending, On: ReceiptApplied, To: Applied},
		{From: Pending, On: ReceiptRejected, To: Rejected},
		{From: Pending, On: ReceiptUnknown, To: Ambiguous, Next: NextPerson},
		{From: Pending, On: RecoverRepeatable, To: Pending, Next: NextRun},
		{From: Pending, On: RecoverObserved, To: Pending, Next: NextObserve},
		{From: Pending, On: RecoverUnrepeatable, To: Ambiguous, Next: NextPerson},
		{From: Pending, On: ObservedFound, To: Applied},
		{From: Pending, On: ObservedMissing, To: Pending, Next: NextRun},
		{From: Pending, On: PersonApplied, Refuse: early},
		{From: Pending, On: PersonRejected, Refuse: early},

		{From: Applied, On: ReceiptApplied, To: Applied},
		{From: Applied, On: ReceiptRejected, Refuse: decided},
		{From: Applied, On: ReceiptUnknown, Refuse: decided},
		{From: Applied, On: RecoverRepeatable, To: Applied},
		{From: Applied, On: RecoverObserved, To: Applied},
		{From: Applied, On: RecoverUnrepeatable, To: Applied},
		{From: Applied, On: ObservedFound, To: Applied},
		{From: Applied, On: ObservedMissing, Refuse: decided},
		{From: Applied, On: PersonApplied, To: Applied},
		{From: Applied, On: PersonRejected, Refuse: decided},

		{From: Rejected, On: ReceiptApplied, Refuse: decided},
		{From: Rejected, On: ReceiptRejected, To: Rejected},
		{From: Rejected, On: ReceiptUnknown, Refuse: decided},
		{From: Rejected, On: RecoverRepeatable, To: Rejected},
		{From: Rejected, On: RecoverObserved, To: Rejected},
		{From: Rejected, On: RecoverUnrepeatable, To: Rejected},
		{From: Rejected, On: ObservedFound, Refuse: decided},
		{From: Rejected, On: ObservedMissing, To: Rejected},
		{From: Rejected, On: PersonApplied, Refuse: decided},
		{From: Rejected, On: PersonRejected, To: Rejected},

		{From: Ambiguous, On: ReceiptApplied, To: Ambiguous, Next: NextPerson, Evidence: true},
		{From: Ambiguous, On: ReceiptRejected, To: Ambiguous, Next: NextPerson, Evidence: true},
		{From: Ambiguous, On: ReceiptUnknown, To: Ambiguous, Next: NextPerson},
		{From: Ambiguous, On: RecoverRepeatable, To: Ambiguous, Next: NextPerson},
		{From: Ambiguous, On: RecoverObserved, To: Ambiguous, Next: NextObserve},
		{From: Ambiguous, On: RecoverUnrepeatable, To: Ambiguous, Next: NextPerson},
		{From: Ambiguous, On: ObservedFound, To: Applied},
		{From: Ambiguous, On: ObservedMissing, To: Rejected},
		{From: Ambiguous, On: PersonApplied, To: Applied},
		{From: Ambiguous, On: PersonRejected, To: Rejected},
	} {
		m[c.From][c.On] = c
	}
	return m
}()
