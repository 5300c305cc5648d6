package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
)

// The store takes whatever it cannot read in the last block of its log (32
// KiB) for the torn end of a write that was under way, and drops what follows.
// If a disk has changed a byte there, what follows was acknowledged. The two
// can be told apart: an append begins when the one before it is synced. So
// records of a later append than the first that is missing prove damage. For
// that each record in the log knows its place in its append.

// newestLog reads the store's newest log, as it is before the store opens it.
func newestLog(dir string) ([]byte, error) {
	_, newest, err := findLog(dir)
	if err != nil || newest == "" {
		return nil, err
	}
	data, err := os.ReadFile(newest)
	if err != nil {
		return nil, fmt.Errorf("read the journal's log: %w", err)
	}
	return data, nil
}

// lost finds a record of a later append than the one that would begin with
// number next. It returns the record's number.
func lost(log []byte, next uint64) (number uint64, found bool) {
	const key = 9 // bytes of a key of the log
	for i := 0; i+key < len(log); i++ {
		if log[i] != prefixLog {
			continue
		}
		n := binary.BigEndian.Uint64(log[i+1:])
		if n <= next || n > next+1<<24 {
			continue
		}
		length, size := binary.Uvarint(log[i+key:])
		from := i + key + size
		if size <= 0 || length > uint64(len(log)-from) {
			continue
		}
		place, data, err := splitPlace(log[from : from+int(length)]) //nolint:gosec // within the log
		if err != nil || n-place <= next {
			continue
		}
		if _, err := record.Decode(data); err == nil {
			return n, true
		}
	}
	return 0, false
}

var errShort = errors.New("it is shorter than it says")

// splitPlace reads a value of the log: the place in the append, then the
// record.
func splitPlace(value []byte) (place uint64, data []byte, err error) {
	place, size := binary.Uvarint(value)
	if size <= 0 {
		return 0, nil, errShort
	}
	return place, value[size:], nil
}
