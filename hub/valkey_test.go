package hub_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/hub"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey/valkeytest"
)

// TestJournalMoves follows the leases of one hub from the disk to a server, and what the hub believes of either.
func TestJournalMoves(t *testing.T) {
	namespace := server.Namespace(t, "hub-")
	directory := filepath.Join(t.TempDir(), "journal")
	there := valkeytest.Start(t)
	onDisk := func(c *hub.Config) { c.JournalType, c.JournalDir = hub.JournalDisk, directory }
	onServer := func(c *hub.Config) { c.JournalType, c.Valkey.Addresses = hub.JournalValkey, []string{there.Address} }
	copied := func(prefix string) (int, error) {
		config := hub.Config{RestConfig: server.Config, Namespace: namespace}
		config.Valkey.Addresses, config.Valkey.Prefix = []string{there.Address}, prefix
		return hub.CopyJournal(t.Context(), config, directory)
	}
	run := func(step string, change func(*hub.Config), complete, warning string) {
		t.Helper()
		r := startHub(t, namespace, change)
		r.awaitReady()
		r.stopNow()
		match := opened.FindStringSubmatch(r.log.String())
		if match == nil || match[1] != complete {
			t.Errorf("%s: it says %q, want complete=%s", step, match, complete)
		}
		if got := strings.Contains(r.log.String(), "nothing is granted for one maxTTL"); got != (warning != "") || !strings.Contains(r.log.String(), warning) {
			t.Errorf("%s: it warns: %v, want %q", step, got, warning)
		}
	}
	run("a new hub", onDisk, "true", "")
	if n, err := copied(""); err != nil {
		t.Fatal(err)
	} else {
		t.Logf("%d records copied", n)
	}
	run("moved to a server", onServer, "true", "")
	run("a restart", onServer, "true", "")
	if _, err := copied("other"); err == nil || !strings.Contains(err.Error(), "not the one in use") {
		t.Errorf("another copy: %v", err)
	}
	there.Kill()
	there.Run()
	run("the server was restarted meanwhile", onServer, "false", "restarted or failed over")
	run("a restart of the hub alone", onServer, "false", "")
	run("back on the disk", onDisk, "false", "another journal meanwhile")
	if _, err := copied(""); err == nil || !strings.Contains(err.Error(), "has a journal of this hub") {
		t.Errorf("a copy over a journal: %v", err)
	}
	run("on the server without a copy", onServer, "false", "another journal meanwhile")
	there.Must("FLUSHALL")
	run("all is lost", onServer, "false", "")
}

// TestServerForgetsAnEpoch restores an old state of the server without its replication id giving it away.
func TestServerForgetsAnEpoch(t *testing.T) {
	namespace := server.Namespace(t, "hub-")
	there := valkeytest.Start(t)
	onServer := func(c *hub.Config) { c.JournalType, c.Valkey.Addresses = hub.JournalValkey, []string{there.Address} }
	for range 2 {
		r := startHub(t, namespace, onServer)
		r.awaitReady()
		r.stopNow()
	}
	there.Must("HINCRBY", "{shoal}:journal:header", "epoch", "-1")
	r := startHub(t, namespace, onServer)
	r.awaitReady()
	r.stopNow()
	if !strings.Contains(r.log.String(), "has forgotten that it was used") || !strings.Contains(r.log.String(), "complete=false") {
		t.Error("an old state is believed")
	}
}
