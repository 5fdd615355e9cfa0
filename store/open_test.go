package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"example.com/piworkflows/launch"
)

func TestPrivate(t *testing.T) {
	for _, umask := range []string{"0", "22", "777"} {
		path := filepath.Join(t.TempDir(), "a", "b", "store.db")
		got := runChild(t, child(t, "umask", path, umask), false)
		if got != "700 700 600 600 600 " {
			t.Errorf("umask %s: modes of directories, database, log and index are %s", umask, got)
		}
	}
}

func TestUnusablePaths(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(at("real"), nil, 0o600))
	must(os.Symlink(at("real"), at("link")))
	must(os.Mkdir(at("dir"), 0o700))
	must(os.WriteFile(at("wide"), nil, 0o600))
	must(os.Chmod(at("wide"), 0o640))
	must(os.WriteFile(at("narrow"), nil, 0o400))
	must(os.Mkdir(at("open"), 0o700))
	must(os.Chmod(at("open"), 0o777))
	must(os.Mkdir(at("sticky"), 0o700))
	must(os.Chmod(at("sticky"), 0o777|fs.ModeSticky))
	must(syscall.Mkfifo(at("pipe"), 0o600))
	must(os.Symlink(at("real"), at("log-wal")))
	must(os.WriteFile(at("lost-wal"), []byte("a log without a database"), 0o600))
	for _, c := range []struct {
		path string
		want error
		why  string
	}{
		{"", launch.ErrInvalid, "no path"},
		{at("a\x00b"), launch.ErrInvalid, "no file has that name"},
		{at("new") + "/", launch.ErrInvalid, "names a directory"},
		{at("dir"), launch.ErrInvalid, "is a directory"},
		{at("link"), launch.ErrInvalid, "a symbolic link"},
		{at("log"), launch.ErrInvalid, "its log is a symbolic link"},
		{at("pipe"), launch.ErrInvalid, "a pipe"},
		{at("wide"), launch.ErrInvalid, "others can read it"},
		{at("narrow"), launch.ErrInvalid, "its owner cannot write it"},
		{at("open/x"), launch.ErrInvalid, "everyone can replace it"},
		{at("real/x"), launch.ErrInvalid, "its directory is a file"},
		{"/proc/nowhere/x", launch.ErrInvalid, "its directory cannot be created"},
		{at("lost"), launch.ErrIncompatible, "there is only a log, which SQLite would delete"},
		{at("sticky/x"), nil, "nobody else can replace it"},
		{at("file:x?mode=memory"), nil, "an odd name is only a name"},
	} {
		e, err := OpenSQLite(c.path, SQLiteOptions{})
		if c.want == nil && err != nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%q (%s): %v", c.path, c.why, err)
		}
		if err == nil {
			e.Close()
		}
		if info, e := os.Stat(c.path); c.want == nil && (e != nil || info.Size() == 0) {
			t.Errorf("%q (%s): nothing is there: %v", c.path, c.why, e)
		}
	}
	if info, _ := os.Stat(at("open")); info.Mode().Perm() != 0o777 {
		t.Error("an existing directory was changed")
	}
}

