package disk

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

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
	next.Generation, next.LogFrom = j.generation, j.next
	j.log.Debug("the lease journal is being compacted", "generation", next.Generation)
	j.compacting.Go(func() {
		err := j.replace(ctx, old, &next, condense)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.busy = false
		if err != nil {
			j.log.Error("the lease journal could not be compacted; it goes on growing, and this is tried again; is its disk full?", "dir", j.dir, "err", err)
			return
		}
		j.head = next
		j.log.Info("lease journal compacted", "generation", next.Generation, "records", next.LogFrom-old.LogFrom+old.Snapshot, "kept", next.Snapshot)
	})
}

// chunk is how many bytes of a snapshot are written at once.
const chunk = 1 << 20

// replace writes the snapshot, then switches to it and drops what it stands
// for.
func (j *Journal) replace(ctx context.Context, old header, next *header, condense keeper.Condense) error {
	w := snapshotWriter{journal: j, batch: j.db.NewBatch(), generation: next.Generation}
	defer func() { _ = w.batch.Close() }() // after Commit there is nothing that could fail
	load := func(yield func(lease.Record) error) error { return j.load(ctx, old, next.LogFrom, yield) }
	if err := condense(load, w.add); err != nil {
		return err
	}
	next.Snapshot = w.count
	// The last batch switches. Batches become durable in their order, so with
	// it all others are.
	head, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if err := w.batch.Set(keyHeader, head, nil); err != nil {
		return err
	}
	if err := w.batch.DeleteRange(logKey(old.LogFrom), logKey(next.LogFrom), nil); err != nil {
		return err
	}
	// Those of attempts that failed are between the two.
	if err := w.batch.DeleteRange(snapshotKey(old.Generation, 0), snapshotKey(next.Generation, 0), nil); err != nil {
		return err
	}
	return w.batch.Commit(pebble.Sync)
}

// snapshotWriter writes the records of a snapshot.
type snapshotWriter struct {
	journal    *Journal
	batch      *pebble.Batch
	generation uint64
	count      uint64
	data       []byte
}

func (w *snapshotWriter) add(rec lease.Record) error {
	var err error
	if w.data, err = record.Encode(w.data[:0], rec); err != nil {
		return err
	}
	if err := w.batch.Set(snapshotKey(w.generation, w.count), w.data, nil); err != nil {
		return err
	}
	w.count++
	if w.batch.Len() < chunk {
		return nil
	}
	if err := w.batch.Commit(pebble.NoSync); err != nil {
		return err
	}
	if err := w.batch.Close(); err != nil {
		return err
	}
	w.batch = w.journal.db.NewBatch()
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
