package store

import "fmt"

// Identity of the file format. There is one version and no migration: a file
// with any other layout is refused (rule store/layout).
const (
	ApplicationID = 0x50495746 // "PIWF"
	UserVersion   = 1
	SchemaID      = "pi-workflows.controller-store.v1"
)

// Schema lists every table in the order of creation.
var Schema = number(
	launchTable, runTable, stepTable, effectTable, eventTable,
	intentTable, sourceTable, sessionTable, messageTable, chainTable,
	requestTable, receiptTable, intervalTable, settingsTable, presentationTable,
)

// Indexes lists every index in the order of creation.
var Indexes = numberIndexes(Schema)

func number(tables ...*Table) []*Table {
	for i, t := range tables {
		t.id = i
	}
	return tables
}

func numberIndexes(tables []*Table) (all []*Index) {
	for _, t := range tables {
		for _, ix := range t.Indexes {
			ix.Table, ix.id = t, len(all)
			for _, name := range ix.Columns {
				ix.cols = append(ix.cols, t.column(name))
			}
			all = append(all, ix)
		}
	}
	return all
}

func (t *Table) column(name string) int {
	for i, c := range t.Columns {
		if c.Name == name {
			return i
		}
	}
	panic(fmt.Sprintf("table %s has no column %s", t.Name, name)) // at package initialisation only
}
