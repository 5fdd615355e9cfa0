package piworkflows

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"example.com/piworkflows/launch"
)

// parseCommand makes the tool's arguments of what a person wrote after /workflow:
// an action and its words, in the order of the action's usage, or name=value for
// any of them. The word with dots takes the rest of the line, and one with = is
// written by its name only. A value that has to be JSON and is none is taken as
// text. No action means status.
func parseCommand(text string) (args toolArgs, err error) {
	if err := launch.CheckSize("command", len(text), launch.MaxInput); err != nil {
		return args, err
	}
	if !utf8.ValidString(text) {
		return args, launch.Refuse(launch.ErrInvalid, "the command is not valid UTF-8")
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
		if why := args.fill(strings.Fields(a.words), rest); why != "" {
			err = launch.Refuse(launch.ErrInvalid, "%s; write /workflow %s", why, strings.TrimSpace(name+" "+a.words))
		}
		return args, err
	}
	return args, launch.Refuse(launch.ErrInvalid, "there is no such command; write one of: %s", strings.Join(actionNames(true), ", "))
}

// fill sets the arguments from words, or says what is wrong with them.
func (args *toolArgs) fill(usage []string, rest string) (why string) {
	for i := 0; ; {
		name, value, after := args.assignment(usage, rest)
		if name == "" { // the next word by its place
			for i < len(usage) && (strings.Contains(usage[i], "=") || args.has(argument(usage[i]))) {
				i++
			}
			if i == len(usage) {
				break
			}
			w := usage[i]
			i++
			name = argument(w)
			value, after = upTo(w, rest)
			optional := strings.HasPrefix(w, "[")
			switch {
			case optional && (value == "" || i < len(usage) && !looksLike(name, value)):
				continue // the word is meant for the next place
			case value == "":
				return name + " is missing"
			}
		}
		if why := args.set(name, value); why != "" {
			return why
		}
		rest = after
	}
	if strings.TrimSpace(rest) != "" {
		return "there are more words than the command takes"
	}
	return ""
}

// argument is the name of a word in a usage.
func argument(w string) string { return strings.Trim(w, "<>[].=") }

// upTo splits the value for a word of a usage off the front of a line.
func upTo(w, line string) (value, rest string) {
	if strings.Contains(w, "...") {
		return strings.TrimSpace(line), ""
	}
	return word(line)
}

// assignment splits name=value off the front of a line, where name is a word of
// the usage that is not set yet; an empty name says that there is none.
func (args *toolArgs) assignment(usage []string, line string) (name, value, rest string) {
	line = strings.TrimSpace(line)
	for _, w := range usage {
		name := argument(w)
		after, ok := strings.CutPrefix(line, name+"=")
		if !ok || args.has(name) || strings.TrimLeftFunc(after, unicode.IsSpace) != after {
			continue
		}
		if value, rest = upTo(w, after); value != "" {
			return name, value, rest
		}
	}
	return "", "", line
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

// set sets an argument, or says what is wrong with its value.
func (args *toolArgs) set(name, value string) (why string) {
	v, _ := field(args, name)
	switch v.Kind() {
	case reflect.String:
		v.SetString(value)
	case reflect.Uint64:
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil || n == 0 {
			return name + " must be a whole number above 0"
		}
		v.SetUint(n)
	default: // JSON, or text that is none
		raw := json.RawMessage(value)
		if !json.Valid(raw) {
			raw, _ = json.Marshal(value) // text always encodes
		}
		v.SetBytes(raw)
	}
	return ""
}
