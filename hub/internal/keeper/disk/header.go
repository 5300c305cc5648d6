package disk

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
)

// layout is the version of the keys and the header.
const layout = 1

// header says what the journal holds. It changes in one synced batch with
// what it describes.
type header struct {
	Layout int    `json:"layout"`
	ID     string `json:"id"`
	Owner  string `json:"owner"`
	// Epoch is that of the last start.
	Epoch uint64 `json:"epoch"`
	// Since is from when on it holds everything; Whole says that it does so
	// from the owner's beginning.
	Since time.Time `json:"since"`
	Whole bool      `json:"whole"`
	// Generation is that of the snapshot, Snapshot its number of records, and
	// LogFrom the first record of the log that is not in it.
	Generation uint64 `json:"generation"`
	Snapshot   uint64 `json:"snapshot"`
	LogFrom    uint64 `json:"logFrom"`
	// Next is the number that the log's next record had at the last start:
	// those before it must be there.
	Next uint64 `json:"next"`
}

// start reads the header, or writes the first one, and begins a new epoch.
func (j *Journal) start(opts Options) error {
	found, err := j.readHeader()
	if err != nil {
		return err
	}
	switch {
	case !found:
		if j.note.known {
			return j.damaged("read its header", fmt.Errorf("there is none: %w", os.ErrNotExist))
		}
		if err := j.checkEmpty(); err != nil {
			return err
		}
		j.fresh = true
		j.head = header{Layout: layout, ID: rand.Text(), Owner: opts.Owner, Since: opts.Now.UTC(), Whole: opts.New}
	case j.head.Layout != layout:
		return fmt.Errorf("the journal in %s has layout %d, not %d: %w", j.dir, j.head.Layout, layout, record.ErrNewer)
	case j.head.Owner != opts.Owner:
		return fmt.Errorf("the journal in %s belongs to hub %s, and this is hub %s: give this one a directory of its own, or restore the identity of that one",
			j.dir, j.head.Owner, opts.Owner)
	}
	j.head.Epoch = max(j.head.Epoch+1, uint64(max(0, opts.Now.Unix()))) //nolint:gosec // not negative
	if err := j.findEnd(); err != nil {
		return err
	}
	if wanted := max(j.head.Next, j.head.LogFrom); j.next < wanted {
		return j.damaged("read the log", fmt.Errorf("record %d was there at the last start, and the last one is %d", wanted-1, j.next-1))
	}
	j.head.Next = j.next
	j.tried, j.generation = j.head.LogFrom, j.head.Generation
	return j.writeHeader()
}

func (j *Journal) readHeader() (found bool, err error) {
	data, closer, err := j.db.Get(keyHeader)
	switch {
	case errors.Is(err, pebble.ErrNotFound):
		return false, nil
	case err != nil:
		return false, j.damaged("read its header", err)
	}
	defer func() { err = errors.Join(err, closer.Close()) }()
	if err := json.Unmarshal(data, &j.head); err != nil {
		return false, j.damaged("read its header", err)
	}
	return true, nil
}

// checkEmpty refuses a store without a header that holds something: it is not
// a journal.
func (j *Journal) checkEmpty() (err error) {
	it, err := j.db.NewIter(nil)
	if err != nil {
		return j.damaged("read it", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	if it.First() {
		return fmt.Errorf("%s holds a store of another program; give the hub a directory of its own with --journal-dir", j.dir)
	}
	return it.Error()
}

func (j *Journal) writeHeader() error {
	data, err := json.Marshal(j.head)
	if err != nil {
		return err
	}
	if err := j.db.Set(keyHeader, data, pebble.Sync); err != nil {
		return fmt.Errorf("write the header of the journal in %s; is its disk full? %w", j.dir, err)
	}
	return nil
}

// findEnd finds the number of the next record.
func (j *Journal) findEnd() (err error) {
	it, err := j.db.NewIter(&pebble.IterOptions{LowerBound: logKey(j.head.LogFrom), UpperBound: []byte{prefixLog + 1}})
	if err != nil {
		return j.damaged("read it", err)
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	j.next = j.head.LogFrom
	if it.Last() {
		key := it.Key()
		if len(key) != len(logKey(0)) {
			return j.damaged("read it", fmt.Errorf("key %x is none of the log", key))
		}
		j.next = numberOf(key) + 1
	}
	if err := it.Error(); err != nil {
		return j.damaged("read it", err)
	}
	j.appended.Store(j.next)
	return nil
}

// ID names the journal for ever.
func (j *Journal) ID() string { return j.head.ID }

// Epoch is that of this start: greater than all before, whatever the clock
// says.
func (j *Journal) Epoch() uint64 { return j.head.Epoch }

// Since is from when on the journal holds everything that its hub granted.
// whole says that nothing was granted before.
func (j *Journal) Since() (since time.Time, whole bool) { return j.head.Since, j.head.Whole }

// Fresh tells whether this start made the journal.
func (j *Journal) Fresh() bool { return j.fresh }

// Interrupted says that the hub may have granted leases that are not in the
// journal, until now. The records stay: what they say still holds.
func (j *Journal) Interrupted(now time.Time) error {
	j.head.Since, j.head.Whole = now.UTC(), false
	return j.writeHeader()
}
