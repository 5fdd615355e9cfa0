package piworkflows

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"example.com/piworkflows/launch"
)

// parseCommand makes the tool's arguments of what a person wrote after /workflow:
// an action and its words, in the order of the action's usage, where the last one
// takes the rest of the line; or name=value for any of them. A word that has to
// be JSON and is none is taken as text. No action means status.
func parseCommand(text string) (args toolArgs, err error) {
	if len(text) > launch.MaxInput {
		return args, launch.CheckSize("command", len(text), launch.MaxInput)
	}
	name, rest := word(text)
	if name == "" {
		name = "status"
	}
	for _, a := range toolActions {
		if a.name != name || a.words == "" && a.name != "list" {
			continue
		}
		args.Action = name
		return args, args.fill(strings.Fields(a.words), rest, name+" "+a.words)
	}
	return args, launch.Refuse(launch.ErrInvalid, "there is no such command; write one of: %s", strings.Join(actionNames(true), ", "))
}

// fill sets the arguments from words.
func (args *toolArgs) fill(words []string, rest, usage string) error {
	bad := func(format string, a ...any) error {
		a = append(a, usage)
		return launch.Refuse(launch.ErrInvalid, format+"; write /workflow %s", a...)
	}
	for {
		key, value, after, ok := assignment(rest)
		if !ok {
			break
		}
		if err := args.set(key, value); err != nil {
			return bad("%s", err.Error())
		}
		rest = after
	}
	for i, w := range words {
		name := strings.Trim(w, "<>[].")
		optional := strings.HasPrefix(w, "[")
		if args.has(name) {
			continue
		}
		value, after := word(rest)
		if strings.Contains(w, "...") {
			value, after = strings.TrimSpace(rest), ""
		}
		if optional && i+1 < len(words) && !looksLike(name, value) {
			continue // the word is meant for the next one
		}
		switch {
		case value == "" && optional:
			continue
		case value == "":
			return bad("%s is missing", name)
		}
		if err := args.set(name, value); err != nil {
			return bad("%s", err.Error())
		}
		rest = after
	}
	if strings.TrimSpace(rest) != "" {
		return bad("there are more words than the command takes")
	}
	return nil
}

// looksLike reports whether a word can be what an optional place is for.
func looksLike(name, value string) bool {
	switch name {
	case "runId":
		_, _, ok := launch.RunID(value).Split()
		return ok
	case "revision":
		_, err := strconv.ParseUint(value, 10, 64)
		return err == nil
	}
	return true
}

// word returns the first word of a line and what follows.
func word(line string) (first, rest string) {
	line = strings.TrimSpace(line)
	at := strings.IndexFunc(line, unicode.IsSpace)
	if at < 0 {
		return line, ""
	}
	return line[:at], line[at:]
}

// assignment splits name=value off the front of a line, where name is one of the
// arguments.
func assignment(line string) (key, value, rest string, ok bool) {
	first, rest := word(line)
	key, value, ok = strings.Cut(first, "=")
	if !ok {
		return "", "", "", false
	}
	_, known := field(&toolArgs{}, key)
	return key, value, rest, known && key != "action"
}

// field returns the argument of that name.
func field(args *toolArgs, name string) (reflect.Value, bool) {
	v := reflect.ValueOf(args).Elem()
	for i := range v.NumField() {
		tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if tag == name {
			return v.Field(i), true
		}
	}
	return reflect.Value{}, false
}

func (args *toolArgs) has(name string) bool {
	v, ok := field(args, name)
	return ok && !v.IsZero()
}

func (args *toolArgs) set(name, value string) error {
	v, ok := field(args, name)
	if !ok {
		return launch.Refuse(launch.ErrInternal, "there is no argument %s", name)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(value)
	case reflect.Uint64:
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return launch.Refuse(launch.ErrInvalid, "%s must be a whole number", name)
		}
		v.SetUint(n)
	default: // JSON, or text that is none
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			quoted, err := json.Marshal(value)
			if err != nil {
				return launch.Refuse(launch.ErrInvalid, "%s is not text", name)
			}
			raw = quoted
		}
		v.SetBytes(raw)
	}
	return nil
}
