package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Load implements keeper.Journal: the records of the snapshot, then those
// appended since.
func (j *Journal) Load(ctx context.Context, yield func(lease.Record) error) error {
	return j.load(ctx, j.head, j.next, yield)
}

// Expected estimates how many leases Load will tell of: most records of a
// snapshot are one, and of those of the log half end or extend others.
func (j *Journal) Expected() int {
	return int(j.head.Snapshot + (j.next-j.head.LogFrom)/2) //nolint:gosec // they are counted in memory
}

// load yields what a header names, up to a number of the log.
func (j *Journal) load(ctx context.Context, head header, next uint64, yield func(lease.Record) error) error {
	whole := func(value []byte) ([]byte, error) { return value, nil }
	n, err := j.read(ctx, span{snapshotKey(head.Generation, 0), snapshotKey(head.Generation+1, 0), whole}, yield)
	if err != nil {
		return err
	}
	if n != head.Snapshot {
		return j.damaged("read the snapshot", fmt.Errorf("it has %d records, not %d", n, head.Snapshot))
	}
	placed := func(value []byte) ([]byte, error) {
		_, data, err := splitPlace(value)
		return data, err
	}
	n, err = j.read(ctx, span{logKey(head.LogFrom), logKey(next), placed}, yield)
	if err != nil {
		return err
	}
	if head.LogFrom+n != next {
		return j.damaged("read the log", fmt.Errorf("%d records are there from number %d on, and the last is %d", n, head.LogFrom, next-1))
	}
	return nil
}

// span is a range of keys, and how a record is found in a value.
type span struct {
	from, to []byte
	record   func(value []byte) ([]byte, error)
}

// run is how many records are decoded at once.
const run = 256

// decoded are records that follow each other, and why there are no more of
// them if that is wrong.
type decoded struct {
	records []lease.Record
	err     error
}

// read yields the records of a span and counts them. They are decoded on one
// goroutine and yielded on the caller's, as both take their time.
func (j *Journal) read(ctx context.Context, s span, yield func(lease.Record) error) (n uint64, err error) {
	reading, stop := context.WithCancel(ctx)
	runs := make(chan decoded, 4)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(runs)
		j.decode(reading, s, runs)
	})
	defer reader.Wait()
	defer stop()
	for d := range runs {
		for _, rec := range d.records {
			if err := ctx.Err(); err != nil {
				return n, err
			}
			if err := yield(rec); err != nil {
				return n, err
			}
			n++
		}
		if d.err != nil {
			return n, d.err
		}
	}
	return n, ctx.Err()
}

// decode sends the records of a span, until one cannot be had or ctx ends.
func (j *Journal) decode(ctx context.Context, s span, runs chan<- decoded) {
	send := func(d decoded) bool {
		select {
		case runs <- d:
			return true
		case <-ctx.Done():
			return false
		}
	}
	it, err := j.db.NewIter(&pebble.IterOptions{LowerBound: s.from, UpperBound: s.to})
	if err != nil {
		send(decoded{err: j.damaged("read it", err)})
		return
	}
	decoder := record.NewDecoder()
	d := decoded{records: make([]lease.Record, 0, run)}
	for ok := it.First(); ok && d.err == nil; ok = it.Next() {
		rec, err := j.recordIn(decoder, it.Value(), s)
		if err != nil {
			d.err = err
			continue
		}
		if d.records = append(d.records, rec); len(d.records) < run {
			continue
		}
		if !send(d) {
			d.records = nil
			break
		}
		d.records = make([]lease.Record, 0, run)
	}
	if closing := it.Close(); closing != nil && d.err == nil {
		d.err = j.damaged("read it", closing)
	}
	send(d)
}

func (j *Journal) recordIn(decoder *record.Decoder, value []byte, s span) (lease.Record, error) {
	data, err := s.record(value)
	if err != nil {
		return nil, j.damaged("read it", err)
	}
	rec, err := decoder.Decode(data)
	switch {
	case errors.Is(err, record.ErrNewer):
		return nil, fmt.Errorf("read the journal in %s: a record is unknown: %w", j.dir, err)
	case err != nil:
		return nil, j.damaged("read a record", err)
	}
	return rec, nil
}
