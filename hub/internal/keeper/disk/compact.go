package disk

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// numberOf reads the number at the end of a key of the log.
func numberOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[1:]) }

// CompactDue tells whether the log is long enough to be replaced: more
// records than the last snapshot has, and than Options.CompactAfter. So
// snapshots cost at most as much as the log itself.
func (j *Journal) CompactDue() bool {
	if j.next-j.head.LogFrom < max(j.least, j.base) {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.busy && j.failed == nil
}

// Compact replaces all records appended so far by a snapshot of what they
// came to. It returns at once: the snapshot is written beside the appends
// that follow. What makes it count is one synced batch at its end; a process
// that ends before has the records as they were. If it fails, the next Append
// does.
func (j *Journal) Compact(_ context.Context, snapshot []lease.Record) {
	next := j.head
	next.Generation++
	next.Snapshot = uint64(len(snapshot))
	next.LogFrom = j.next
	old := j.head
	j.head, j.base = next, next.Snapshot
	j.mu.Lock()
	j.busy = true
	j.mu.Unlock()
	j.compacting.Go(func() {
		err := j.replace(old, next, snapshot)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.busy = false
		if err != nil {
			j.failed = fmt.Errorf("write a snapshot to the journal in %s; is its disk full? %w", j.dir, err)
		}
	})
}

// chunk is how many bytes of a snapshot are written at once.
const chunk = 1 << 20

// replace writes the snapshot, then switches to it and drops what it stands
// for.
func (j *Journal) replace(old, next header, snapshot []lease.Record) error {
	b := j.db.NewBatch()
	defer func() { _ = b.Close() }() // after Commit there is nothing that could fail
	var data []byte
	for i, rec := range snapshot {
		var err error
		if data, err = record.Encode(data[:0], rec); err != nil {
			return err
		}
		if err := b.Set(snapshotKey(next.Generation, uint64(i)), data, nil); err != nil {
			return err
		}
		if b.Len() < chunk {
			continue
		}
		if err := b.Commit(pebble.NoSync); err != nil {
			return err
		}
		if err := b.Close(); err != nil {
			return err
		}
		b = j.db.NewBatch()
	}
	// The last batch switches. Batches become durable in their order, so with
	// it all others are.
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
	if err := b.DeleteRange(snapshotKey(old.Generation, 0), snapshotKey(old.Generation+1, 0), nil); err != nil {
		return err
	}
	if err := b.Commit(pebble.Sync); err != nil {
		return err
	}
	j.log.Info("lease journal compacted", "generation", next.Generation, "records", next.LogFrom-old.LogFrom+old.Snapshot, "kept", next.Snapshot)
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
