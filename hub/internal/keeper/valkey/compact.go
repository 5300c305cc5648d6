package valkey

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// chunk is how many bytes of a snapshot are sent at once.
const chunk = 256 << 10

// restAfterFailure is how long the log just grows after a snapshot could not be written.
const restAfterFailure = time.Minute

// CompactDue tells whether the log is long enough to be replaced: more records than the last snapshot has, and than
// Options.CompactAfter.
func (j *Journal) CompactDue() bool {
	j.adopt()
	if j.logged < max(uint64(j.opts.CompactAfter), j.head.records) { //nolint:gosec // positive
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.busy && !j.opts.Clock.Now().Before(j.notBefore)
}

// Compact begins to replace all records appended so far by what condense makes of them. It returns at once: the records are
// read and the snapshot is sent over a connection of its own beside the appends that follow, and one script makes it
// count. If that fails, the log stays as it is, and another snapshot is due after a while.
func (j *Journal) Compact(ctx context.Context, condense keeper.Condense) {
	j.adopt()
	replaced := j.logged
	j.logged = 0
	j.mu.Lock()
	j.busy = true
	j.mu.Unlock()
	from, to := j.aside(), j.aside()
	to.head.generation++
	to.head.from = j.head.batch + 1
	j.compacting.Go(func() {
		defer from.hangUp()
		defer to.hangUp()
		err := to.write(ctx, func(emit func(lease.Record) error) error {
			return condense(func(yield func(lease.Record) error) error { return from.Load(ctx, yield) }, emit)
		}, false)
		j.mu.Lock()
		defer j.mu.Unlock()
		j.busy = false
		if err != nil {
			j.notBefore = j.opts.Clock.Now().Add(restAfterFailure)
			j.owed += replaced
			j.opts.Logger.WarnContext(ctx, "the lease journal could not be compacted; it goes on growing", "err", err)
			return
		}
		j.switched = &to.head
		j.opts.Logger.InfoContext(ctx, "lease journal compacted", "generation", to.head.generation, "records", replaced, "kept", to.head.records)
	})
}

// aside is this journal as it is now, for another goroutine: with a connection of its own.
func (j *Journal) aside() *Journal { return &Journal{opts: j.opts, keys: j.keys, head: j.head} }

// adopt takes notice of what became of a snapshot.
func (j *Journal) adopt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.logged += j.owed
	j.owed = 0
	if s := j.switched; s != nil {
		j.head.generation, j.head.chunks, j.head.records, j.head.from = s.generation, s.chunks, s.records, s.from
		j.switched = nil
	}
}

// Rewrite implements keeper.Rewriter: everything on the server is replaced by the snapshot, which is all that this
// journal's hub knows, the batch that was refused included. It is for a server that has forgotten what it had
// acknowledged. Until it is done the header says that it is not, so that a hub which starts meanwhile believes nothing.
func (j *Journal) Rewrite(ctx context.Context, snapshot func(emit func(lease.Record) error) error) error {
	j.compacting.Wait()
	j.adopt()
	w := j.aside()
	defer w.hangUp()
	err := w.try(ctx, func(ctx context.Context, s *session) error {
		answer, err := s.run(ctx, reclaimScript, []string{w.keys.head, w.keys.log, w.keys.lists[0], w.keys.lists[1]},
			w.head.id, number(w.head.epoch), number(layout), w.opts.Owner, w.head.since.Format(time.RFC3339Nano), s.replication)
		if err := w.verdict(answer, err); err != nil {
			return err
		}
		w.head.generation, err = parseNumber(word(answer, 1))
		return err
	})
	if err == nil {
		w.head.generation++
		w.head.batch = j.head.batch + 1
		w.head.from = w.head.batch + 1
		err = w.write(ctx, snapshot, true)
	}
	if err != nil {
		return fmt.Errorf("write the lease journal on %s again: %w", j.where(), err)
	}
	j.head, j.logged = w.head, 0
	j.opts.Logger.WarnContext(ctx, "the lease journal's server had forgotten what it acknowledged; all of it was written again", "records", j.head.records)
	return nil
}

// write sends the snapshot of j.head's generation and makes it count.
func (j *Journal) write(ctx context.Context, snapshot func(emit func(lease.Record) error) error, rewrite bool) error {
	list, old := j.keys.lists[j.head.generation%2], j.keys.lists[(j.head.generation+1)%2]
	if err := j.drop(ctx, list); err != nil { // what an interrupted one has left
		return err
	}
	j.head.chunks, j.head.records = 0, 0
	var part []byte
	push := func() error {
		err := j.try(ctx, func(ctx context.Context, s *session) error {
			return j.verdict(s.run(ctx, pushScript, []string{j.keys.head, list},
				j.head.id, number(j.head.epoch), number(j.head.chunks), rueidis.BinaryString(part)))
		})
		part = part[:0]
		j.head.chunks++
		return err
	}
	err := snapshot(func(rec lease.Record) (err error) {
		if part, err = pack(part, rec); err != nil {
			return err
		}
		if j.head.records++; len(part) < chunk {
			return nil
		}
		return push()
	})
	if err == nil && len(part) > 0 {
		err = push()
	}
	if err != nil {
		return err
	}
	last := ""
	if rewrite {
		last = number(j.head.batch)
	}
	return j.try(ctx, func(ctx context.Context, s *session) error {
		return j.verdict(s.run(ctx, switchScript, []string{j.keys.head, j.keys.log, list, old}, j.head.id, number(j.head.epoch),
			number(j.head.generation), number(j.head.chunks), number(j.head.records), number(j.head.from), s.replication,
			last, j.head.since.Format(time.RFC3339Nano), flag(j.head.whole)))
	})
}

// drop empties a key that is not in use.
func (j *Journal) drop(ctx context.Context, key string) error {
	return j.try(ctx, func(ctx context.Context, s *session) error {
		return j.verdict(s.run(ctx, dropScript, []string{j.keys.head, key}, j.head.id, number(j.head.epoch)))
	})
}
