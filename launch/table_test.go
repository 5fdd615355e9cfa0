package launch_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"example.com/piworkflows/launch"
	"github.com/google/go-cmp/cmp"
)

// contract decodes one of the contract tables, refusing fields it does not know.
func contract(t *testing.T, name string, into any) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "testdata", "contract", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

type edge struct {
	From, To string
	By       []string
	When     string
}

func TestTableEqualsContract(t *testing.T) {
	var want struct {
		Rule, About string
		Edges       []edge
	}
	contract(t, "launch-transitions.json", &want)
	var got []edge
	for _, e := range launch.Table() {
		x := edge{From: e.From.String(), To: e.To.String(), When: e.When}
		for _, c := range e.By {
			x.By = append(x.By, c.String())
		}
		got = append(got, x)
	}
	if d := cmp.Diff(want.Edges, got); d != "" {
		t.Errorf("rule launch/table: the code's table is not the contract's (-contract +code):\n%s", d)
	}
}

// Legal answers exactly what the table lists, for every pair of states and
// every command, and refuses values outside the sets.
func TestLegalIsTheTable(t *testing.T) {
	want := map[[3]int]bool{}
	for _, e := range launch.Table() {
		for _, c := range e.By {
			want[[3]int{int(e.From), int(e.To), int(c)}] = true
		}
	}
	for from := 0; from < 256; from++ {
		for to := 0; to < 256; to++ {
			for by := 0; by < 256; by++ {
				if got := launch.Legal(launch.State(from), launch.State(to), launch.CommandKind(by)); got != want[[3]int{from, to, by}] {
					t.Fatalf("Legal(%d, %d, %d) = %v, the table says %v", from, to, by, got, !got)
				}
			}
		}
	}
}

// What the states say about themselves agrees with the table.
func TestStatesAgreeWithTable(t *testing.T) {
	leaves, enteredByClaim := map[launch.State]bool{}, map[launch.State]bool{}
	for _, e := range launch.Table() {
		leaves[e.From] = true
		for _, c := range e.By {
			if c == launch.CmdClaim && e.To != launch.Failed {
				enteredByClaim[e.To] = true
			}
		}
	}
	for _, s := range launch.States() {
		if s.Terminal() == leaves[s] || s.Live() != leaves[s] {
			t.Errorf("%s: Terminal %v and Live %v, but the table leaves it: %v", s, s.Terminal(), s.Live(), leaves[s])
		}
		if want := enteredByClaim[s] || s == launch.Running; s.Claimed() != want {
			t.Errorf("%s: Claimed is %v", s, !want)
		}
	}
	for _, s := range []launch.State{0, launch.Cancelled + 1, 255} {
		if s.Terminal() || s.Live() || s.Claimed() || s.String() != "none" {
			t.Errorf("state %d is outside the set and must be nothing", s)
		}
	}
}

// Every name of a closed set is there once, and a value outside has none.
func TestNames(t *testing.T) {
	distinct(t, "states", "none", launch.Queued, launch.Cancelled)
	distinct(t, "modes", "none", launch.Interactive, launch.Headless)
	distinct(t, "actors", "none", launch.Model, launch.Timer)
	distinct(t, "park reasons", "", launch.ParkDue, launch.ParkAttention)
	distinct(t, "attention reasons", "", launch.NoProgress, launch.PromptsLost)
	distinct(t, "commands", "unknown", launch.CmdReserve, launch.CmdAttend)
	distinct(t, "events", "unknown", launch.EvReserved, launch.EvCancelled)
}

func distinct[T interface {
	~uint8
	String() string
}](t *testing.T, what, outside string, first, last T) {
	t.Helper()
	seen := map[string]bool{}
	for v := first; v <= last; v++ {
		if n := v.String(); n == "" || n == outside || n == "none" || seen[n] {
			t.Errorf("%s: %d is called %q", what, v, n)
		}
		seen[v.String()] = true
	}
	if n := (last + 1).String(); n != outside {
		t.Errorf("%s: %d is outside the set and called %q", what, last+1, n)
	}
}
