package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Options are what a Journal is opened with.
type Options struct {
	// Dir is the journal's directory; it is made if need be. Required.
	Dir string
	// Owner is the UID of the hub whose leases these are: another hub's
	// journal is refused. Required.
	Owner string
	// Now is the time of this start. Required.
	Now time.Time
	// New says that the owner cannot have granted anything before this start,
	// so that an empty directory is all of its history.
	New bool
	// Logger is for what operators should know: discarded by default.
	Logger *slog.Logger
	// Reserve is how many bytes of the disk are kept for what must go on when
	// it is full: 64 MiB by default, and never more than an eighth of the disk.
	Reserve int64
	// Clock measures how long things take: the real one by default.
	Clock clock.PassiveClock
	// CompactAfter is how many records are appended at least before a
	// snapshot replaces them: 100,000 by default.
	CompactAfter int
}

// Journal is a keeper.Journal in a directory. Load, Append, CompactDue and
// Compact are for one goroutine, as the keeper's; the rest may be called from
// any before that.
type Journal struct {
	db      *pebble.DB
	options *pebble.Options
	lock    *pebble.Lock
	reserve *reserve
	dir     string
	log     *slog.Logger
	clock   clock.PassiveClock
	least   uint64
	head    header
	fresh   bool
	next    uint64 // number of the next record of the log
	scratch []byte
	// appended is next for everybody else.
	appended atomic.Uint64

	troubles troubles
	note     logNote

	// What follows is of snapshots. mu guards it, and head once the journal
	// is open.
	compacting sync.WaitGroup
	mu         sync.Mutex
	busy       bool
	tried      uint64 // next at the last snapshot, or at the attempt
	generation uint64 // of the last attempt
	took       time.Duration
	failures   uint64
	closed     bool
}

// Open opens the journal, or makes a new one in an empty directory. It waits
// for nobody: a directory that is in use is an error.
func Open(opts Options) (*Journal, error) {
	if opts.Dir == "" || opts.Owner == "" || opts.Now.IsZero() {
		return nil, errors.New("disk: Options.Dir, Owner and Now are required")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.CompactAfter <= 0 {
		opts.CompactAfter = 100_000
	}
	if opts.Reserve <= 0 {
		opts.Reserve = defaultReserve
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, unwritable(opts.Dir, "make the journal's directory", err)
	}
	lock, err := pebble.LockDirectory(opts.Dir, vfs.Default)
	if err != nil {
		return nil, unwritable(opts.Dir, "lock the journal", err)
	}
	j := &Journal{lock: lock, dir: opts.Dir, log: opts.Logger, clock: opts.Clock, least: uint64(opts.CompactAfter), troubles: troubles{log: opts.Logger}}
	if err := j.open(opts); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (j *Journal) open(opts Options) error {
	if err := checkDirectory(j.dir); err != nil {
		return err
	}
	if err := j.survey(); err != nil {
		return err
	}
	var err error
	if j.reserve, err = newReserve(j.dir, opts.Reserve); err != nil {
		return err
	}
	log, err := newestLog(j.dir)
	if err != nil {
		return err
	}
	j.options = &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest,
		Lock:               j.lock,
		Logger:             logger{j.log},
		FS:                 vfs.OnDiskFull(vfs.Default, j.reserve.full),
		// The journal is small, and read once: memory is better spent elsewhere.
		MemTableSize: memTable,
		CacheSize:    1 << 20,
		MaxOpenFiles: 64,
		EventListener: &pebble.EventListener{
			// Whoever reads what is damaged gets an error, and it says more.
			DataCorruption: func(info pebble.DataCorruptionInfo) { j.log.Error("the journal is damaged", "err", info.String()) },
			// The store tries again at once, so this may come often.
			BackgroundError: j.troubles.note,
			WALCreated:      j.note.made,
		},
	}
	j.options.EnsureDefaults()
	if j.db, err = pebble.Open(j.dir, j.options); err != nil {
		return j.damaged("open it", err)
	}
	if err := j.start(opts); err != nil {
		return err
	}
	if number, found := lost(log, j.next); found {
		return j.damaged("read the end of the log", fmt.Errorf("record %d is there, and %d and those after it are not", number, j.next))
	}
	if err := j.note.begin(); err != nil {
		return unwritable(j.dir, "note the newest log of the journal", err)
	}
	return j.sweep()
}

// memTable is how much of the log the store keeps in memory before it writes
// a table of it.
const memTable = 4 << 20

// unwritable says why a directory cannot be used, as far as that is known.
func unwritable(dir, what string, err error) error {
	advice := "another hub may be using it: stop that one, or give each its own directory"
	switch {
	case errors.Is(err, syscall.EROFS):
		advice = "its disk is mounted read-only; if it became so by itself it has failed: see the node's log, and mount it for writing"
	case errors.Is(err, os.ErrPermission):
		advice = fmt.Sprintf("user %d may not write there; in a pod, set fsGroup", os.Getuid())
	case errors.Is(err, syscall.ENOSPC):
		advice = "its disk is full; make room, or give it a larger volume"
	}
	return fmt.Errorf("%s in %s; %s: %w", what, dir, advice, err)
}

// checkDirectory refuses a directory that holds something else.
func checkDirectory(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the journal's directory: %w", err)
	}
	for _, entry := range entries {
		if !ours(entry) {
			return fmt.Errorf("%s is no journal: there is %s in it; give the hub a directory of its own with --journal-dir, such as %s",
				dir, entry.Name(), filepath.Join(dir, "journal"))
		}
	}
	return nil
}

