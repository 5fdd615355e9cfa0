package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/engine/session"
	"example.com/piworkflows/intents"
	"example.com/piworkflows/launch"
	"example.com/piworkflows/store"
)

// name gives an id that has no name yet the next one of its sort: m1, i1.
func (a *actor) name(sort, id string) {
	if id == "" || a.names[id] != "" {
		return
	}
	a.count[sort]++
	a.bind(sort+strconv.Itoa(a.count[sort]), id)
}

func (a *actor) bind(name, id string) {
	a.names[id], a.ids[name] = name, id
	a.replaced = append([]string{id, name}, a.replaced...)
}

// learn names the messages, intents and requests that events tell of.
func (a *actor) learn(events []store.Event) {
	for _, e := range events {
		a.name("m", e.Message)
		a.name("i", e.Intent)
		a.name("q", e.Request)
	}
}

// alias puts names in the place of ids.
func (a *actor) alias(text string) string {
	return strings.NewReplacer(a.replaced...).Replace(text)
}

// event prints a committed event as "stream#n kind from>to (what) why".
func (a *actor) event(e store.Event) string {
	stream := string(e.Run)
	if e.Of != 0 || e.Turn != 0 || strings.HasPrefix(e.Kind, "store.") || strings.HasPrefix(e.Kind, "chain.") {
		stream = string(e.Session)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s#%d %s", stream, e.N, e.Kind)
	switch {
	case e.From != "" && e.From != e.To:
		fmt.Fprintf(&b, " %s>%s", e.From, e.To)
	case e.To != "":
		b.WriteString(" " + e.To)
	}
	for _, what := range []string{e.Message, e.Intent, e.Request, e.Node} {
		if what != "" {
			b.WriteString(" " + what)
		}
	}
	if stream != string(e.Run) && e.Run != "" {
		b.WriteString(" " + string(e.Run))
	}
	if e.Why != "" {
		fmt.Fprintf(&b, " (%s)", e.Why)
	}
	return b.String()
}

func printClaimed(c store.Claimed) string {
	s := c.State.String()
	if c.Generation != 0 && !c.State.Terminal() {
		s += fmt.Sprintf(" generation=%d", c.Generation)
	}
	if c.Input != nil {
		s += fmt.Sprintf(" input=%d bytes", len(c.Input))
	}
	if c.State == launch.Running {
		s += " " + printNext(c.Next)
	}
	return "ok " + s
}

func printNext(n store.Next) string {
	switch {
	case n.Ended:
		return "ended"
	case n.Parked:
		return "parked"
	}
	s := fmt.Sprintf("at=%s/%d/%d", n.Node, n.Visit, n.Attempt)
	if n.Recovering {
		s += " recovering"
	}
	if n.Ambiguous {
		s += " ambiguous"
	}
	return s
}

func printCancellation(c store.Cancellation) string {
	s := "ok cancelled now"
	switch {
	case c.Won:
	case c.State == launch.Cancelled:
		s = "ok already cancelled"
	default:
		s = "ok already ended: " + c.State.String()
	}
	if !c.Error.IsZero() {
		s += " (" + string(c.Error.Code) + ")"
	}
	if c.Live != "" {
		s += " live=" + string(c.Live)
	}
	return s
}

func printMessage(m *session.Message) string {
	s := fmt.Sprintf("%s %s issue=%d %s run=%s", m.ID, m.Kind, m.Issue, m.State, m.Run)
	if m.Intent != "" {
		s += " intent=" + m.Intent
	}
	s += fmt.Sprintf(" attempts=%d refusals=%d", m.Attempts, m.Refusals)
	if m.Attempt.Epoch != 0 {
		s += fmt.Sprintf(" attempt(epoch=%d deadline=%s taken=%v)", m.Attempt.Epoch, since(m.Attempt.Deadline), m.Attempt.Taken)
	}
	if m.Turn.Opened != 0 {
		s += " turn=" + m.Turn.ID
		if m.Turn.Closed != 0 {
			s += ":" + m.Turn.End.String()
		}
	}
	for _, f := range []struct {
		name string
		on   bool
	}{{"seen", m.Seen}, {"durable", m.Durable}, {"watched", m.Watched}} {
		if f.on {
			s += " " + f.name
		}
	}
	return s
}

func printIntent(i *intents.Intent) string {
	s := fmt.Sprintf("%s %s run=%s facts(%s", i.ID, i.Cause, i.Run, i.Facts.Observed)
	if i.Facts.Code != "" {
		s += " " + string(i.Facts.Code)
	}
	if i.Facts.Handoff {
		s += " handoff"
	}
	s += ")"
	switch {
	case i.ResolvedAt != 0:
		s += " resolved as " + i.Resolution.String() + " by " + i.ResolutionMessage
	case i.WithdrawnAt != 0:
		s += " withdrawn: " + i.WithdrawnReason.String()
	case i.EligibleAt != 0:
		s += " eligible at " + since(i.EligibleAt)
	default:
		s += " not eligible"
	}
	if i.Carried() {
		s += " carried until " + since(i.DeliveryClaimExpiresAt)
	}
	return s
}

func since(t launch.Time) string {
	if t == 0 {
		return "-"
	}
	return "T+" + t.Sub(epoch).Round(time.Millisecond).String()
}

// diffDumps lists what changed in the tables, a row a line.
func diffDumps(before, after dump) (lines []string) {
	for _, t := range store.Schema {
		if t.Name == "workflow_events" { // printed as events
			if len(after[t.Name]) < len(before[t.Name]) {
				lines = append(lines, "events are gone")
			}
			continue
		}
		var changed []string
		for key, v := range after[t.Name] {
			old := before[t.Name][key]
			var cols []string
			for i, c := range t.Columns {
				was := store.Value{}
				if old != nil {
					was = old[i]
				}
				if a, b := printValue(c.Name, was), printValue(c.Name, v[i]); a != b && old != nil {
					cols = append(cols, c.Name+" "+a+">"+b)
				} else if a != b && b != "0" && b != "-" && c.Name != "run_id" {
					cols = append(cols, c.Name+"="+b)
				}
			}
			sign := "~"
			if old == nil {
				sign = "+"
			}
			if len(cols) > 0 {
				keys := make([]string, t.Key)
				for i := range keys {
					keys[i] = printValue(t.Columns[i].Name, v[i])
				}
				changed = append(changed, fmt.Sprintf("%s %s %s: %s", sign, t.Name, strings.Join(keys, "/"), strings.Join(cols, ", ")))
			}
		}
		for key := range before[t.Name] {
			if after[t.Name][key] == nil {
				changed = append(changed, "- "+t.Name+" "+key)
			}
		}
		slices.Sort(changed)
		lines = append(lines, changed...)
	}
	return lines
}

// printValue prints a column value: times as distance, secrets and digests as
// their first bytes.
func printValue(column string, v store.Value) string {
	switch v.Kind {
	case store.Int:
		timed := strings.HasSuffix(column, "_at") || strings.HasSuffix(column, "_deadline") || strings.HasSuffix(column, "_until") || column == "pending_since" || column == "at"
		if timed && v.Int > int64(epoch)/2 {
			return since(launch.Time(v.Int))
		}
		return strconv.FormatInt(v.Int, 10)
	case store.Text:
		return v.Text
	case store.Blob:
		if column == "run_id" {
			return "run"
		}
		if column == "input" || column == "output" || column == "body" {
			return fmt.Sprintf("%d bytes", len(v.Blob))
		}
		return fmt.Sprintf("%x..", v.Blob[:min(3, len(v.Blob))])
	}
	return "-"
}

// graphs are the plans that scripts name.
var graphs = map[string]*run.Plan{
	"one": {MaxSteps: 100, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}}},
	"two": {MaxSteps: 100, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}, {Path: "b", Kind: run.Compute}},
		Edges: []run.Edge{{From: "a", On: run.Plain, To: "b"}}},
	"pay": {MaxSteps: 100, Start: "pay", Nodes: []run.Node{{Path: "pay", Kind: run.Action, Policy: run.Unrepeatable}}},
	"put": {MaxSteps: 100, Start: "put", Nodes: []run.Node{{Path: "put", Kind: run.Action, Policy: run.Repeatable}}},
	"ask": {MaxSteps: 100, Start: "ask", Nodes: []run.Node{{Path: "ask", Kind: run.Action, Policy: run.Observed}}},
	"loop": {MaxSteps: 4, Start: "a", Nodes: []run.Node{{Path: "a", Kind: run.Compute}},
		Edges: []run.Edge{{From: "a", On: run.Plain, To: "a"}}},
	"review": {MaxSteps: 100, Start: "draft", Nodes: []run.Node{
		{Path: "draft", Kind: run.Agent, Ask: &run.Ask{Form: []byte(formObject)}},
		{Path: "check", Kind: run.Checkpoint, Ask: &run.Ask{Form: []byte(formObject)}}},
		Edges: []run.Edge{{From: "draft", On: run.Plain, To: "check"}}},
}
