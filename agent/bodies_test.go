package agent

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

// What --log-level=debug-1 writes is what the client logs as a body, and the agent says so.
func TestAgentWarnsOfBodies(t *testing.T) {
	for name, c := range map[string]struct {
		full       bool
		want, long string
	}{
		"debug":   {false, "", ""},
		"debug-1": {false, "bodies of calls to Compute Engine are logged", "replaced by their hash"},
		"DEBUG-4": {true, "bodies of calls to Compute Engine are logged", "in full"},
	} {
		var level slog.Level
		if err := level.UnmarshalText([]byte(name)); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		config := Config{Logger: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})), GCPWireLogFullPayloads: c.full}
		config.warnOfBodies(t.Context())
		if got := out.String(); !strings.Contains(got, c.want) || !strings.Contains(got, c.long) || (c.want == "") != (got == "") {
			t.Errorf("%s: %q, want %q and %q in it", name, got, c.want, c.long)
		}
		if logs := logr.FromSlogHandler(config.Logger.Handler()).V(computeclient.WireLevel).Enabled(); logs != (c.want != "") {
			t.Errorf("%s: bodies are logged: %v", name, logs)
		}
	}
}