func TestReadOnlyDirectory(t *testing.T) {
	dir := t.TempDir()
	openAt(t, filepath.Join(dir, "old"), SQLiteOptions{}).Close()
	const nobody = 65534
	root := os.Getuid() == 0 // who may write everywhere
	if root {
		for _, p := range []string{dir, filepath.Join(dir, "old")} {
			if err := os.Chown(p, nobody, nobody); err != nil {
				t.Skip(err)
			}
		}
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	for _, name := range []string{"old", "new", "sub/new"} {
		cmd := child(t, "open", filepath.Join(dir, name), "1")
		if root {
			cmd.Path = "/proc/self/exe"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		}
		out, err := cmd.Output()
		if err == nil || !strings.HasPrefix(string(out), "error: invalid input: ") {
			t.Errorf("%s: %v %s", name, err, out)
		}
	}
}

func TestOldEngine(t *testing.T) {
	defer func(v int) { engineVersion = v }(engineVersion)
	engineVersion = minEngineVersion - 1
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := OpenSQLite(path, SQLiteOptions{}); !errors.Is(err, launch.ErrIncompatible) {
		t.Errorf("with an old SQLite: %v", err)
	}
	if sizeOf(path) >= 0 {
		t.Error("a file was created all the same")
	}
}

// Files of another layout are refused and keep every byte, also when all that
// they hold is in the log of a process that was killed.
func TestOtherLayouts(t *testing.T) {
	someIndex := ""
	for _, ix := range Indexes {
		if !ix.Primary {
			someIndex = ix.Name
			break
		}
	}
	for _, c := range []struct {
		name string
		sql  []string // "ours" makes our own schema
		why  string
	}{
		{"another program", []string{"CREATE TABLE notes (a)"}, "belongs to another program"},
		{"another program, empty", []string{"PRAGMA application_id = 7"}, "belongs to another program"},
		{"another program with our id", []string{"CREATE TABLE notes (a)", fmt.Sprintf("PRAGMA application_id = %d", ApplicationID), "PRAGMA user_version = 1"}, "missing"},
		{"newer", []string{"ours", "PRAGMA user_version = 2"}, "user version 2"},
		{"older", []string{"ours", "PRAGMA user_version = 0"}, "user version 0"},
		{"a further table", []string{"ours", "CREATE TABLE notes (a)"}, "does not belong"},
		{"a table less", []string{"ours", "DROP TABLE " + Schema[0].Name}, "missing"},
		{"a further column", []string{"ours", "ALTER TABLE workflow_store ADD COLUMN note TEXT"}, "missing or different"},
		{"a further index", []string{"ours", "CREATE INDEX notes ON workflow_store (schema_id)"}, "does not belong"},
		{"an index less", []string{"ours", "DROP INDEX " + someIndex}, "missing"},
		{"a trigger", []string{"ours", "CREATE TRIGGER tr AFTER UPDATE ON workflow_store BEGIN SELECT 1; END"}, "does not belong"},
		{"another schema id", []string{"ours", "UPDATE workflow_store SET schema_id = 'v2'"}, "schema id"},
		{"no schema id", []string{"ours", "DELETE FROM workflow_store"}, "schema id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			runChild(t, child(t, "sql", path, c.sql...), true)
			if sizeOf(path+"-wal") <= 0 {
				t.Fatal("the child left no log")
			}
			wantRefused(t, path, c.why)
		})
	}
	ours := filepath.Join(t.TempDir(), "store.db")
	openAt(t, ours, SQLiteOptions{}).Close()
	whole, err := os.ReadFile(ours)
	if err != nil {
		t.Fatal(err)
	}
	broken := bytes.Clone(whole)
	for i := 100; i < 4096; i++ {
		broken[i] = 0xa5
	}
	t.Run("a hot rollback journal", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "store.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		runChild(t, child(t, "sql", path, "PRAGMA journal_mode = DELETE", "CREATE TABLE notes (a)", "PRAGMA cache_size = 1", "BEGIN IMMEDIATE",
			"INSERT INTO notes WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT randomblob(4000) FROM n"), true)
		wantRefused(t, path, "unfinished")
	})
	for name, content := range map[string][]byte{
		"text": []byte("dear diary"), "long text": bytes.Repeat([]byte("dear diary "), 1000), "cut": whole[:5000], "overwritten": broken,
		"zeros": make([]byte, 8192),
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			wantRefused(t, path, "")
		})
	}
}

func wantRefused(t *testing.T, path, why string) {
	t.Helper()
	read := func() (all []byte) {
		for _, suffix := range []string{"", "-wal"} {
			b, err := os.ReadFile(path + suffix)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			all = fmt.Appendf(append(all, b...), "|%d %v|", len(b), err == nil)
		}
		return all
	}
	before := read()
	e, err := OpenSQLite(path, SQLiteOptions{BusyTimeout: time.Second})
	if err == nil {
		e.Close()
	}
	if !errors.Is(err, launch.ErrIncompatible) || !strings.Contains(fmt.Sprint(err), why) || !strings.Contains(fmt.Sprint(err), "-wal") {
		t.Errorf("the answer is %v; want incompatible with %q and how to reset", err, why)
	}
	if !bytes.Equal(before, read()) {
		t.Error("the refused file or its log was changed")
	}
}

// What a process left that was killed while it created the file is completed.
func TestHalfCreated(t *testing.T) {
	for name, sql := range map[string][]string{
		"only the log mode":           {},
		"an unfinished transaction":   {"BEGIN IMMEDIATE", "ours"},
		"its content only in the log": {"BEGIN IMMEDIATE", "ours", "COMMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "store.db")
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			runChild(t, child(t, "sql", path, sql...), true)
			e := openAt(t, path, SQLiteOptions{})
			if err := putEvent(e, context.Background(), 1); err != nil {
				t.Error(err)
			}
		})
	}
}
