package pi

import (
	"encoding/hex"
	"sync"

	"example.com/piworkflows/launch"
)

// maxLarge is how many large frames one side of a connection has under way.
const maxLarge = 4

// outgoing holds large frames until the peer has fetched them (rule pi/large).
type outgoing struct {
	mu     sync.Mutex
	frames map[string][]byte // by digest
}

// hold keeps a frame with its line end, and returns what names it.
func (o *outgoing) hold(line []byte) (*largeBody, error) {
	line = line[:len(line)-1]
	digest := launch.DigestOf(line).String()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.frames == nil {
		o.frames = map[string][]byte{}
	}
	if o.frames[digest] == nil && len(o.frames) >= maxLarge {
		return nil, launch.Refuse(launch.ErrFull, "the extension does not fetch what it is sent")
	}
	o.frames[digest] = line
	return &largeBody{Digest: digest, Bytes: len(line)}, nil
}

// chunk answers a fetch; the last one lets the frame go.
func (o *outgoing) chunk(f *fetchBody) (*chunkBody, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	whole := o.frames[f.Digest]
	if f.Offset >= len(whole) {
		return nil, invalid("fetch names nothing that is held here")
	}
	data := whole[f.Offset:min(f.Offset+maxChunk, len(whole))]
	if f.Offset+len(data) == len(whole) {
		delete(o.frames, f.Digest)
	}
	return &chunkBody{Digest: f.Digest, Offset: f.Offset, Data: data}, nil
}

// incoming assembles large frames. Memory grows as they arrive.
type incoming struct{ frames map[string]*assembly }

type assembly struct {
	bytes int
	data  []byte
}

func (i *incoming) begin(l *largeBody) (*fetchBody, error) {
	if i.frames == nil {
		i.frames = map[string]*assembly{}
	}
	if len(i.frames) >= maxLarge || i.frames[l.Digest] != nil {
		return nil, launch.Refuse(launch.ErrFull, "at most %d different large frames may be under way", maxLarge)
	}
	i.frames[l.Digest] = &assembly{bytes: l.Bytes}
	return &fetchBody{Digest: l.Digest}, nil
}

// add takes a chunk and returns what to fetch next, or the whole frame.
func (i *incoming) add(c *chunkBody) (next *fetchBody, whole []byte, err error) {
	a := i.frames[c.Digest]
	if a == nil || c.Offset != len(a.data) || c.Offset+len(c.Data) > a.bytes {
		return nil, nil, invalid("chunk was not asked for")
	}
	a.data = append(a.data, c.Data...)
	if len(a.data) < a.bytes {
		return &fetchBody{Digest: c.Digest, Offset: len(a.data)}, nil, nil
	}
	delete(i.frames, c.Digest)
	if sum := launch.DigestOf(a.data); hex.EncodeToString(sum[:]) != c.Digest {
		return nil, nil, invalid("chunks do not have the digest that was named")
	}
	return nil, a.data, nil
}
