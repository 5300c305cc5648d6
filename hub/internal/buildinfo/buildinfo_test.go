package buildinfo

import (
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	build := func(version string, settings ...string) *debug.BuildInfo {
		b := &debug.BuildInfo{Main: debug.Module{Version: version}}
		for i := 0; i < len(settings); i += 2 {
			b.Settings = append(b.Settings, debug.BuildSetting{Key: settings[i], Value: settings[i+1]})
		}
		return b
	}
	for name, c := range map[string]struct {
		reason          string
		version, commit string
		build           *debug.BuildInfo
		want            string
	}{
		"Stamped":   {"what the build set stands", "v0.1.0", "abc", build("v9.9.9", "vcs.revision", "def"), "v0.1.0 (commit abc, go)"},
		"Installed": {"the module's version is the program's", NoVersion, NoCommit, build("v0.1.0"), "v0.1.0 (commit unknown, go)"},
		"Checkout":  {"the toolchain knows the commit", NoVersion, NoCommit, build("(devel)", "vcs.revision", "def", "vcs.modified", "false"), "dev (commit def, go)"},
		"Dirty":     {"and whether there is more", NoVersion, NoCommit, build("", "vcs.modified", "true", "vcs.revision", "def"), "dev (commit def-dirty, go)"},
		"Nothing":   {"nobody knows", NoVersion, NoCommit, build("", "vcs.modified", "true"), "dev (commit unknown, go)"},
	} {
		if got := complete(Info{c.version, c.commit, "go"}, c.build).String(); got != c.want {
			t.Errorf("%s: %s: %q, want %q", name, c.reason, got, c.want)
		}
	}
	if got := Read("v1", "abc").String(); !strings.Contains(got, runtime.Version()) {
		t.Errorf("%q names no Go", got)
	}
}
