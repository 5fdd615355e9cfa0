package pitest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// require skips when something is missing, or fails when it must not be.
func require(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, ErrMissing) && os.Getenv("PIWORKFLOWS_REQUIRE_PI") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func scripted(t *testing.T, model Model) (Pi, *Provider, *Home, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	pi, err := Install(t.Context())
	require(t, err)
	p, err := NewProvider(model)
	require(t, err)
	t.Cleanup(p.Close)
	h, err := NewHome(t.TempDir(), p.URL, map[string]any{"retry": map[string]any{"baseDelayMs": 10}})
	require(t, err)
	return pi, p, h, ctx
}

const greeter = `export default function (pi) {
  pi.registerTool({ name: "greet", label: "greet", description: "greets", parameters: { type: "object", properties: { name: { type: "string" } }, required: ["name"] },
    async execute(id, args) { return { content: [{ type: "text", text: "hello " + args.name }], details: {} }; } });
  pi.registerCommand("say", { description: "says", handler: async (args) => {
    pi.sendMessage({ customType: "note", content: args, display: true, details: { messageId: "m1" } }, { deliverAs: "followUp", triggerTurn: true }); } });
}`

// greeting is a model that uses a tool, fails twice, and answers.
func greeting(_ context.Context, r Request) Reply {
	switch {
	case r.Opener == "greet" && r.Step == 1:
		return Reply{Calls: []Call{{"greet", `{"name":"Ada"}`}}}
	case r.Opener == "noted" && r.Repeat < 3:
		return Reply{Status: 503, Text: "overloaded"}
	}
	return Reply{Text: "I said " + r.Messages[len(r.Messages)-1].Text}
}

func TestRPC(t *testing.T) {
	pi, p, h, ctx := scripted(t, greeting)
	ext := filepath.Join(h.Dir, "ext.js")
	if err := os.WriteFile(ext, []byte(greeter), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Start(pi, h, nil, "-e", ext)
	require(t, err)
	t.Cleanup(a.Kill)
	require(t, a.Ask(ctx, "greet"))
	mark := a.Mark()
	require(t, a.Prompt(ctx, "/say noted", "followUp"))
	_, err = a.Settled(ctx, mark)
	require(t, err)
	var got []string
	for _, r := range p.Requests() {
		got = append(got, r.Opener+" "+string(rune('0'+r.Step))+" "+string(rune('0'+r.Repeat)))
	}
	if want := "greet 1 1,greet 2 1,noted 1 1,noted 1 2,noted 1 3"; strings.Join(got, ",") != want {
		t.Errorf("the model was asked %q, want %q", got, want)
	}
	s, err := a.State(ctx)
	require(t, err)
	require(t, a.Terminate(ctx))
	all, err := File(s.SessionFile)
	require(t, err)
	texts := ""
	for _, e := range Branch(all) {
		if e.Text() != "" {
			texts += e.Text() + e.MessageID() + "|"
		}
	}
	if texts != "greet|hello Ada|I said hello Ada|notedm1|I said noted|" {
		t.Errorf("the branch is %q", texts)
	}
}

func TestTerminal(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	pi, p, h, ctx := scripted(t, func(context.Context, Request) Reply { return Reply{Hold: hold} })
	term, err := StartTerminal(pi, h, nil)
	require(t, err)
	t.Cleanup(term.Close)
	require(t, term.See(ctx, "mock-1"))
	require(t, term.Type("wait for me"))
	require(t, term.See(ctx, "wait for me"))
	require(t, term.Press("Enter"))
	_, err = p.Wait(ctx, func(r Request) bool { return r.Opener == "wait for me" })
	require(t, err)
	require(t, term.See(ctx, "…"))
	require(t, term.Press("Escape"))
	require(t, term.See(ctx, "aborted"))
}
