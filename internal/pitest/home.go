package pitest

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// Home is a fresh place for one Pi: its HOME, agent directory, working
// directory and sessions. It outlives the processes that use it.
type Home struct {
	Dir, Agent, Work, Sessions string

	Tools bool // the model has Pi's own tools too
}

// NewHome makes a home below dir whose only model, mock/mock-1, is served at
// url. settings are added to Pi's settings, as "retry" or "compaction".
func NewHome(dir, url string, settings map[string]any) (*Home, error) {
	h := &Home{Dir: dir, Agent: filepath.Join(dir, "agent"), Work: filepath.Join(dir, "work"), Sessions: filepath.Join(dir, "sessions")}
	for _, d := range []string{h.Agent, h.Work, h.Sessions} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	all := map[string]any{"quietStartup": true}
	for k, v := range settings {
		all[k] = v
	}
	for name, content := range map[string]any{
		"models.json": map[string]any{"providers": map[string]any{"mock": map[string]any{
			"baseUrl": url, "api": "openai-completions", "apiKey": "none",
			"compat": map[string]any{"supportsDeveloperRole": false, "supportsReasoningEffort": false, "supportsStore": false},
			"models": []any{map[string]any{"id": "mock-1", "name": "scripted", "contextWindow": 200000, "maxTokens": 4096}},
		}}},
		"settings.json": all,
	} {
		raw, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(h.Agent, name), raw, 0o600); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// Env returns the whole environment of a Pi in this home: nothing of the
// caller's but PATH.
func (h *Home) Env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.Dir, "PI_CODING_AGENT_DIR=" + h.Agent,
		"PI_OFFLINE=1", "PI_TELEMETRY=0", "PI_SKIP_VERSION_CHECK=1"}
}

// Args returns the arguments of Pi that keep everything out but the scripted
// model and what further arguments name.
func (h *Home) Args() []string {
	args := []string{"--offline", "--model", "mock/mock-1", "--session-dir", h.Sessions,
		"-ne", "-ns", "-np", "-nc", "--no-themes", "-na", "--no-mcp"}
	if !h.Tools {
		args = append(args, "-nbt")
	}
	return args
}
