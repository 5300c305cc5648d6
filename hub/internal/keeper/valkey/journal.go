package valkey

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Journal is a keeper.Journal on a server.
type Journal struct {
	opts    Options
	keys    keys
	session *session
	head    header
	// made, before and interrupted are what taking the fence has found.
	made        bool
	before      uint64
	interrupted bool
	logged      uint64 // records since the snapshot
	scratch     []byte

	watching   context.CancelFunc
	watched    sync.WaitGroup
	room       atomic.Pointer[shortage]
	compacting sync.WaitGroup
	mu         sync.Mutex
	busy       bool
	switched   *header   // the snapshot that began to count since the last append
	owed       uint64    // records that a snapshot was to replace and did not
	notBefore  time.Time // when another snapshot may be tried
}

// Open takes the fence of the journal, or makes a new one on a server that has none. From then on no journal that was
// opened before can append. It waits for a server that does not answer, for the patience of opts.
func Open(ctx context.Context, opts Options) (*Journal, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	j := &Journal{opts: opts, keys: keysOf(opts.Prefix)}
	if err := j.try(ctx, j.take); err != nil {
		return nil, errors.Join(fmt.Errorf("open the lease journal on %s: %w", j.where(), err), j.Close())
	}
	j.watch(context.WithoutCancel(ctx))
	return j, nil
}

// where names the journal for people.
func (j *Journal) where() string {
	return strings.Join(j.opts.Server.Addresses, ", ") + " under the prefix " + j.opts.Prefix
}

// Close ends the connection, after a snapshot that is being written.
func (j *Journal) Close() error {
	j.compacting.Wait()
	if j.watching != nil {
		j.watching()
		j.watched.Wait()
	}
	j.hangUp()
	return nil
}

func (j *Journal) hangUp() {
	if j.session != nil {
		j.session.close()
		j.session = nil
	}
}

// try carries out what until it succeeds, fails for good, or the patience is at its end. What must bear being repeated.
func (j *Journal) try(ctx context.Context, what func(context.Context, *session) error) error {
	ctx, cancel := j.opts.patient(ctx)
	defer cancel()
	const first, longest = 20 * time.Millisecond, time.Second
	for wait := first; ; wait = min(2*wait, longest) {
		err := j.attempt(ctx, what)
		if !passing(err) {
			return err
		}
		j.hangUp()
		if wait == first {
			j.opts.Logger.WarnContext(ctx, "the lease journal's server does not answer; trying again", "err", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server was tried for %s: %w", j.opts.Patience, err)
		case <-j.opts.Clock.After(wait):
		}
	}
}

func (j *Journal) attempt(ctx context.Context, what func(context.Context, *session) error) error {
	ctx, cancel := context.WithTimeout(ctx, j.opts.Timeout)
	defer cancel()
	if j.session == nil {
		s, err := open(ctx, j.opts)
		if err != nil {
			return err
		}
		j.session = s
	}
	return what(ctx, j.session)
}

// verdict is what a script's answer means.
func (j *Journal) verdict(answer []rueidis.RedisMessage, err error) error {
	if err != nil {
		return err
	}
	switch word(answer, 0) {
	case "done", "again":
		return nil
	case "deposed":
		by, err := parseNumber(word(answer, 1))
		if err == nil && by > j.head.epoch {
			return final(&Deposed{Epoch: j.head.epoch, By: by})
		}
		return final(keeper.ErrForgotten)
	case "forgotten":
		return final(fmt.Errorf("it knows epoch %q and batch %q, and this hub epoch %d and batch %d: %w",
			word(answer, 1), word(answer, 2), j.head.epoch, j.head.batch, keeper.ErrForgotten))
	case "foreign":
		return final(fmt.Errorf("%w: %s is there instead of journal %s", errForeign, word(answer, 1), j.head.id))
	case "failed":
		return explain(refused(word(answer, 1)))
	}
	return final(fmt.Errorf("it answers %q %q, and this hub is at batch %d", word(answer, 0), word(answer, 1), j.head.batch))
}

// Append implements keeper.Journal: one batch, fenced, and applied once however often it is sent.
func (j *Journal) Append(ctx context.Context, batch []lease.Record) error {
	var err error
	if j.scratch, err = pack(j.scratch[:0], batch...); err != nil {
		return err
	}
	j.adopt()
	next := number(j.head.batch + 1)
	err = j.try(ctx, func(ctx context.Context, s *session) error {
		return j.verdict(s.run(ctx, appendScript, []string{j.keys.head, j.keys.log},
			j.head.id, number(j.head.epoch), next, s.replication, rueidis.BinaryString(j.scratch)))
	})
	if err != nil {
		return fmt.Errorf("append to the lease journal on %s: %w", j.where(), err)
	}
	j.head.batch++
	j.logged += uint64(len(batch))
	return nil
}

// pack adds records, each after its length.
func pack(into []byte, records ...lease.Record) ([]byte, error) {
	var room [512]byte
	for _, rec := range records {
		one, err := record.Encode(room[:0], rec)
		if err != nil {
			return into, fmt.Errorf("append to the lease journal: %w", err)
		}
		into = append(binary.AppendUvarint(into, uint64(len(one))), one...)
	}
	return into, nil
}

// unpack yields what pack has put, and counts it.
func (j *Journal) unpack(ctx context.Context, data []byte, yield func(lease.Record) error) (n uint64, err error) {
	for len(data) > 0 {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		length, size := binary.Uvarint(data)
		if size <= 0 || length > uint64(len(data)-size) {
			return n, j.damaged("read a record", errors.New("it is shorter than it says"))
		}
		end := size + int(length) //nolint:gosec // within data
		rec, err := record.Decode(data[size:end])
		switch {
		case errors.Is(err, record.ErrNewer):
			return n, fmt.Errorf("read the lease journal on %s: a record is unknown: %w", j.where(), err)
		case err != nil:
			return n, j.damaged("read a record", err)
		}
		if err := yield(rec); err != nil {
			return n, err
		}
		data = data[end:]
		n++
	}
	return n, nil
}

// damaged says what to do about a journal that cannot be read.
func (j *Journal) damaged(what string, err error) error {
	return final(fmt.Errorf("the lease journal on %s is damaged: cannot %s: %w; keep a copy for inspection and delete its keys (%s and those like it): "+
		"the hub then grants nothing for one maxTTL, and has forgotten cooldowns", j.where(), what, err, j.keys.head))
}
