package pi

import (
	"bufio"
	"errors"
	"io"

	"example.com/piworkflows/launch"
)

// frames reads lines of bounded length.
type frames struct{ r *bufio.Reader }

func newFrames(r io.Reader) *frames { return &frames{bufio.NewReaderSize(r, 4<<10)} }

// next returns the next line without its end. A last line that has no end is
// not a frame. The slice is the caller's.
func (f *frames) next(maxBytes int) ([]byte, error) {
	var line []byte
	for {
		part, err := f.r.ReadSlice('\n')
		if len(line)+len(part) > maxBytes {
			return nil, launch.Refuse(launch.ErrInvalid, "frame has more than %d bytes", maxBytes)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
