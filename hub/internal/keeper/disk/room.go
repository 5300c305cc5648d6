package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
)

// ballastName is the file that keeps room for the day the disk is full.
const ballastName = "BALLAST"

// defaultReserve is the size of the ballast. Renewals and releases take some
// 60 bytes each, and no lease is renewed for longer than its fleet's
// maxLifetime: it is enough for 1,000 of them a second for 15 minutes.
const defaultReserve = 64 << 20

// leastRoom is what the store needs to go on in peace: two memtables (4 MiB
// each) to be written as tables, and the logs that come after them. With less
// it would wait for room without an end, or end the process.
const leastRoom = 16 << 20

// reserve watches the room on the journal's disk and gives the ballast away
// when there is none left. Its methods may be called from any goroutine.
type reserve struct {
	dir  string
	size int64 // of the ballast
	// usage asks the file system; a test can make it lie.
	usage func() (vfs.DiskUsage, error)
	work  sync.WaitGroup

	mu     sync.Mutex
	held   bool // the ballast is in its place
	making bool
	failed string // why it could not be made, if it could not
	room   keeper.Room
}

// newReserve looks at the disk before the store is opened. It gives the
// ballast away if the start needs it, and refuses if that is not enough.
func newReserve(dir string, size int64) (*reserve, error) {
	r := &reserve{dir: dir, usage: func() (vfs.DiskUsage, error) { return vfs.Default.GetDiskUsage(dir) }}
	usage, err := r.usage()
	if err != nil {
		return nil, fmt.Errorf("ask how much room the journal's disk has: %w", err)
	}
	// A reserve that is most of a small disk would never be whole.
	r.size = min(size, int64(usage.TotalBytes/8)) //nolint:gosec // disks are smaller
	if err := os.Remove(r.path() + temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("tidy up the reserve of the journal in %s: %w", dir, err)
	}
	if info, err := os.Stat(r.path()); err == nil {
		r.held = info.Size() >= r.size
	}
	if usage.AvailBytes < leastRoom {
		if err := r.release(); err != nil {
			return nil, err
		}
		if usage, err = r.usage(); err != nil {
			return nil, fmt.Errorf("ask how much room the journal's disk has: %w", err)
		}
	}
	if usage.AvailBytes < leastRoom {
		return nil, fmt.Errorf("the disk of the journal in %s has %d MiB left, its reserve included, and a start needs %d; make room, or give it a larger volume",
			dir, usage.AvailBytes>>20, leastRoom>>20)
	}
	if !r.held && usage.AvailBytes >= uint64(r.size)+2*leastRoom { //nolint:gosec // not negative
		r.make()
		usage.AvailBytes -= uint64(r.size) //nolint:gosec // not negative
	}
	r.judge(usage.AvailBytes)
	return r, nil
}

func (r *reserve) path() string { return filepath.Join(r.dir, ballastName) }

// full is called by the store's file system when a write found no room. What
// it frees is there when the write is tried once more.
func (r *reserve) full() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.release() // the write fails again and says why
}

// release gives the ballast away.
func (r *reserve) release() error {
	r.held = false
	if err := os.Remove(r.path()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("give away the reserve of the journal in %s: %w", r.dir, err)
	}
	return nil
}

// Room tells what the disk has room for, and why if that is not all. It costs
// a call of the file system.
//
//	room for all     the ballast is in its place and leastRoom is free
//	room for upkeep  less is free, or the ballast has been given away
//	room for nothing the ballast is used up as well
//
// The ballast is given away when half of leastRoom is free, and made anew when
// there is twice leastRoom beside it. So grants do not stop and resume with
// each file of the store that comes and goes.
func (r *reserve) Room() (keeper.Room, string) {
	usage, err := r.usage()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil { // a disk that does not answer is for the next append to judge
		return r.room, r.why()
	}
	free := usage.AvailBytes
	if r.held && free < leastRoom/2 {
		_ = r.release()
		if usage, err = r.usage(); err == nil {
			free = usage.AvailBytes
		}
	}
	if !r.held && !r.making && free >= uint64(r.size)+2*leastRoom { //nolint:gosec // not negative
		r.making = true
		r.work.Go(r.make)
	}
	r.judge(free)
	return r.room, r.why()
}

// judge finds out anew what there is room for.
func (r *reserve) judge(free uint64) {
	switch {
	case r.held && (free >= 2*leastRoom || r.room == keeper.RoomForAll && free >= leastRoom):
		r.room = keeper.RoomForAll
	case free >= leastRoom || r.room != keeper.RoomForNothing && free >= leastRoom/2:
		r.room = keeper.RoomForUpkeep
	default:
		r.room = keeper.RoomForNothing
	}
}

func (r *reserve) why() string {
	if r.room == keeper.RoomForAll {
		return ""
	}
	if r.failed != "" {
		return "the reserve of the journal's disk could not be made: " + r.failed
	}
	wanted := int64(2 * leastRoom)
	if !r.held {
		wanted += r.size
	}
	return fmt.Sprintf("the journal's disk is full: new leases need %d MiB", wanted>>20)
}

// make makes the ballast, beside everything else.
func (r *reserve) make() {
	err := occupy(r.path(), r.size)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.making = false
	if err != nil {
		r.failed = err.Error()
		_ = os.Remove(r.path() + temporary)
		return
	}
	r.held, r.failed = true, ""
}

// temporary ends the name of a file that is not whole yet; the store's own end
// so as well.
const temporary = ".dbtmp"

// occupy writes a file that is there as a whole or not at all. Its bytes are
// random, so that no file system saves their blocks.
func occupy(path string, size int64) (err error) {
	file, err := os.OpenFile(path+temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	noise := rand.NewChaCha8([32]byte{})
	block := make([]byte, 1<<20)
	for left := size; left > 0; left -= int64(len(block)) {
		_, _ = noise.Read(block) // never fails
		if _, err := file.Write(block[:min(left, int64(len(block)))]); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(path+temporary, path)
}

// close waits for what is being made.
func (r *reserve) close() { r.work.Wait() }

// spacious tells whether there is room for a snapshot to grow into: it must
// leave to the appends what they need.
func (r *reserve) spacious() bool {
	usage, err := r.usage()
	return err == nil && usage.AvailBytes >= leastRoom
}

// ballast returns the size of the ballast that is in its place.
func (r *reserve) ballast() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return 0
	}
	return r.size
}
