package piworkflows_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The packages that decide. What they decide is a function of what they are
// given, so that a generated test reaches every case in nanoseconds and every
// store and host agrees.
var pure = []string{"launch", "intents", "engine/run", "engine/request", "engine/effect", "engine/session", "engine/follow", "engine/view", "engine/admit"}

const module = "example.com/piworkflows"

// Imports that no pure package has, and why. A path also bans what is below it.
var impure = map[string]string{
	"os":                       "no file, environment or process",
	"context":                  "nothing in a decision waits or is cancelled",
	"log":                      "events are the log; a host decides what is printed",
	"math/rand":                "tokens and ids come in as values",
	"crypto/rand":              "tokens and ids come in as values",
	"net":                      "no network",
	"database":                 "rows come in as values",
	"syscall":                  "no system calls",
	"unsafe":                   "values only",
	"sync":                     "values are not shared",
	"zombiezen.com/go":         "rows come in as values",
	"modernc.org/sqlite":       "rows come in as values",
	"github.com/oklog/ulid":    "ids come in as values",
	module + "/store":          "storage is above the rules",
	module + "/scheduler":      "performing is above the rules",
	module + "/delivery":       "performing is above the rules",
	"pgregory.net/rapid":       "a test library in product code",
	"github.com/google/go-cmp": "a test library in product code",
}

// Functions of package time that read a clock or wait.
var impureTime = map[string]bool{
	"Now": true, "Since": true, "Until": true, "After": true, "AfterFunc": true, "Sleep": true, "Tick": true,
	"NewTimer": true, "NewTicker": true, "Local": true, "LoadLocation": true,
}

func TestPurePackages(t *testing.T) {
	for _, dir := range pure {
		if _, err := os.Stat(dir); os.IsNotExist(err) {
			if dir == "launch" {
				t.Errorf("package %s is missing; run the test in the module's root", dir)
			}
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range impurities(t, name, src, dir == "launch") {
				t.Error(f)
			}
		}
	}
}

// impurities returns what makes a file impure, with the reason.
func impurities(t *testing.T, name string, src []byte, leaf bool) (found []string) {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	report := func(at token.Pos, what, why string) {
		found = append(found, fset.Position(at).String()+": "+what+": "+why)
	}
	timeNames := map[string]bool{}
	for _, imp := range file.Imports {
		path, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		for banned, why := range impure {
			if path == banned || strings.HasPrefix(path, banned+"/") {
				report(imp.Pos(), "imports "+path, why)
			}
		}
		if leaf && (path == module || strings.HasPrefix(path, module+"/")) {
			report(imp.Pos(), "imports "+path, "launch is the shared vocabulary and imports nothing of the module")
		}
		if path == "time" {
			local := "time"
			if imp.Name != nil {
				local = imp.Name.Name
			}
			if local == "." {
				report(imp.Pos(), "imports time as .", "its clock could not be told from other names")
			}
			timeNames[local] = true
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && timeNames[x.Name] && impureTime[n.Sel.Name] {
				report(n.Pos(), "uses time."+n.Sel.Name, "time comes in as a value")
			}
		case *ast.GoStmt:
			report(n.Pos(), "starts a goroutine", "a decision has one order")
		}
		return true
	})
	return found
}

// The check itself finds what it is there for.
func TestImpuritiesAreFound(t *testing.T) {
	for _, c := range []struct {
		why, src string
		want     int
	}{
		{"durations are fine", `package p; import "time"; const d = time.Second`, 0},
		{"a name that only begins alike", `package p; import _ "osmosis"`, 0},
		{"a file", `package p; import "os"`, 1},
		{"a package below a banned one", `package p; import "log/slog"`, 1},
		{"a driver", `package p; import "zombiezen.com/go/sqlite"`, 1},
		{"the clock", `package p; import "time"; var t = time.Now()`, 1},
		{"the clock as a value", `package p; import "time"; var now = time.Now`, 1},
		{"the clock under another name", `package p; import tm "time"; func f() { tm.Sleep(1) }`, 1},
		{"a variable called time", `package p; func f(time struct{ Now int }) int { return time.Now }`, 0},
		{"the clock without a name", `package p; import . "time"`, 1},
		{"a goroutine", `package p; func f() { go f() }`, 1},
		{"a package of the module in the leaf", `package p; import "example.com/piworkflows/intents"`, 1},
	} {
		if got := impurities(t, "p.go", []byte(c.src), true); len(got) != c.want {
			t.Errorf("%s: found %v, want %d", c.why, got, c.want)
		}
	}
}
