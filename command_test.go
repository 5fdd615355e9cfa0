package piworkflows

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

const someRun = launch.RunID("review-01ARZ3NDEKTSV4RRFFQ69G5FAV")

func TestParseCommand(t *testing.T) {
	run := string(someRun)
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	for _, c := range []struct {
		why, text string
		want      toolArgs
	}{
		{"nothing means status", "", toolArgs{Action: "status"}},
		{"space is nothing", " \t\n", toolArgs{Action: "status"}},
		{"an action without words", "list", toolArgs{Action: "list"}},
		{"an optional word", "status " + run, toolArgs{Action: "status", RunID: someRun}},
		{"any space", "\tstatus\u00a0" + run + "\n", toolArgs{Action: "status", RunID: someRun}},
		{"the last word is taken whatever it looks like", "status nonsense", toolArgs{Action: "status", RunID: "nonsense"}},
		{"a word by name", "status runId=" + run, toolArgs{Action: "status", RunID: someRun}},
		{"start without input", "start review", toolArgs{Action: "start", Workflow: "review"}},
		{"start with JSON, spaces and all", `start review {"title": "a  b"}`, toolArgs{Action: "start", Workflow: "review", Input: raw(`{"title": "a  b"}`)}},
		{"start with text", "start review two words", toolArgs{Action: "start", Workflow: "review", Input: raw(`"two words"`)}},
		{"by name the rest of the line too", `start workflow=review input={"title": "a b"}`, toolArgs{Action: "start", Workflow: "review", Input: raw(`{"title": "a b"}`)}},
		{"half JSON is text", `start review {"title":`, toolArgs{Action: "start", Workflow: "review", Input: raw(`"{\"title\":"`)}},
		{"answer with JSON", `answer req-1 {"n": 1}`, toolArgs{Action: "answer", Request: "req-1", Output: raw(`{"n": 1}`)}},
		{"answer with plain text", "answer req-1 yes, and soon", toolArgs{Action: "answer", Request: "req-1", Output: raw(`"yes, and soon"`)}},
		{"answer with a number", "answer req-1 42", toolArgs{Action: "answer", Request: "req-1", Output: raw("42")}},
		{"answer with null", "answer req-1 null", toolArgs{Action: "answer", Request: "req-1", Output: raw("null")}},
		{"answer with what looks like another command's name", "answer req-1 choice=a", toolArgs{Action: "answer", Request: "req-1", Output: raw(`"choice=a"`)}},
		{"decide", "decide req-1 approve", toolArgs{Action: "decide", Request: "req-1", Choice: "approve"}},
		{"decide with text", "decide req-1 redo say  more", toolArgs{Action: "decide", Request: "req-1", Choice: "redo", Text: "say  more"}},
		{"decide with text in two lines", "decide req-1 redo a\nb", toolArgs{Action: "decide", Request: "req-1", Choice: "redo", Text: "a\nb"}},
		{"decide by names", "decide choice=redo requestId=req-1 text=say more", toolArgs{Action: "decide", Request: "req-1", Choice: "redo", Text: "say more"}},
		{"a name among the words", "decide req-1 choice=redo say more", toolArgs{Action: "decide", Request: "req-1", Choice: "redo", Text: "say more"}},
		{"a text that names what is set", "decide req-1 redo choice=redo", toolArgs{Action: "decide", Request: "req-1", Choice: "redo", Text: "choice=redo"}},
		{"restart of the run on display", "restart", toolArgs{Action: "restart"}},
		{"restart of a run", "restart " + run, toolArgs{Action: "restart", RunID: someRun}},
		{"restart at a revision", "restart " + run + " 7", toolArgs{Action: "restart", RunID: someRun, Revision: 7}},
		{"restart of the run on display at a revision", "restart 7", toolArgs{Action: "restart", Revision: 7}},
		{"a name after a word", "restart " + run + " revision=7", toolArgs{Action: "restart", RunID: someRun, Revision: 7}},
		{"configure of the run on display", `configure {"tone": "dry"}`, toolArgs{Action: "configure", Settings: raw(`{"tone": "dry"}`)}},
		{"configure of a run", "configure " + run + ` {"tone":"dry"}`, toolArgs{Action: "configure", RunID: someRun, Settings: raw(`{"tone":"dry"}`)}},
		{"resolve", "resolve eff-1 applied I saw it", toolArgs{Action: "resolve", Effect: "eff-1", Finding: "applied", Evidence: "I saw it"}},
		{"resolve of another session's run, with an output", "resolve " + run + ` eff-1 applied output={"n":1} I saw it`,
			toolArgs{Action: "resolve", RunID: someRun, Effect: "eff-1", Finding: "applied", Output: raw(`{"n":1}`), Evidence: "I saw it"}},
		{"reopen", "reopen message:1", toolArgs{Action: "reopen", Message: "message:1"}},
	} {
		t.Run(c.why, func(t *testing.T) {
			got, err := parseCommand(c.text)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestParseCommandRefuses(t *testing.T) {
	for _, c := range []struct{ why, text, want string }{
		{"an unknown command", "burn", "there is no such command; write one of: list, start, status, answer, pause,"},
		{"a command in other case", "Status", "there is no such command"},
		{"what only the model does", "submit req-1 x", "there is no such command"},
		{"words that are missing", "decide", "requestId is missing; write /workflow decide <requestId> <choice> [text...]"},
		{"one word that is missing", "decide req-1", "choice is missing; write /workflow decide"},
		{"a rest that is missing", "answer req-1", "output is missing; write /workflow answer <requestId> <output...>"},
		{"a word that is missing beside names", "decide choice=a", "requestId is missing"},
		{"more words", "list all", "there are more words than the command takes; write /workflow list"},
		{"more words after optional ones", "pause " + string(someRun) + " now", "there are more words than the command takes; write /workflow pause [runId]"},
		{"a name twice", "status runId=a runId=b", "there are more words"},
		{"a name of another command", "status " + string(someRun) + " workflow=review", "there are more words"},
		{"a revision that is none", "restart " + string(someRun) + " soon", "revision must be a whole number above 0; write /workflow restart"},
		{"a negative revision", "restart revision=-1", "revision must be a whole number above 0"},
		{"a huge revision", "restart revision=99999999999999999999", "revision must be a whole number above 0"},
		{"revision 0", "restart revision=0", "revision must be a whole number above 0"},
		{"an output by its place", "resolve eff-1 applied", "evidence is missing; write /workflow resolve [runId] <effectId> <finding> [output=] <evidence...>"},
		{"no UTF-8", "answer req-1 \xff", "is not valid UTF-8"},
		{"too many bytes", "answer req-1 " + strings.Repeat("x", launch.MaxInput), "the bound is 1048576"},
	} {
		t.Run(c.why, func(t *testing.T) {
			_, err := parseCommand(c.text)
			if !errors.Is(err, launch.ErrInvalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Each word of a usage is an argument, and each parameter of the schema is too.
func TestUsages(t *testing.T) {
	known := func(name string) bool { _, ok := field(&toolArgs{}, name); return ok }
	described := map[string]bool{}
	for _, p := range toolParams {
		if described[p.name] = true; !known(p.name) {
			t.Errorf("parameter %s is no argument", p.name)
		}
	}
	for _, a := range toolActions {
		words := strings.Fields(a.words)
		for i, w := range words {
			if name := argument(w); !known(name) || !described[name] {
				t.Errorf("%s: %s is no argument, or not described", a.name, w)
			}
			if strings.Contains(w, "...") && i+1 < len(words) {
				t.Errorf("%s: %s takes the rest of the line and is not the last word", a.name, w)
			}
		}
		if a.person && a.words == "" {
			t.Errorf("%s is for people only, and they cannot write it", a.name)
		}
	}
}

// Whatever a person writes, it is refused or gives what the usage has and nothing
// else, with every word that has to be there.
func FuzzParseCommand(f *testing.F) {
	for _, a := range toolActions {
		f.Add(a.name)
		f.Add(a.name + " " + a.words)
		f.Add(a.name + " a b c d e")
		f.Add(a.name + " " + string(someRun) + ` 7 {"a": 1} text`)
		for _, w := range strings.Fields(a.words) {
			f.Add(a.name + " " + argument(w) + "=x y")
		}
	}
	f.Add(`start workflow=w input=[1, 2]`)
	f.Add("decide choice=\u2028a requestId==b text=\"")
	f.Fuzz(func(t *testing.T, text string) {
		args, err := parseCommand(text)
		if err != nil {
			if !errors.Is(err, launch.ErrInvalid) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		raw, err := json.Marshal(args)
		if err != nil || !utf8.Valid(raw) {
			t.Fatalf("%q gives what is no JSON: %v", text, err)
		}
		var set map[string]json.RawMessage
		if err := json.Unmarshal(raw, &set); err != nil {
			t.Fatal(err)
		}
		delete(set, "action")
		for _, a := range toolActions {
			if a.name != args.Action {
				continue
			}
			for _, w := range strings.Fields(a.words) {
				if _, ok := set[argument(w)]; !ok && w[0] == '<' {
					t.Fatalf("%q: %s is missing", text, w)
				}
				delete(set, argument(w))
			}
		}
		if len(set) > 0 {
			t.Fatalf("%q sets what %s has not: %s", text, args.Action, raw)
		}
	})
}
