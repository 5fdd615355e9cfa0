// Package flow is the workflow of the review example: the model drafts, a
// question is asked, a person decides, a program acts, and a message reports.
package flow

import (
	"context"
	"fmt"

	"example.com/piworkflows/engine"
)

// Job is what to write, and the file to publish it to.
type Job struct {
	Title string `json:"title"`
	File  string `json:"file"`
}

// Draft is what the model hands in.
type Draft struct {
	Text string `json:"text"`
}

// Missing is the answer to the checkpoint.
type Missing struct {
	Add string `json:"add"`
}

// Verdict is what the person decides.
type Verdict string

// The verdicts.
const (
	Approve Verdict = "approve"
	Again   Verdict = "again"
)

// Choices lists the verdicts.
func (Verdict) Choices() []Verdict { return []Verdict{Approve, Again} }

// Style is what the live settings hold.
type Style struct {
	Tone string `json:"tone"`
	Sign string `json:"sign"`
}

// proofread is a workflow of its own, which review includes.
func proofread() (*engine.Builder[Draft], engine.ExitOf[Draft]) {
	w := engine.New[Draft]("proofread", "1")
	read := engine.Agent[Draft](w, "read", w.Input(), func(_ context.Context, d Draft) (string, error) {
		return "Correct the spelling and hand in the whole text: " + d.Text, nil
	})
	return w, engine.Exit(w, "clean", read)
}

// New builds the workflow.
func New() (*engine.Workflow, error) {
	w := engine.New[Job]("review", "1")
	style := engine.Settings(w, Style{Tone: "plain", Sign: "the team"}, "tone")
	round := engine.Maybe(engine.Later[engine.Decided[Verdict]](w, "decide")) // which is defined below
	draft := engine.Agent[Draft](w, "draft", engine.Both(engine.Both(w.Input(), style), round), func(_ context.Context, in engine.Pair[engine.Pair[Job, Style], *engine.Decided[Verdict]]) (string, error) {
		task := fmt.Sprintf("Write two sentences about %s in a %s tone.", in.A.A.Title, in.A.B.Tone)
		if in.B != nil {
			task += " The last draft came back: " + in.B.Text
		}
		return task, nil
	}, engine.Updates())
	sub, clean := proofread()
	proof := engine.Include(w, "proof", sub, draft)
	text := engine.At(proof, clean)
	ask := engine.Checkpoint[Missing](w, "ask", text, func(_ context.Context, d Draft) (string, error) {
		return "What is missing in this text? " + d.Text, nil
	})
	whole := engine.Compute(w, "whole", engine.Both(text, ask), func(_ context.Context, in engine.Pair[Draft, Missing]) (Draft, error) {
		return Draft{in.A.Text + " " + in.B.Add}, nil
	})
	proposal := engine.Both(w.Input(), whole)
	decide := engine.Decide[Verdict](w, "decide", proposal, func(_ context.Context, in engine.Pair[Job, Draft]) (engine.Presentation, error) {
		return engine.Presentation{Title: "Publish " + in.A.Title + "?", Text: in.B.Text}, nil
	}, engine.TextFor(Again, 500, true), engine.Audience("an editor"))
	publish := engine.Shell(w, "publish", proposal, func(_ context.Context, _ engine.Attempt, in engine.Pair[Job, Draft]) (engine.Command, error) {
		return engine.Command{Path: "tee", Args: []string{in.A.File}, Stdin: in.B.Text + "\n", MustSucceed: true}, nil
	}, engine.Repeatable(), engine.Approved(decide, Approve))
	report := engine.Notify(w, "report", publish, func(_ context.Context, r engine.ShellResult) (string, error) {
		return "published: " + r.Stdout, nil
	}, engine.Final())
	engine.Then(draft, proof)
	engine.Then(text, ask)
	engine.Then(ask, whole)
	engine.Then(whole, decide)
	engine.Switch(decide, engine.Case(Approve, publish), engine.Case(Again, draft))
	engine.Then(publish, report)
	return w.Build()
}
