package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"example.com/piworkflows/engine"
	"example.com/piworkflows/examples/review/flow"
)

// workflows are the ones of one project.
func workflows(dir string) ([]*engine.Workflow, error) {
	var all []*engine.Workflow
	var errs []error
	for _, build := range []func(string) (*engine.Workflow, error){check, remind, todos, review} {
		w, err := build(dir)
		all, errs = append(all, w), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// review is the one of the review example.
func review(string) (*engine.Workflow, error) { return flow.New() }

type nothing struct{}

// check vets and tests the project. It changes nothing, so it may be repeated.
func check(dir string) (*engine.Workflow, error) {
	w := engine.New[nothing]("check", "1")
	vet := engine.Action(w, "vet", w.Input(), func(ctx context.Context, _ engine.Attempt, _ nothing) (string, error) {
		return command(ctx, dir, "go", "vet", "./...")
	}, engine.Repeatable())
	test := engine.Action(w, "test", w.Input(), func(ctx context.Context, _ engine.Attempt, _ nothing) (string, error) {
		return command(ctx, dir, "go", "test", "./...")
	}, engine.Repeatable())
	engine.Then(vet, test)
	return w.Build()
}

// command runs a command. What it says of a failure is for the model to read.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out[max(0, len(out)-1500):]))
	if err != nil {
		return "", engine.Explain(fmt.Sprintf("%s %s: %v: %s", name, strings.Join(args, " "), err, strings.ReplaceAll(text, "\n", " | ")), err)
	}
	return text, nil
}

type reminder struct {
	Minutes float64 `json:"minutes"`
	What    string  `json:"what"`
}

// remind ends after some minutes, so that the model gets a turn then. The time
// is fixed once: a host that is closed or killed goes on waiting for it.
func remind(string) (*engine.Workflow, error) {
	w := engine.New[reminder]("remind", "1")
	due := engine.Action(w, "fix-time", w.Input(), func(_ context.Context, _ engine.Attempt, in reminder) (time.Time, error) {
		if in.Minutes < 0 || in.Minutes > 7*24*60 {
			return time.Time{}, engine.Explain("minutes must be between 0 and 10080", nil)
		}
		return time.Now().Add(time.Duration(in.Minutes * float64(time.Minute))), nil
	}, engine.Repeatable())
	wait := engine.Action(w, "wait", due, func(ctx context.Context, _ engine.Attempt, due time.Time) (string, error) {
		select {
		case <-time.After(time.Until(due)):
			return "it is time", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}, engine.Repeatable())
	engine.Then(due, wait)
	return w.Build()
}

// todos writes TODO.md, the list of the project's TODO comments.
func todos(dir string) (*engine.Workflow, error) {
	w := engine.New[nothing]("todos", "1")
	list := engine.Action(w, "collect", w.Input(), func(ctx context.Context, _ engine.Attempt, _ nothing) ([]string, error) {
		return collect(ctx, dir)
	}, engine.Repeatable())
	write := engine.Action(w, "write", list, func(_ context.Context, _ engine.Attempt, lines []string) (int, error) {
		text := "# To do\n\n- " + strings.Join(lines, "\n- ") + "\n"
		return len(lines), os.WriteFile(filepath.Join(dir, "TODO.md"), []byte(text), 0o644)
	}, engine.Repeatable())
	engine.Then(list, write)
	return w.Build()
}

func collect(ctx context.Context, dir string) (all []string, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || ctx.Err() != nil:
			return errors.Join(err, ctx.Err())
		case d.IsDir() && path != dir && strings.HasPrefix(d.Name(), "."):
			return fs.SkipDir
		case filepath.Ext(path) != ".go" || len(all) == 1000:
			return nil
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		name, _ := filepath.Rel(dir, path)
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			if i := strings.Index(lines.Text(), "// TODO"); i >= 0 {
				all = append(all, fmt.Sprintf("%s:%d %s", name, n, lines.Text()[i+3:]))
			}
		}
		return lines.Err()
	})
	return all, err
}
