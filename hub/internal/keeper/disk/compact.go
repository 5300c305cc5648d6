package disk

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// numberOf reads the number at the end of a key of the log.
func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }

// CompactDue tells whether the log is long enough to be replaced: more
// records than the last snapshot has, and than Options.CompactAfter. So
// snapshots cost at most as much as the log itself.
func (j *Journal) CompactDue() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.busy && j.next-j.tried >= max(j.least, j.head.Snapshot)
}

// Compact replaces all records appended so far by a snapshot of what they
// came to. It returns at once: the snapshot is made and written beside the
// appends that follow. What makes it count is one synced batch at its end; a
// process that ends before has the records as they were. If it fails it is
// tried again when the log has grown as much once more.
func (j *Journal) Compact(ctx context.Context, condense keeper.Condense) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.busy, j.tried = true, j.next
	j.generation++
	old, next := j.head, j.head
	next.Generation, next.LogFrom, next.Next = j.generation, j.next, j.next
	j.log.Debug("the lease journal is being compacted", "generation", next.Generation)
	j.compacting.Go(func() {
		began := j.clock.Now()
		err := j.replace(ctx, old, &next, condense)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.busy, j.took = false, j.clock.Since(began)
		if err != nil {
			j.failures++
			j.log.Error("the lease journal could not be compacted; it goes on growing, and this is tried again; is its disk full?", "dir", j.dir, "err", err)
			return
		}
		j.head = next
		j.log.Info("lease journal compacted", "generation", next.Generation, "records", next.LogFrom-old.LogFrom+old.Snapshot, "kept", next.Snapshot, "took", j.took)
	})
}

// replace writes the snapshot, then switches to it and drops what it stands
// for.
func (j *Journal) replace(ctx context.Context, old header, next *header, condense keeper.Condense) (err error) {
	// As a table of its own, which the store then takes as it is: appends do
	// not wait behind it. It does not touch the reserve.
	path := filepath.Join(j.dir, snapshotName)
	defer func() {
		if left := os.Remove(path); left != nil && !errors.Is(left, os.ErrNotExist) {
			err = errors.Join(err, left)
		}
	}()
	file, err := vfs.Default.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: chunk})
	w := snapshotWriter{
		journal: j, generation: next.Generation,
		table: sstable.NewWriter(objstorageprovider.NewFileWritable(file), j.options.MakeWriterOptions(bottom, j.db.TableFormat())),
	}
	load := func(yield func(lease.Record) error) error { return j.load(ctx, old, next.LogFrom, yield) }
	err = condense(load, w.add)
	if closing := w.table.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if next.Snapshot = w.count; w.count > 0 {
		if err := j.db.Ingest(ctx, []string{path}); err != nil {
			return err
		}
	}
	return j.turn(old, next)
}

// turn makes a snapshot count. The table that holds it is on the disk.
func (j *Journal) turn(old header, next *header) error {
	b := j.db.NewBatch()
	defer func() { _ = b.Close() }() // after Commit there is nothing that could fail
	head, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := b.Set(keyHeader, head, nil); err != nil {
		return err
	}
	if err := b.DeleteRange(logKey(old.LogFrom), logKey(next.LogFrom), nil); err != nil {
		return err
	}
	// Those of attempts that failed are between the two.
	if err := b.DeleteRange(snapshotKey(old.Generation, 0), snapshotKey(next.Generation, 0), nil); err != nil {
		return err
	}
	return b.Commit(pebble.Sync)
}

const (
	// snapshotName is the file in which a snapshot is made.
	snapshotName = "SNAPSHOT" + temporary
	// chunk is how many bytes of a snapshot are handed to the disk at once, so
	// that the syncs of appends do not wait for many.
	chunk = 256 << 10
	// looks is how often a snapshot looks for room: each so many records.
	looks = 1000
	// bottom is the store's last level, where a snapshot goes.
	bottom = 6
)

var errNoRoom = errors.New("there is not enough room for a snapshot; make room")

// snapshotWriter writes the records of a snapshot.
type snapshotWriter struct {
	journal    *Journal
	table      *sstable.Writer
	generation uint64
	count      uint64
	data       []byte
}

func (w *snapshotWriter) add(rec lease.Record) error {
	if w.count%looks == 0 && !w.journal.reserve.spacious() {
		return errNoRoom
	}
	var err error
	if w.data, err = record.Encode(w.data[:0], rec); err != nil {
		return err
	}
	if err := w.table.Set(snapshotKey(w.generation, w.count), w.data); err != nil {
		return err
	}
	w.count++
	return nil
}

// sweep drops what a snapshot that was interrupted has left, and anything
// older than the present one.
func (j *Journal) sweep() error {
	b := j.db.NewBatch()
	defer func() { _ = b.Close() }() // after Commit there is nothing that could fail
	for _, span := range [][2][]byte{
		{snapshotKey(0, 0), snapshotKey(j.head.Generation, 0)},
		{snapshotKey(j.head.Generation+1, 0), {prefixSnapshot + 1}},
		{logKey(0), logKey(j.head.LogFrom)},
	} {
		if err := b.DeleteRange(span[0], span[1], nil); err != nil {
			return err
		}
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return fmt.Errorf("tidy up the journal in %s; is its disk full? %w", j.dir, err)
	}
	return nil
}
