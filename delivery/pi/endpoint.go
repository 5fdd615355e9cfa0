package pi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // the extension
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"example.com/piworkflows"
	"example.com/piworkflows/launch"
)

//go:embed extension.js
var extension []byte

// Extension returns the extension's source, one file without dependencies.
// [Endpoint.ExtensionPath] names a copy of it.
func Extension() []byte { return append([]byte(nil), extension...) }

const (
	tokenBytes   = 32
	maxConns     = 4096
	maxSocket    = 103              // bytes in a socket's path on every system
	helloTimeout = 10 * time.Second // from connecting to the first frame
	writeTimeout = 10 * time.Second // for one frame
	byeTimeout   = time.Second      // for what is said last
)

// Options of an endpoint.
type Options struct {
	// Dir is where the socket and the extension are put. It is made with mode
	// 0700 when it is missing, and refused when others may enter it. Empty makes
	// a private temporary one that Close removes. In a directory that is named
	// the token is kept from one launch of the host to the next, so that a Pi
	// that outlives its host connects to the next one.
	Dir  string
	Log  *slog.Logger // nil: nowhere
	Host Host         // required
	// Settled is called after each end of a turn that was committed, before the
	// extension is answered, in the order of its session. nil: not called.
	Settled func(Turn)
}

// Endpoint is a Unix socket to which extensions connect. It is safe for
// concurrent use.
type Endpoint struct {
	o       Options
	dir     string
	own     bool // the directory is removed with the endpoint
	token   string
	tokenID [sha256.Size]byte
	tool    piworkflows.ToolSpec
	l       net.Listener
	slots   chan struct{}

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	peers  map[*peer]struct{}
	inputs map[launch.SessionKey]string // key of the input that was taken last
}

// Listen opens the endpoint. Errors: launch.ErrInvalid names the option that is
// wrong, launch.ErrBusy another endpoint in the directory, and those of the
// file system.
func Listen(o Options) (_ *Endpoint, err error) {
	if o.Host == nil {
		return nil, invalid("Options.Host is not set")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Settled == nil {
		o.Settled = func(Turn) {}
	}
	e := &Endpoint{o: o, tool: o.Host.Tool(), slots: make(chan struct{}, maxConns), peers: map[*peer]struct{}{},
		inputs: map[launch.SessionKey]string{}}
	if e.dir, e.own, err = privateDir(o.Dir); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.remove())
		}
	}()
	// Held from here on, so that no other endpoint has the directory.
	if e.l, err = listen(e.socket()); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.l.Close())
		}
	}()
	if e.token, err = e.readToken(); err != nil {
		return nil, err
	}
	e.tokenID = sha256.Sum256([]byte(e.token))
	// The tool is there before the first prompt, although the connection may not.
	spec, err := json.Marshal(e.tool)
	if err != nil {
		return nil, invalid("Options.Host describes a tool that cannot be encoded")
	}
	for name, content := range map[string][]byte{e.ExtensionPath(): extension, filepath.Join(e.dir, "tool.json"): spec} {
		if err = os.WriteFile(name, content, 0o600); err != nil {
			return nil, err
		}
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.wg.Add(1)
	go e.accept()
	return e, nil
}

// readToken makes a random token. In a directory that outlives the endpoint it
// is kept, so that a Pi that outlives its host finds the next one there.
func (e *Endpoint) readToken() (string, error) {
	path := filepath.Join(e.dir, "token")
	if !e.own {
		if old, err := os.ReadFile(path); err == nil && len(old) == hex.EncodedLen(tokenBytes) {
			if _, err := hex.DecodeString(string(old)); err == nil {
				return string(old), os.Chmod(path, 0o600)
			}
		}
	}
	random := make([]byte, tokenBytes)
	if _, err := rand.Read(random); err != nil {
		return "", err
	}
	token := hex.EncodeToString(random)
	if e.own {
		return token, nil
	}
	return token, errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(token), 0o600))
}

