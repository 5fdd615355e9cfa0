// Command pihost runs Pi with durable workflows: a command that checks the
// project, a reminder, a list of what is left to do, and a review in which the
// model drafts and the person decides.
//
//	go run ./examples/pihost [arguments of pi]
//	go run ./examples/pihost -demo
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/delivery/pi"
)

func main() {
	demo := flag.Bool("demo", false, "play a conversation with a scripted model: offline, without credentials")
	db := flag.String("db", "", "keep the workflows in the file at `PATH`; default: in your configuration directory")
	flag.Parse()
	if err := run(os.Stdout, *demo, *db, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "pihost:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, demo bool, db string, args []string) (err error) {
	dir, err := os.Getwd()
	if demo {
		if dir, err = os.MkdirTemp("", "pihost-"); err == nil {
			defer os.RemoveAll(dir)
			db = filepath.Join(dir, "db", "flows.db")
		}
	} else if db == "" && err == nil {
		db, err = os.UserConfigDir()
		db = filepath.Join(db, "piworkflows", "pihost.db")
	}
	if err != nil {
		return err
	}
	flows, err := workflows(dir)
	if err != nil {
		return err
	}
	rt, err := piworkflows.Open(piworkflows.Options{Path: db, Workflows: flows})
	if err != nil {
		return err
	}
	defer func() { // what is still running goes on the next time
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = rt.Close(ctx)
	}()
	bridge, err := pi.Listen(pi.Options{Host: pi.ForRuntime(rt)})
	if err != nil {
		return err
	}
	defer bridge.Close()
	if demo {
		return play(out, bridge, dir)
	}
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // Pi's business; it ends, then this does
	cmd := exec.Command("pi", append([]string{"-e", bridge.ExtensionPath()}, args...)...)
	cmd.Env = append(os.Environ(), bridge.Env()...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, out, os.Stderr
	return cmd.Run()
}
