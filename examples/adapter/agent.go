package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// entry is one line of the agent's transcript.
type entry struct {
	Role    string          `json:"role"` // user, assistant or message
	Text    string          `json:"text"`
	Stop    string          `json:"stop,omitempty"` // of an assistant: completed, aborted or error
	Type    string          `json:"type,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// agent is the agent that is bridged: one line is one command or event. It keeps
// its transcript in a file, and asks whoever drives it for the model's answers.
//
//	in:   turn ENTRY   append it and begin a turn      out:  entry ENTRY   it is in the file
//	      note ENTRY   append it                             ask           the model's answer is needed
//	      answer ENTRY the model's answer                    done STOP     the turn is over
//	      stop         stop the turn                         ready         all earlier entries are printed
//	                                                         bye           it was asked to end, by the end of its input
func agent(path string, in io.Reader, out io.Writer) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	old, err := readTranscript(path)
	if err != nil {
		return err
	}
	if err := file.Truncate(int64(len(old))); err != nil { // a torn last line is dropped
		return err
	}
	for line := range bytes.Lines(old) {
		fmt.Fprintf(out, "entry %s", line)
	}
	fmt.Fprintln(out, "ready")

	busy := false
	add := func(line string) {
		if _, err = io.WriteString(file, line+"\n"); err == nil {
			fmt.Fprintln(out, "entry "+line)
		}
	}
	for r := bufio.NewReader(in); err == nil; {
		var line string
		if line, err = r.ReadString('\n'); err != nil {
			break
		}
		verb, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case verb == "note":
			add(arg)
		case verb == "turn" && !busy:
			busy = true
			add(arg)
			fmt.Fprintln(out, "ask")
		case verb == "answer" && busy, verb == "stop" && busy:
			e := entry{Role: "assistant", Stop: "aborted"}
			if verb == "answer" {
				if err = json.Unmarshal([]byte(arg), &e); err != nil {
					break
				}
			}
			busy = false
			add(encode(e))
			fmt.Fprintln(out, "done "+e.Stop)
		}
	}
	if err == io.EOF {
		fmt.Fprintln(out, "bye")
		return nil
	}
	return err
}

// readTranscript returns the whole lines of the file.
func readTranscript(path string) ([]byte, error) {
	all, err := os.ReadFile(path)
	return all[:bytes.LastIndexByte(all, '\n')+1], err
}

func encode(e entry) string {
	line, err := json.Marshal(e)
	if err != nil {
		return "{}" // details are valid JSON
	}
	return string(line)
}