// ours tells whether the store may have made the entry.
func ours(entry os.DirEntry) bool {
	name := entry.Name()
	if entry.IsDir() {
		return false
	}
	if name == "LOCK" || name == ballastName || strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "OPTIONS-") || strings.HasPrefix(name, "marker.") {
		return true
	}
	switch filepath.Ext(name) {
	case ".log", ".sst", temporary, ".blob":
		return true
	}
	return false
}

// Keys. The log and the snapshots are ordered by big-endian numbers.
var keyHeader = []byte("header")

const (
	prefixLog      = 'l' // then the record's number
	prefixSnapshot = 's' // then the generation and the record's number in it
)

func logKey(n uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{prefixLog}, n)
}

func snapshotKey(generation, n uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64([]byte{prefixSnapshot}, generation), n)
}

// damaged says what to do about a journal that cannot be read.
func (j *Journal) damaged(what string, err error) error {
	return fmt.Errorf("the journal in %s is damaged or its disk is: cannot %s: %w; "+
		"keep the directory for inspection and start with an empty one: the hub then grants nothing for one maxTTL, and has forgotten cooldowns", j.dir, what, err)
}

// Append implements keeper.Journal: one batch, synced. The records survive
// the process and the machine, if the disk keeps what it says it has kept.
func (j *Journal) Append(_ context.Context, batch []lease.Record) error {
	if len(batch) == 0 {
		return nil
	}
	b := j.db.NewBatch()
	defer func() { _ = b.Close() }() // after Commit there is nothing that could fail
	for i, rec := range batch {
		var err error
		j.scratch = binary.AppendUvarint(j.scratch[:0], uint64(i))
		if j.scratch, err = record.Encode(j.scratch, rec); err != nil {
			return fmt.Errorf("append to the journal in %s: %w", j.dir, err)
		}
		if err := b.Set(logKey(j.next+uint64(i)), j.scratch, nil); err != nil {
			return fmt.Errorf("append to the journal in %s: %w", j.dir, err)
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("append to the journal in %s; is its disk full? %w", j.dir, err)
	}
	j.next += uint64(len(batch))
	j.appended.Store(j.next)
	return nil
}

// Close closes the journal, after a snapshot that is being written. It may be
// called after a failed Open only by Open itself.
func (j *Journal) Close() error {
	j.compacting.Wait()
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	if j.reserve != nil {
		j.reserve.close()
	}
	var err error
	if j.db != nil {
		err = j.db.Close()
	}
	return errors.Join(err, j.note.close(), j.lock.Close())
}

// Room implements keeper.Limited.
func (j *Journal) Room() (keeper.Room, string) { return j.reserve.Room() }

// troubles logs what goes wrong beside the appends, each trouble once in a row.
type troubles struct {
	log *slog.Logger

	mu   sync.Mutex
	last string
}

func (t *troubles) note(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := err.Error(); text != t.last {
		t.last = text
		t.log.Error("the journal's store could not write a table; it tries again; is its disk full?", "err", err)
	}
}

// logger hands on what the store says.
type logger struct{ log *slog.Logger }

func (l logger) Infof(format string, args ...any) { l.log.Debug(fmt.Sprintf(format, args...)) }

func (l logger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf ends the process: the store calls it where it cannot know any more
// what is on the disk, such as after a failed sync, and must not go on.
func (l logger) Fatalf(format string, args ...any) {
	l.log.Error("the journal's disk failed, the hub ends; see to the disk: it may be full", "err", fmt.Sprintf(format, args...))
	os.Exit(1)
}