func privateDir(dir string) (_ string, own bool, err error) {
	if dir == "" {
		dir, err = os.MkdirTemp("", "piworkflows-")
		if err == nil && len(dir)+len("/pi.sock") > maxSocket { // a long TMPDIR
			err = os.Remove(dir)
			if err == nil {
				dir, err = os.MkdirTemp("/tmp", "piworkflows-")
			}
		}
		return dir, true, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return "", false, err
	}
	if len(dir)+len("/pi.sock") > maxSocket {
		return "", false, invalid("Options.Dir has %d bytes; a socket's directory has at most %d", len(dir), maxSocket-len("/pi.sock"))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", false, err
	}
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = invalid("Options.Dir may be entered by others; give it mode 0700")
	}
	return dir, false, err
}

// listen opens the socket, in place of one that a dead host left behind.
func listen(path string) (net.Listener, error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		c, dialErr := net.Dial("unix", path)
		if dialErr == nil {
			_ = c.Close()
			return nil, launch.Refuse(launch.ErrBusy, "another endpoint is open in that directory; give each its own")
		}
		info, statErr := os.Lstat(path)
		if statErr != nil || info.Mode()&os.ModeSocket == 0 {
			return nil, err
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
		if l, err = net.Listen("unix", path); err != nil {
			return nil, err
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (e *Endpoint) socket() string { return filepath.Join(e.dir, "pi.sock") }

// ExtensionPath returns the file to start Pi with: pi -e <path>. It is there
// until Close.
func (e *Endpoint) ExtensionPath() string { return filepath.Join(e.dir, "extension.js") }

// Env returns what a Pi process needs in its environment, as "KEY=value":
// PIWORKFLOWS_SOCKET and PIWORKFLOWS_TOKEN. Whoever has the token is taken for
// an extension; do not print it.
func (e *Endpoint) Env() []string {
	return []string{"PIWORKFLOWS_SOCKET=" + e.socket(), "PIWORKFLOWS_TOKEN=" + e.token}
}

func (e *Endpoint) accept() {
	defer e.wg.Done()
	for {
		c, err := e.l.Accept()
		if err != nil {
			if e.ctx.Err() != nil {
				return
			}
			e.o.Log.Warn("a connection could not be accepted", "err", err)
			select { // out of file descriptors, for example
			case <-e.ctx.Done():
				return
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		select {
		case e.slots <- struct{}{}:
		default:
			e.o.Log.Warn("too many connections", "bound", maxConns)
			_ = c.Close()
			continue
		}
		p := newPeer(e, c)
		e.mu.Lock()
		closed := e.closed
		if !closed {
			e.peers[p] = struct{}{}
			e.wg.Add(1)
		}
		e.mu.Unlock()
		if closed {
			_ = c.Close()
			return
		}
		go func() {
			defer e.wg.Done()
			p.serve()
			e.mu.Lock()
			delete(e.peers, p)
			e.mu.Unlock()
			<-e.slots
		}()
	}
}

// admits compares in constant time, whatever the length.
func (e *Endpoint) admits(token string) bool {
	id := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(id[:], e.tokenID[:]) == 1
}

// taken reports whether that input was the last one that its session reported,
// which is then a repeat, or notes that it is (rule pi/order).
func (e *Endpoint) taken(k launch.SessionKey, key string, note bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !note {
		return e.inputs[k] == key
	}
	if len(e.inputs) >= maxConns {
		clear(e.inputs) // a repeat after that is harmless: nothing came between
	}
	e.inputs[k] = key
	return false
}

// Close ends every connection, waits until nothing runs any more, and removes
// what Listen made, but for a token that is kept. A second Close does nothing.
func (e *Endpoint) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		e.wg.Wait()
		return nil
	}
	e.closed = true
	for p := range e.peers {
		p.bye("the host is closing", false)
	}
	e.mu.Unlock()
	e.cancel()
	err := e.l.Close() // removes the socket
	e.wg.Wait()
	return errors.Join(err, e.remove())
}

func (e *Endpoint) remove() error {
	if e.own {
		return os.RemoveAll(e.dir)
	}
	var errs []error
	for _, name := range []string{e.ExtensionPath(), filepath.Join(e.dir, "tool.json")} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
