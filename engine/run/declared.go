package run

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// MaxAudience bounds who is asked to decide, in bytes.
const MaxAudience = 200

// declared checks what a node declares beyond kind, policy and choices.
func (v *validator) declared(n *Node) {
	v.within(n.Path, "budget", n.Budget, MaxBudget)
	switch {
	case n.Kind != Action && n.Shell:
		v.fail(n.Path, "only an action runs a command")
	case n.Kind != Notify && n.Final:
		v.fail(n.Path, "only a notify says the last word")
	}
	if r := n.Retry; r != nil {
		v.retry(n.Path, r)
	}
	switch {
	case n.Kind.Asks() && n.Ask == nil:
		v.fail(n.Path, "a node of kind %s needs to say what answers it", n.Kind)
	case !n.Kind.Asks() && n.Ask != nil:
		v.fail(n.Path, "a node of kind %s asks nothing", n.Kind)
	case n.Ask != nil:
		v.ask(n, n.Ask)
	}
}

func (v *validator) within(path, what string, d, most time.Duration) {
	if d < 0 || d > most {
		v.fail(path, "%s is %s; it must be 0 to %s", what, d, most)
	}
}

func (v *validator) retry(path string, r *Retry) {
	if r.Max < 1 || r.Max > MaxRetries {
		v.fail(path, "retries must be 1 to %d", MaxRetries)
	}
	v.within(path, "backoff", r.Backoff, MaxBackoff)
	for i, o := range r.On {
		if o != Failed && o != TimedOut || slices.Contains(r.On[:i], o) {
			v.fail(path, "retries are on outcomes failed and timed_out, each at most once")
		}
	}
	if len(r.On) == 0 {
		v.fail(path, "retries need an outcome: failed, timed_out or both")
	}
}

func (v *validator) ask(n *Node, a *Ask) {
	if !isObject(a.Form, launch.MaxOptions) {
		v.fail(n.Path, "form must be a JSON object of at most %d bytes", launch.MaxOptions)
	}
	decides := n.Kind == Decision
	switch {
	case decides && n.Choices == nil:
		v.fail(n.Path, "a decision needs a closed set of choices")
	case decides && a.Validates:
		v.fail(n.Path, "a decision is validated by nobody but the person who decides")
	case n.Kind != Agent && a.Updates:
		v.fail(n.Path, "only an agent takes progress updates")
	case !decides && a.Audience != "":
		v.fail(n.Path, "only a decision has an audience")
	case a.Audience != "" && (len(a.Audience) > MaxAudience || launch.CheckKey("audience", a.Audience) != nil):
		v.fail(n.Path, "audience has %d bytes; it must have 1 to %d, printable and on one line", len(a.Audience), MaxAudience)
	}
	v.texts(n, a)
	switch {
	case n.Kind.Prompts() && (a.Expires != 0 || a.Default != nil):
		v.fail(n.Path, "only a checkpoint or a decision expires or has a default; give the step a budget of active time")
		return
	case a.Default != nil && a.Expires == 0:
		v.fail(n.Path, "a default needs an expiry, when it is taken")
	case a.Default != nil && (len(a.Default) > launch.MaxOptions || !validJSON(a.Default)):
		v.fail(n.Path, "default must be JSON of at most %d bytes", launch.MaxOptions)
	case a.Default != nil && n.Choices != nil:
		v.defaultChoice(n, a)
	}
	v.within(n.Path, "expiry", a.Expires, MaxBudget)
}

func (v *validator) defaultChoice(n *Node, a *Ask) {
	var s string
	if json.Unmarshal(a.Default, &s) != nil || !slices.Contains(n.Choices, s) {
		v.fail(n.Path, "default must be one of %q", n.Choices)
	}
	for _, t := range a.Texts {
		if t.Choice == s && t.Required {
			v.fail(n.Path, "default %q needs a text, which nobody writes at the deadline", s)
		}
	}
}

