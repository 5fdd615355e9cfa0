package store

import (
	goflag "flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"zombiezen.com/go/sqlite"
)

var updateGolden = goflag.Bool("update-schema", false, "rewrite testdata/golden/schema.sql")

func TestSchemaGolden(t *testing.T) {
	got := strings.Join(DDL(), ";\n\n") + ";\n"
	file := filepath.Join("..", "testdata", "golden", "schema.sql")
	if *updateGolden {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("the schema changed, and with it which files can be opened (run with -update-schema if that is meant):\n%s", d)
	}
}

func TestSchemaIsUsable(t *testing.T) {
	for _, table := range Schema {
		if len(table.Columns) > 63 {
			t.Errorf("%s has more columns than a set of changed ones holds", table.Name)
		}
		if table.Key < 1 || table.Key > len(table.Columns) {
			t.Errorf("%s has no key", table.Name)
		}
	}
	for _, ix := range Indexes {
		if (ix.Where == "") != (ix.Has == nil) {
			t.Errorf("%s says which rows it holds to only one of SQL and Go", ix.Name)
		}
		if ix.Primary && (ix.Where != "" || ix.Unique || !strings.HasPrefix(
			strings.Join(ix.Table.names(0, ix.Table.Key), ",")+",", strings.Join(ix.Columns, ",")+",")) {
			t.Errorf("%s is not the beginning of the primary key", ix.Name)
		}
	}
}

// No statement reads more than it returns: each finds its rows through the key
// or an index and needs no sorting.
func TestPlans(t *testing.T) {
	conn, err := sqlite.OpenConn(":memory:", sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := createSchema(conn); err != nil {
		t.Fatal(err)
	}
	check := func(name, sql string, whole bool) {
		stmt, _, err := conn.PrepareTransient("EXPLAIN QUERY PLAN " + sql)
		if err != nil {
			t.Errorf("%s: %v\n%s", name, err, sql)
			return
		}
		defer stmt.Finalize()
		var plan []string
		for {
			if more, err := stmt.Step(); err != nil || !more {
				break
			}
			plan = append(plan, stmt.ColumnText(3))
		}
		if len(plan) != 1 || !strings.HasPrefix(plan[0], "SEARCH") && !(whole && strings.HasPrefix(plan[0], "SCAN")) {
			t.Errorf("%s: plan %q\n%s", name, plan, sql)
		}
	}
	for _, table := range Schema {
		check(table.Name+" get", table.getSQL(), false)
		if len(table.Columns) > table.Key {
			check(table.Name+" update", table.updateSQL(1<<len(table.Columns)-1<<table.Key), false)
		}
	}
	for _, ix := range Indexes {
		for n := range len(ix.Columns) + 1 {
			check(ix.Name+" scan", ix.scanSQL(n), n == 0) // all of an index is asked for
			check(ix.Name+" count", ix.countSQL(n), n == 0)
		}
	}
}
