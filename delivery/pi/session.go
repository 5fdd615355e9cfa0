package pi

import (
	"context"

	"example.com/piworkflows/delivery"
	"example.com/piworkflows/engine/view"
	"example.com/piworkflows/launch"
)

// session is a connection as the host sees it.
type session struct{ p *peer }

var (
	_ delivery.Session = (*session)(nil)
	_ delivery.Viewer  = (*session)(nil)
)

// Look implements [delivery.Session].
func (s *session) Look(ctx context.Context, names []string) (delivery.Report, error) {
	if names == nil {
		names = []string{}
	}
	a, err := s.p.request(ctx, &lookBody{Names: names})
	if err != nil {
		return delivery.Report{}, err
	}
	b, ok := a.(*reportBody)
	if !ok {
		return delivery.Report{}, s.wrong(a)
	}
	r := delivery.Report{Idle: b.Idle, Pending: b.Pending}
	for _, e := range b.Evidence {
		r.Evidence = append(r.Evidence, delivery.Evidence(e))
	}
	return r, nil
}

// Send implements [delivery.Session].
func (s *session) Send(ctx context.Context, m delivery.Message) (delivery.Answer, error) {
	others := m.Others
	if others == nil {
		others = []string{}
	}
	a, err := s.p.request(ctx, &sendBody{Message: m.ID, Others: others, Intent: m.Intent, Epoch: m.Epoch,
		Deadline: int64(m.Deadline) / 1e6, TriggerTurn: m.TriggerTurn, CustomType: m.CustomType, Content: m.Content, Details: m.Details})
	if err != nil {
		return delivery.Answer{}, err
	}
	b, ok := a.(*sentBody)
	if !ok {
		return delivery.Answer{}, s.wrong(a)
	}
	return delivery.Answer{Verdict: verdicts[b.Verdict], Reason: b.Reason}, nil
}

// Abort implements [delivery.Session].
func (s *session) Abort(ctx context.Context, message string) error {
	a, err := s.p.request(ctx, &abortBody{Message: message})
	if err != nil {
		return err
	}
	if _, ok := a.(*abortedBody); !ok {
		return s.wrong(a)
	}
	return nil
}

// Fenced implements [delivery.Session]. It waits for nothing.
func (s *session) Fenced() {
	_ = s.p.say(0, &fencedBody{}) // a peer that cannot be told is gone
	s.p.finish()
}

// Show implements [delivery.Viewer].
func (s *session) Show(run launch.RunID, status view.Status) {
	_ = s.p.say(0, &statusBody{Run: string(run), Status: string(status)}) // a peer that cannot be told is gone
}

// wrong ends a connection whose answers do not fit the questions.
func (s *session) wrong(a body) error {
	s.p.bye("a "+a.kind()+" answers another question", false)
	return launch.Refuse(launch.ErrInvalid, "the extension gave an answer to another question")
}
