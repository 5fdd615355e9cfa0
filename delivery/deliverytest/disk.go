package deliverytest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// OpenFile returns the session file at path, an absolute path on the real disk,
// and keeps it there, so that the session survives the death of its own
// operating-system process. The next one names itself ([Options].Process),
// because numbering begins anew. A torn last line is dropped, as by Pi. A line
// that cannot be written panics. It is not closed; the end of the process does
// that.
func OpenFile(headerID, path string) (*File, error) {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, whole := NewFile(headerID, path), 0
	for line := range bytes.Lines(old) {
		var e Entry
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("deliverytest: %s is no session file: %w", path, err)
		}
		file.lines = append(file.lines, e)
		whole += len(line)
	}
	out, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	if whole < len(old) {
		if err := out.Truncate(int64(whole)); err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	file.onAppend = func(e Entry) {
		line, err := json.Marshal(e)
		if err == nil {
			_, err = out.Write(append(line, '\n')) // one write, which is appended whole
		}
		if err != nil {
			panic(fmt.Errorf("deliverytest: a line of the session is lost: %w", err))
		}
	}
	return file, nil
}
