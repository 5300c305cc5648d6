package valkey

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

const (
	// chunksAtOnce parts of a snapshot, 256 KiB each, are read at once.
	chunksAtOnce = 8
	// batchesAtOnce entries of the log are read at once.
	batchesAtOnce = 256
)

// Load implements keeper.Journal: the records of the snapshot, then those appended since.
func (j *Journal) Load(ctx context.Context, yield func(lease.Record) error) error {
	if err := j.loadSnapshot(ctx, yield); err != nil {
		return err
	}
	return j.loadLog(ctx, yield)
}

func (j *Journal) loadSnapshot(ctx context.Context, yield func(lease.Record) error) error {
	list := j.keys.lists[j.head.generation%2]
	var records uint64
	for at := uint64(0); at < j.head.chunks; {
		var parts []string
		err := j.try(ctx, func(ctx context.Context, s *session) (err error) {
			parts, err = s.do(ctx, "LRANGE", list, number(at), number(min(at+chunksAtOnce, j.head.chunks)-1)).AsStrSlice()
			return err
		})
		if err != nil {
			return fmt.Errorf("read the lease journal on %s: %w", j.where(), err)
		}
		if len(parts) == 0 {
			return j.damaged("read the snapshot", fmt.Errorf("%d of its %d parts are there", at, j.head.chunks))
		}
		for _, part := range parts {
			n, err := j.unpack(ctx, []byte(part), yield)
			if err != nil {
				return err
			}
			records += n
		}
		at += uint64(len(parts))
	}
	if records != j.head.records {
		return j.damaged("read the snapshot", fmt.Errorf("it has %d records, not %d", records, j.head.records))
	}
	return nil
}

func (j *Journal) loadLog(ctx context.Context, yield func(lease.Record) error) error {
	j.logged = 0
	for next := j.head.from; next <= j.head.batch; {
		var entries []rueidis.XRangeEntry
		err := j.try(ctx, func(ctx context.Context, s *session) (err error) {
			entries, err = s.do(ctx, "XRANGE", j.keys.log, number(next)+"-0", number(j.head.batch)+"-0", "COUNT", strconv.Itoa(batchesAtOnce)).AsXRange()
			return err
		})
		if err != nil {
			return fmt.Errorf("read the lease journal on %s: %w", j.where(), err)
		}
		if len(entries) == 0 {
			return j.damaged("read the log", fmt.Errorf("it ends before batch %d, and the last is %d", next, j.head.batch))
		}
		for _, entry := range entries {
			batch, _, _ := strings.Cut(entry.ID, "-")
			if batch != number(next) {
				return j.damaged("read the log", fmt.Errorf("batch %s comes where %d should", batch, next))
			}
			data, ok := entry.FieldValues["r"]
			if !ok {
				return j.damaged("read the log", errors.New("an entry has no records"))
			}
			n, err := j.unpack(ctx, []byte(data), yield)
			if err != nil {
				return err
			}
			j.logged += n
			next++
		}
	}
	return nil
}
