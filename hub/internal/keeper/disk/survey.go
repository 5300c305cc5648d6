package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// The store finds its own files by what it reads, and takes one that is gone
// for one that never was: without the marker of its manifest it begins anew,
// without its newest log it knows nothing of what was in it. So the journal
// notes, in the name of a file (marker.log.…), the store's newest log.

// logNote is that note. Its methods may be called from any goroutine.
type logNote struct {
	mu     sync.Mutex
	marker *atomicfs.Marker
	newest uint64 // of the logs that the store has made since it was opened
	known  bool   // the journal has a header, so that there is something to lose
}

// survey looks at the directory before the store is opened, and refuses if
// something is gone that was there.
func (j *Journal) survey() error {
	marker, noted, err := atomicfs.LocateMarker(vfs.Default, j.dir, "log")
	if err != nil {
		return j.damaged("read the note of its newest log", err)
	}
	j.note.marker = marker
	store, err := pebble.Peek(j.dir, vfs.Default)
	if err != nil {
		return j.damaged("find its manifest", err)
	}
	if noted == "" {
		if tables, err := filepath.Glob(filepath.Join(j.dir, "*.sst")); err != nil || !store.Exists && len(tables) > 0 {
			return j.damaged("find its manifest", fmt.Errorf("there are %d tables, and no marker names the manifest", len(tables)))
		}
		return nil
	}
	j.note.known = true
	wanted, err := strconv.ParseUint(noted, 10, 64)
	if err != nil {
		return j.damaged("read the note of its newest log", err)
	}
	if !store.Exists {
		return j.damaged("find its manifest", fmt.Errorf("no marker names it: %w", os.ErrNotExist))
	}
	if newest, _, err := findLog(j.dir); err != nil || newest < wanted {
		return j.damaged("read the log", fmt.Errorf("%06d.log is gone: %w", wanted, os.ErrNotExist))
	}
	return nil
}

// findLog finds the store's newest log; path is empty if there is none.
func findLog(dir string) (newest uint64, path string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, file := range files {
		number, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(file), ".log"), 10, 64)
		if err == nil && number >= newest {
			newest, path = number, file
		}
	}
	return newest, path, err
}

// made notes a log that the store has begun. The ones before it are still
// there. If it cannot be noted, the older note is good as well.
func (n *logNote) made(info pebble.WALCreateInfo) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if info.Err != nil {
		return
	}
	n.newest = uint64(info.FileNum)
	if n.known {
		_ = n.marker.Move(fmt.Sprintf("%06d", n.newest))
	}
}

// begin notes from now on, as there is a header.
func (n *logNote) begin() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known = true
	return n.marker.Move(fmt.Sprintf("%06d", n.newest))
}

func (n *logNote) close() error {
	if n.marker == nil {
		return nil
	}
	return n.marker.Close()
}
