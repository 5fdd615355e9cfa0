package deliverytest

import (
	"slices"

	"example.com/piworkflows/delivery"
)

// ModelRequest is one request to the model provider.
type ModelRequest struct {
	Process string
	Turn    string
	Message string // id of the message that opened the turn, or empty
	Try     int    // from 1; above 1 after a provider failure
}

// SendCall is one call of Send.
type SendCall struct {
	Process  string
	Message  delivery.Message
	Answer   delivery.Answer
	Executed bool // the message was given to Pi
	Lost     bool // the caller saw an error instead of the answer
}

// TurnRecord is one turn as the bridge reported it.
type TurnRecord struct {
	Turn     string
	Message  string             // id of the message that opened it, or empty
	Own      delivery.Ownership // the latest answer to its start report
	End      delivery.End       // zero until it settled
	ByPerson bool
}

type journal struct {
	requests []ModelRequest
	sends    []SendCall
	turns    []TurnRecord
	aborts   []string
	faults   []error
}

// ModelRequests returns all requests made by the processes of this file.
func (f *File) ModelRequests() []ModelRequest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log.requests)
}

// Sends returns all calls of Send on the bridges of this file.
func (f *File) Sends() []SendCall {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log.sends)
}

// Turns returns all turns that began in this file.
func (f *File) Turns() []TurnRecord {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log.turns)
}

// Aborts returns the messages whose turns were stopped by the host.
func (f *File) Aborts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log.aborts)
}

// Faults returns the errors with which reports were answered. A report that a
// host refuses as invalid or in conflict is dropped, after any other error the
// bridge takes the connection for lost.
func (f *File) Faults() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.log.faults)
}

func (f *File) note(change func(*journal)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.log)
}

// turn changes the record of a turn.
func (j *journal) turn(key string, change func(*TurnRecord)) {
	for i := range j.turns {
		if j.turns[i].Turn == key {
			change(&j.turns[i])
		}
	}
}
