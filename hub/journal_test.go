package hub_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/hub"
)

// opened is what the hub says of the disk journal.
var opened = regexp.MustCompile(`lease journal opened.*complete=(\w+)`)

// TestDiskJournalKnowsItsHistory starts hubs on one directory: a new hub's
// journal is complete, and stays so unless another journal is used meanwhile
// or the directory is lost.
func TestDiskJournalKnowsItsHistory(t *testing.T) {
	namespace := server.Namespace(t, "hub-")
	directory := filepath.Join(t.TempDir(), "journal")
	onDisk := func(directory string) func(*hub.Config) {
		return func(c *hub.Config) { c.JournalType, c.JournalDir = hub.JournalDisk, directory }
	}
	steps := []struct {
		name   string
		change func(*hub.Config)
		// complete is what the hub says; empty if it has no disk journal.
		complete string
		warns    bool
	}{
		{"a new hub", onDisk(directory), "true", false},
		{"a restart", onDisk(directory), "true", false},
		{"in memory for a while", nil, "", false},
		{"back on disk", onDisk(directory), "false", true},
		{"another restart", onDisk(directory), "false", false},
		{"an empty directory", onDisk(filepath.Join(t.TempDir(), "journal")), "false", false},
	}
	for _, step := range steps {
		r := startHub(t, namespace, step.change)
		r.awaitReady()
		r.stopNow()
		said := ""
		if match := opened.FindStringSubmatch(r.log.String()); match != nil {
			said = match[1]
		}
		if said != step.complete {
			t.Errorf("%s: complete is %q, want %q", step.name, said, step.complete)
		}
		if warned := strings.Contains(r.log.String(), "another journal meanwhile"); warned != step.warns {
			t.Errorf("%s: warned is %v", step.name, warned)
		}
	}
}

// TestDiskJournalInUse starts a second hub on a directory in use.
func TestDiskJournalInUse(t *testing.T) {
	namespace := server.Namespace(t, "hub-")
	onDisk := func(c *hub.Config) { c.JournalType, c.JournalDir = hub.JournalDisk, t.TempDir() }
	var directory string
	first := startHub(t, namespace, func(c *hub.Config) { onDisk(c); directory = c.JournalDir })
	first.awaitReady()
	second := startHub(t, namespace, func(c *hub.Config) { c.JournalType, c.JournalDir = hub.JournalDisk, directory })
	if err := <-second.done; err == nil || !strings.Contains(err.Error(), "another hub may be using it") {
		t.Errorf("the second hub: %v", err)
	}
	first.stopNow()
}
