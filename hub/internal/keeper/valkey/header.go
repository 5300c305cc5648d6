package valkey

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
)

// layout is the version of the keys and the header.
const layout = 1

// keys are the names of the journal's keys. What is in braces decides on the hash slot.
type keys struct {
	head, log string
	lists     [2]string // the snapshot of a generation is in the list generation%2
}

func keysOf(prefix string) keys {
	name := func(part string) string { return "{" + prefix + "}:journal:" + part }
	return keys{head: name("header"), log: name("log"), lists: [2]string{name("snapshot:0"), name("snapshot:1")}}
}

// header is what the server knew when the fence was taken, and what this journal has made of it since.
type header struct {
	id    string
	epoch uint64
	// batch is the last one that was appended.
	batch uint64
	since time.Time
	whole bool
	// generation is that of the snapshot; chunks and records are its parts and its records, and from is the first batch
	// that is not in it.
	generation, chunks, records, from uint64
}

// take takes the fence.
func (j *Journal) take(ctx context.Context, s *session) error {
	opts := &j.opts
	answer, err := s.run(ctx, fenceScript, []string{j.keys.head, j.keys.log, j.keys.lists[0], j.keys.lists[1]},
		number(layout), opts.Owner, number(uint64(max(0, opts.Now.Unix()))), //nolint:gosec // not negative
		opts.Since.UTC().Format(time.RFC3339Nano), flag(opts.New), s.replication, number(opts.LeastEpoch), rand.Text())
	if err != nil {
		return err
	}
	switch word(answer, 0) {
	case "taken":
		return j.taken(answer)
	case "foreign":
		return final(fmt.Errorf("%w: %s is a %s, and not a %s; choose another --journal-valkey-prefix", errForeign, word(answer, 1), word(answer, 2), word(answer, 3)))
	case "headless":
		return j.damaged("read its header", fmt.Errorf("there is none, but %s is there", word(answer, 1)))
	case "layout":
		return final(fmt.Errorf("the journal has layout %s, not %d: %w", word(answer, 1), layout, record.ErrNewer))
	case "owner":
		return final(fmt.Errorf("the journal belongs to hub %s, and this is hub %s: give this one a --journal-valkey-prefix of its own, or restore the identity of that one",
			word(answer, 1), opts.Owner))
	}
	return j.damaged("read its header", fmt.Errorf("%s makes no sense", word(answer, 1)))
}

// taken reads what the script has answered: four words, then the header's fields and their values.
func (j *Journal) taken(answer []rueidis.RedisMessage) error {
	before, err := parseNumber(word(answer, 2))
	if err != nil {
		return j.damaged("read its header", err)
	}
	if j.head.epoch > 0 && before == j.head.epoch {
		before = j.before // the answer to an earlier attempt was lost
	} else {
		j.made = word(answer, 1) == "1"
		j.interrupted = word(answer, 3) == "1"
	}
	j.before = before
	fields := map[string]string{}
	for i := 4; i+1 < len(answer); i += 2 {
		fields[word(answer, i)] = word(answer, i+1)
	}
	j.head = header{id: fields["id"], whole: fields["whole"] == "1"}
	for name, to := range map[string]*uint64{
		"epoch": &j.head.epoch, "batch": &j.head.batch, "generation": &j.head.generation,
		"chunks": &j.head.chunks, "records": &j.head.records, "from": &j.head.from,
	} {
		if *to, err = parseNumber(fields[name]); err != nil {
			return j.damaged("read its header", fmt.Errorf("%s: %w", name, err))
		}
	}
	if j.head.since, err = time.Parse(time.RFC3339Nano, fields["since"]); err != nil {
		return j.damaged("read its header", err)
	}
	return nil
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// ID names the journal for ever.
func (j *Journal) ID() string { return j.head.id }

// Epoch is that of this start: greater than all before, whatever the clock says.
func (j *Journal) Epoch() uint64 { return j.head.epoch }

// Before is the epoch of the start before this one, as the server knows it; 0 if there was none.
func (j *Journal) Before() uint64 { return j.before }

// Since is from when on the journal holds everything that its hub granted. whole says that nothing was granted before.
func (j *Journal) Since() (since time.Time, whole bool) { return j.head.since, j.head.whole }

// Fresh tells whether this start made the journal.
func (j *Journal) Fresh() bool { return j.made }

// Replaced tells whether the server, since the last append, was restarted or failed over, so that history begins now.
func (j *Journal) Replaced() bool { return j.interrupted }

// Interrupted says that the hub may have granted leases that are not in the journal, until now. The records stay: what
// they say still holds.
func (j *Journal) Interrupted(ctx context.Context, now time.Time) error {
	j.head.since, j.head.whole = now.UTC(), false
	return j.try(ctx, func(ctx context.Context, s *session) error {
		return j.verdict(s.run(ctx, sinceScript, []string{j.keys.head}, j.head.id, number(j.head.epoch), now.UTC().Format(time.RFC3339Nano)))
	})
}
