package request_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/piworkflows/engine/request"
	"example.com/piworkflows/engine/run"
	"example.com/piworkflows/launch"
)

var updates = []struct{ why, payload, says string }{
	{"all members", `{"schema":"pi-workflows.progress.v1","status":"reading","completed":1.5,"total":3,"unit":"files"}`, ""},
	{"words only", `{"status":"reading"}`, ""},
	{"count only", `{"completed":3}`, ""},
	{"done", `{"completed":3,"total":3}`, ""},
	{"largest status", `{"status":"` + strings.Repeat("é", request.MaxStatus) + `"}`, ""},
	{"larger status", `{"status":"` + strings.Repeat("é", request.MaxStatus+1) + `"}`, "progress.status has 1025 characters; the bound is 1024"},
	{"larger unit", `{"completed":1,"unit":"` + strings.Repeat("x", request.MaxUnit+1) + `"}`, "progress.unit has 65 characters"},
	{"another schema", `{"schema":"pi-workflows.progress.v2","status":"x"}`, "progress.schema must be pi-workflows.progress.v1"},
	{"nothing", `{}`, "says nothing"},
	{"its schema only", `{"schema":"pi-workflows.progress.v1"}`, "says nothing"},
	{"below zero", `{"completed":-1}`, "progress.completed must be 0 to"},
	{"total below zero", `{"total":-1}`, "progress.total must be 0 to"},
	{"beyond all", `{"completed":9007199254740993e1}`, "progress.completed must be 0 to 9007199254740992"},
	{"beyond total", `{"completed":4,"total":3}`, "at most progress.total"},
	{"unknown member", `{"status":"x","percent":3}`, "unknown field"},
	{"another type", `{"status":3}`, "wrong type"},
	{"null", `{"status":null}`, "null"},
	{"no object", `"reading"`, "wrong type"},
	{"no JSON", `{`, "not valid JSON"},
	{"too large", `{"status":"` + strings.Repeat("x", launch.MaxOptions) + `"}`, "the bound is 65536"},
}

func TestProgress(t *testing.T) {
	for _, c := range updates {
		r := open(t, run.Agent)
		p := request.Respond(&r, act(r, request.ActUpdate, launch.Model, c.payload), nil, after(time.Minute))
		if c.says != "" {
			if p.Err == nil || !strings.Contains(p.Err.Error(), c.says) || p.Outcome != request.Rejected {
				t.Errorf("%s: %s %v, want %q", c.why, p.Outcome, p.Err, c.says)
			}
			same(t, c.why, r, p.Request)
			continue
		}
		var stored request.Progress
		if err := json.Unmarshal(p.Request.Progress, &stored); p.Err != nil || err != nil || stored.Schema != request.ProgressSchema {
			t.Errorf("%s: %v, %v, %s", c.why, p.Err, err, p.Request.Progress)
		}
		if d := cmp.Diff([]request.Event{{Kind: request.EvProgressed, By: launch.Model}}, p.Events); d != "" || p.Outcome != request.Taken ||
			p.Request.State != request.Pending || p.Request.Revision != r.Revision || p.Request.ProgressAt != after(time.Minute).Wall {
			t.Errorf("%s: %+v", c.why, p)
		}
		sound(t, p.Request)
	}
}

func TestEstimate(t *testing.T) {
	type update struct {
		at      int // seconds
		payload string
	}
	for _, c := range []struct {
		why     string
		updates []update
		now     int
		rate    float64
		left    time.Duration
		ok      bool
	}{
		{"nothing yet", nil, 10, 0, 0, false},
		{"one update tells no rate", []update{{0, `{"completed":1,"total":5}`}}, 10, 0, 0, false},
		{"two do", []update{{0, `{"completed":1,"total":5}`}, {10, `{"completed":3,"total":5}`}}, 10, 0.2, 10 * time.Second, true},
		{"time goes on", []update{{0, `{"completed":1,"total":5}`}, {10, `{"completed":3,"total":5}`}}, 16, 0.2, 4 * time.Second, true},
		{"longer than estimated", []update{{0, `{"completed":1,"total":5}`}, {10, `{"completed":3,"total":5}`}}, 60, 0.2, 0, true},
		{"a clock that went back", []update{{0, `{"completed":1,"total":5}`}, {10, `{"completed":3,"total":5}`}}, 5, 0.2, 10 * time.Second, true},
		{"an update from before the first", []update{{10, `{"completed":1,"total":5}`}, {0, `{"completed":3,"total":5}`}}, 16, 0, 0, false},
		{"no total", []update{{0, `{"completed":1}`}, {10, `{"completed":3}`}}, 10, 0, 0, false},
		{"words keep the count", []update{{0, `{"completed":1,"total":5}`}, {10, `{"completed":3,"total":5}`}, {20, `{"status":"x"}`}}, 20, 0.1, 20 * time.Second, true},
		{"no step forward", []update{{0, `{"completed":1,"total":5}`}, {10, `{"completed":1,"total":5}`}}, 10, 0, 0, false},
		{"counted anew", []update{{0, `{"completed":4,"total":5}`}, {100, `{"completed":1,"total":5}`}, {110, `{"completed":2,"total":5}`}}, 110, 0.1, 30 * time.Second, true},
		{"another unit", []update{{0, `{"completed":1,"total":5}`}, {100, `{"completed":10,"total":50,"unit":"lines"}`}, {110, `{"completed":20,"total":50,"unit":"lines"}`}}, 110, 1, 30 * time.Second, true},
		{"at most a year", []update{{0, `{"completed":1,"total":9e15}`}, {10, `{"completed":2,"total":9e15}`}}, 10, 0.1, 365 * 24 * time.Hour, true},
	} {
		r := open(t, run.Agent)
		for i, u := range c.updates {
			a := act(r, request.ActUpdate, launch.Model, u.payload)
			a.Key = strings.Repeat("k", i+1)
			p := request.Respond(&r, a, nil, after(time.Duration(u.at)*time.Second))
			if p.Err != nil {
				t.Fatalf("%s: %v", c.why, p.Err)
			}
			r = p.Request
		}
		rate, left, ok := r.Estimate(after(time.Duration(c.now) * time.Second).Wall)
		if math.Abs(rate-c.rate) > 1e-9 || (left-c.left).Abs() > time.Millisecond || ok != c.ok {
			t.Errorf("%s: %v a second, %s left, %v; want %v, %s, %v", c.why, rate, left, ok, c.rate, c.left, c.ok)
		}
	}
}

func FuzzParseProgress(f *testing.F) {
	for _, c := range updates {
		f.Add([]byte(c.payload[:min(len(c.payload), 300)]), int64(1), int64(2))
	}
	f.Fuzz(func(t *testing.T, payload []byte, since, at int64) {
		p, err := request.ParseProgress(payload)
		if err != nil {
			if r, ok := errors.AsType[*launch.Refusal](err); !ok || r.Kind != launch.ErrInvalid || p != (request.Progress{}) {
				t.Fatalf("%q: %+v, %v", payload, p, err)
			}
			return
		}
		raw, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := request.ParseProgress(raw); err != nil || again != p {
			t.Fatalf("%q became %s, then %+v, %v", payload, raw, again, err)
		}
		r := request.Request{Progress: raw, ProgressSince: launch.Time(since), ProgressAt: launch.Time(at)}
		rate, left, ok := r.Estimate(launch.Time(at))
		if ok && (rate <= 0 || math.IsInf(rate, 0) || left < 0) || !ok && (rate != 0 || left != 0) {
			t.Fatalf("%s: %v, %s, %v", raw, rate, left, ok)
		}
	})
}