func (v *validator) texts(n *Node, a *Ask) {
	if n.Kind != Decision && len(a.Texts) > 0 {
		v.fail(n.Path, "only a decision takes texts")
		return
	}
	seen := make(map[string]bool, len(a.Texts))
	for _, t := range a.Texts {
		switch {
		case !slices.Contains(n.Choices, t.Choice):
			v.fail(n.Path, "text for unknown choice %.80q; known are %q", t.Choice, n.Choices)
		case seen[t.Choice]:
			v.fail(n.Path, "text for choice %q is declared twice", t.Choice)
		case t.Max < 1 || t.Max > MaxText:
			v.fail(n.Path, "text for choice %q has a bound of %d characters; it must be 1 to %d", t.Choice, t.Max, MaxText)
		}
		seen[t.Choice] = true
	}
}

// approvals checks which decisions approve which actions; that a decision was
// made by then is for the reads.
func (v *validator) approvals() {
	for i := range v.p.Nodes {
		n := &v.p.Nodes[i]
		if n.Approval == "" {
			if n.Approving != nil {
				v.fail(n.Path, "has approving choices of no decision")
			}
			continue
		}
		if n.Kind != Action {
			v.fail(n.Path, "only an action needs an approval")
			continue
		}
		j, ok := v.index[n.Approval]
		if !ok || v.p.Nodes[j].Kind != Decision {
			v.fail(n.Path, "its approval %s is not a decision of the plan", quoteUnknown(n.Approval))
			continue
		}
		if n.Retry != nil {
			v.fail(n.Path, "is not retried, because its approval is for one effect; route its failure to the decision")
		}
		if len(n.Approving) == 0 {
			v.fail(n.Path, "names no choice of decision %s that approves it", n.Approval)
		}
		for k, c := range n.Approving {
			if !slices.Contains(v.p.Nodes[j].Choices, c) || slices.Contains(n.Approving[:k], c) {
				v.fail(n.Path, "approving choice %.80q must be one of %q, once", c, v.p.Nodes[j].Choices)
			}
		}
	}
}

const maxPaths = 100 // that a model may change

func (v *validator) settings() {
	s := v.p.Settings
	if s == nil {
		return
	}
	fail := func(format string, args ...any) {
		r := launch.Refuse(launch.ErrInvalid, "settings: "+format, args...)
		r.Field = "settings"
		v.errs = append(v.errs, r)
	}
	if !isObject(s.Defaults, MaxSettings) {
		fail("defaults must be a JSON object of at most %d bytes", MaxSettings)
	}
	if !isObject(s.Form, launch.MaxOptions) {
		fail("form must be a JSON object of at most %d bytes", launch.MaxOptions)
		return
	}
	if len(s.Model) > maxPaths {
		fail("the model may change %d paths; the bound is %d", len(s.Model), maxPaths)
		return
	}
	for i, path := range s.Model {
		switch {
		case slices.Contains(s.Model[:i], path):
			fail("path %s is listed twice", shownPath(path))
		case !member(s.Form, path):
			fail("path %s is no member of the settings", shownPath(path))
		}
	}
}

// member reports whether a form has a member at a path of names joined by '.'.
func member(form json.RawMessage, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		var object struct {
			Properties map[string]json.RawMessage `json:"properties"`
			More       json.RawMessage            `json:"additionalProperties"`
		}
		if json.Unmarshal(form, &object) != nil || name == "" {
			return false
		}
		below, ok := object.Properties[name]
		if !ok {
			if below = object.More; len(below) == 0 || below[0] != '{' {
				return false
			}
		}
		form = below
	}
	return true
}

func shownPath(s string) string {
	if len(s) <= 80 && launch.CheckKey("path", s) == nil {
		return s
	}
	return fmt.Sprintf("%.80q", s)
}

func isObject(raw json.RawMessage, most int) bool {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	return len(raw) <= most && len(trimmed) > 0 && trimmed[0] == '{' && utf8.Valid(raw) && json.Valid(raw)
}
