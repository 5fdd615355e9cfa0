package pitest_test

import "testing"

// TestFresh: Pi is killed in a session that has no reply yet. Such a session is
// not on disk: Pi begins another one in its file, which is owed nothing. What
// is owed to the lost one stays owed and goes nowhere else.
func TestFresh(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	lost, err := w.agent.State(w.ctx)
	w.ok(err)
	w.ok(w.agent.Prompt(w.ctx, "/workflow start slow {}", "followUp"))
	w.gate(0)
	w.ok(w.stops.arm("context"))
	w.ok(w.host.say("open"))
	w.ok(w.stops.wait(w.ctx)) // the message is on the branch
	files, err := w.home.Files()
	w.ok(err)
	if len(files) > 0 {
		t.Fatalf("the session is on disk: %q; then the message may be looked for", files)
	}
	w.agent.Kill()
	w.startPi()
	if s, err := w.agent.State(w.ctx); err != nil || s.SessionFile != lost.SessionFile || s.SessionID == lost.SessionID {
		t.Errorf("session %s in %s became %s in %s, want another one in its file; %v", lost.SessionID, lost.SessionFile, s.SessionID, s.SessionFile, err)
	}
	w.turns(0)
	if n := w.host.count("session.sent") + w.host.count("intent.resolved"); n != 0 {
		t.Errorf("%d times something counts as delivered\n%s", n, w.host.story())
	}
}
