package store

import (
	"fmt"
	"strings"
)

// storeTable names the layout in words, for people who look at the file; it
// holds one row.
const storeTable = `CREATE TABLE workflow_store (
  only INTEGER PRIMARY KEY CHECK (only = 1),
  schema_id TEXT NOT NULL
) STRICT`

// DDL returns the statements that create the schema, in order. A file belongs
// to this version exactly if its schema has this text (rule store/layout).
func DDL() []string {
	all := []string{storeTable}
	for _, t := range Schema {
		all = append(all, t.ddl())
		for _, ix := range t.Indexes {
			if !ix.Primary {
				all = append(all, ix.ddl())
			}
		}
	}
	return all
}

func (t *Table) ddl() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CREATE TABLE %s (\n", t.Name)
	for _, c := range t.Columns {
		fmt.Fprintf(&b, "  %s %s,\n", c.Name, c.Decl)
	}
	fmt.Fprintf(&b, "  PRIMARY KEY (%s)", strings.Join(t.names(0, t.Key), ", "))
	for _, check := range t.Checks {
		fmt.Fprintf(&b, ",\n  %s", check)
	}
	b.WriteString("\n) STRICT, WITHOUT ROWID")
	return b.String()
}

func (ix *Index) ddl() string {
	unique := ""
	if ix.Unique {
		unique = "UNIQUE "
	}
	where := ""
	if ix.Where != "" {
		where = "\nWHERE " + ix.Where
	}
	return fmt.Sprintf("CREATE %sINDEX %s\nON %s (%s)%s", unique, ix.Name, ix.Table.Name, strings.Join(ix.Columns, ", "), where)
}

// names returns the names of columns from <= i < to.
func (t *Table) names(from, to int) []string {
	var names []string
	for _, c := range t.Columns[from:to] {
		names = append(names, c.Name)
	}
	return names
}

// The statements that rows are read and written with. Column names and
// conditions come from the schema only, values are always bound.

func (t *Table) getSQL() string {
	return fmt.Sprintf("SELECT %s FROM %s WHERE %s", strings.Join(t.names(0, len(t.Columns)), ", "), t.Name, t.whereKey())
}

func (t *Table) insertSQL() string {
	return fmt.Sprintf("INSERT INTO %s VALUES (?%s)", t.Name, strings.Repeat(", ?", len(t.Columns)-1))
}

// updateSQL sets the columns of the bit set changed, in order, and then binds
// the key.
func (t *Table) updateSQL(changed uint64) string {
	var set []string
	for i, c := range t.Columns {
		if changed&(1<<i) != 0 {
			set = append(set, c.Name+" = ?")
		}
	}
	return fmt.Sprintf("UPDATE %s SET %s WHERE %s", t.Name, strings.Join(set, ", "), t.whereKey())
}

func (t *Table) whereKey() string {
	return strings.Join(t.names(0, t.Key), " = ? AND ") + " = ?"
}

// scanSQL visits an index whose first n columns are bound, then the limit.
// Equal entries are in the order of the key.
func (ix *Index) scanSQL(n int) string {
	t := ix.Table
	var order []string
	for i, c := range t.Columns[:t.Key] {
		if !ix.has(i) {
			order = append(order, c.Name)
		}
	}
	order = append(append([]string(nil), ix.Columns...), order...)
	if ix.Desc {
		for i := range order {
			order[i] += " DESC"
		}
	}
	return fmt.Sprintf("SELECT %s FROM %s ORDER BY %s LIMIT ?",
		strings.Join(t.names(0, len(t.Columns)), ", "), ix.from(n), strings.Join(order, ", "))
}

func (ix *Index) countSQL(n int) string { return "SELECT count(*) FROM " + ix.from(n) }

// from names the rows of the index whose first n columns are bound. A bound
// NULL equals a stored one.
func (ix *Index) from(n int) string {
	from, cond := ix.Table.Name, []string(nil)
	if !ix.Primary {
		from += " INDEXED BY " + ix.Name // never a plan that scans history
	}
	if ix.Where != "" {
		cond = append(cond, ix.Where)
	}
	for _, c := range ix.Columns[:n] {
		cond = append(cond, c+" IS ?")
	}
	if len(cond) == 0 {
		return from
	}
	return from + " WHERE " + strings.Join(cond, " AND ")
}

func (ix *Index) has(col int) bool {
	for _, c := range ix.cols {
		if c == col {
			return true
		}
	}
	return false
}
