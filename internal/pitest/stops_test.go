package pitest_test

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// stopper is an extension that holds Pi, and all that runs in it, at a named
// event. Armed with "reload", it loads all extensions again when a turn has
// settled.
const stopper = `import fs from "node:fs";
export default function (pi) {
  const dir = process.env.PITEST_STOPS;
  const armed = () => { try { return fs.readFileSync(dir + "/arm", "utf8"); } catch { return ""; } };
  const stop = (name) => {
    if (armed() !== name) return;
    fs.unlinkSync(dir + "/arm");
    fs.writeFileSync(dir + "/at", name);
    const fd = fs.openSync(dir + "/go", "r");
    fs.readSync(fd, Buffer.alloc(1));
    fs.closeSync(fd);
  };
  const of = (m) => m?.role === "custom" ? "custom" : m?.role;
  pi.on("before_agent_start", () => { stop("before_agent_start"); });
  pi.on("message_start", (e) => { stop("message_start " + of(e.message)); });
  pi.on("message_end", (e) => { stop("message_end " + of(e.message)); });
  pi.on("context", () => { stop("context"); });
  pi.on("agent_end", () => { stop("agent_end"); });
  pi.on("agent_settled", () => {
    stop("agent_settled");
    if (armed() !== "reload") return;
    fs.unlinkSync(dir + "/arm");
    pi.sendUserMessage("/reload-now", { expandPromptTemplates: true });
  });
  pi.registerCommand("reload-now", { description: "reloads", handler: async (_, ctx) => { await ctx.reload(); } });
}
`

// stops is the other end of the stopper.
type stops struct {
	dir, ext string
	at, pass *os.File
}

func newStops(t *testing.T, dir string) *stops {
	t.Helper()
	s := &stops{dir: dir, ext: filepath.Join(dir, "stops.mjs")}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.ext, []byte(stopper), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]**os.File{"at": &s.at, "go": &s.pass} {
		path := filepath.Join(dir, name)
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0) // so that nobody waits for the other end
		if err != nil {
			t.Fatal(err)
		}
		*f = file
		t.Cleanup(func() { file.Close() })
	}
	return s
}

func (s *stops) env() []string { return []string{"PITEST_STOPS=" + s.dir} }

// arm makes Pi stop at the next event of that name.
func (s *stops) arm(name string) error {
	return os.WriteFile(filepath.Join(s.dir, "arm"), []byte(name), 0o600)
}

// wait waits until Pi has stopped.
func (s *stops) wait(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.at.Close() })()
	_, err := s.at.Read(make([]byte, 100))
	return err
}

// release lets Pi go on.
func (s *stops) release() error {
	_, err := s.pass.Write([]byte{0})
	return err
}
