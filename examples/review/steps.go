package main

import (
	"context"
	"errors"
	"fmt"

	"example.com/piworkflows/engine/view"
)

// begin: the model starts the workflow in the person's turn.
func (s *story) begin(ctx context.Context) error {
	s.say("1. The person asks for a review; the model starts it.")
	s.model = func(node, _ string) string {
		if node == "" {
			return fmt.Sprintf(`{"action":"start","workflow":"review","input":{"title":"rafts","file":%q}}`, s.out)
		}
		return ""
	}
	return s.pi.Prompt("review something about rafts")
}

// draft: the step waits over a restart, an answer of another kind is refused, and
// the right submission by the exact id is taken.
func (s *story) draft(ctx context.Context) error {
	v, err := s.asks(ctx, "draft")
	if err != nil {
		return err
	}
	s.first = v.Run
	s.say("2. The model answers the wrong way, then hands the draft in.")
	if err := s.person(ctx, "answer "+v.Request.ID+" yes"); err == nil {
		return errors.New("an answer to an agent's step was taken")
	}
	return s.submit(ctx, v.Request.ID, `{"text":"Rafts flaot."}`)
}

// submit lets the model hand in an output in a turn of the person's.
func (s *story) submit(ctx context.Context, request, output string) error {
	s.model = func(node, _ string) string {
		if node != "" {
			return ""
		}
		return fmt.Sprintf(`{"action":"submit","requestId":%q,"output":%s}`, request, output)
	}
	s.pi.Wait()
	return s.pi.Prompt("go on")
}

// proofread: a step of the included workflow.
func (s *story) proofread(ctx context.Context) error {
	v, err := s.asks(ctx, "proof/read")
	if err != nil {
		return err
	}
	s.say("3. The included workflow asks for the corrected text.")
	return s.submit(ctx, v.Request.ID, `{"text":"Rafts float."}`)
}

// question: the checkpoint is answered by the person.
func (s *story) question(ctx context.Context) error {
	v, err := s.asks(ctx, "ask")
	if err != nil {
		return err
	}
	s.say("4. The checkpoint asks what is missing; the person answers.")
	s.model = nil
	return s.person(ctx, `answer `+v.Request.ID+` {"add":"So do boats."}`)
}

// sendBack: the person sends the draft back with a text, and the same run goes
// through the loop once more.
func (s *story) sendBack(ctx context.Context) error {
	v, err := s.asks(ctx, "decide")
	if err != nil {
		return err
	}
	s.say("5. The person sends it back with a text; the model does all of it again.")
	s.model = func(node, request string) string {
		switch node {
		case "draft", "proof/read":
			return fmt.Sprintf(`{"action":"submit","requestId":%q,"output":{"text":"Rafts are flat boats."}}`, request)
		case "ask":
			return fmt.Sprintf(`{"action":"answer","requestId":%q,"output":{"add":"They float."}}`, request)
		}
		return ""
	}
	return s.person(ctx, "decide "+v.Request.ID+" again say what a raft is")
}

// pauseAndResume: a pause keeps the request and starts no turn; what is decided
// meanwhile waits for the resume.
func (s *story) pauseAndResume(ctx context.Context) error {
	v, err := s.asks(ctx, "decide")
	if err != nil {
		return err
	}
	s.say("6. The person pauses, decides, and resumes.")
	if err := s.person(ctx, "pause"); err != nil {
		return err
	}
	if err := s.person(ctx, "decide "+v.Request.ID+" approve"); err != nil {
		return err
	}
	if err := s.again(); err != nil {
		return err
	}
	_, err = s.until(ctx, "it is held", func(v view.View) bool { return v.Status == view.Paused })
	return err
}

// decide: the approved action acts once, the run reports and ends.
func (s *story) decide(ctx context.Context) error {
	s.say("  published so far: " + s.published())
	if err := s.person(ctx, "resume"); err != nil {
		return err
	}
	v, err := s.until(ctx, "it ends", func(v view.View) bool { return v.Finished != "" && v.Turn == "" }) // and the model knows
	if err != nil {
		return err
	}
	if v.Status != view.Completed || v.Run != s.first {
		return fmt.Errorf("the run is %s, in %s and not in %s", v.Status, v.Run, s.first)
	}
	s.say("  published, by the one run: " + s.published())
	return nil
}

// restart: the person runs it again. It is a second run with the same input and
// nothing else.
func (s *story) restart(ctx context.Context) error {
	s.say("7. The person restarts it: a fresh run, with none of the old answers.")
	s.model = nil
	s.pi.Wait()
	if err := s.person(ctx, "restart"); err != nil {
		return err
	}
	_, err := s.until(ctx, "it asks", func(v view.View) bool { return v.Run != s.first && v.Node == "draft" && v.Request != nil })
	return err
}

// cancelItself: the model cancels its own workflow in the turn that the workflow
// opened. The turn is stopped, and one successor turn is owed.
func (s *story) cancelItself(ctx context.Context) error {
	s.say("8. The model cancels the run in the run's own turn.")
	s.model = func(node, _ string) string {
		if node != "draft" {
			return ""
		}
		return fmt.Sprintf(`{"action":"cancel","runId":%q}`, s.run)
	}
	// The open step is put to the model again after a turn without an answer.
	if _, err := s.until(ctx, "it has ended, and the model is told", func(v view.View) bool { return v.Status == view.Cancelled && v.Turn == "" }); err != nil {
		return err
	}
	s.pi.Wait()
	told := 0 // messages that tell of an end
	for _, e := range s.pi.Branch() {
		if e.IntentID() != "" {
			told++
		}
	}
	s.say(fmt.Sprintf("  successor turns told, for two runs: %d", told))
	return nil
}
