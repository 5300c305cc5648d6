package session

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// Version is which version of an item somebody has.
type Version struct {
	UID        string
	Generation int64
	Hash       string
}

// digest sorts the versions in place, by uid, and returns a hash over them. Two lists have the same digest exactly when
// they hold the same versions.
func digest(versions []Version) []byte {
	slices.SortFunc(versions, func(a, b Version) int { return cmp.Compare(a.UID, b.UID) })
	h := sha256.New()
	var buf []byte
	for _, v := range versions {
		// Lengths go first, so that no two lists run together into one text.
		buf = binary.AppendUvarint(buf[:0], uint64(len(v.UID)))
		buf = append(buf, v.UID...)
		buf = binary.AppendVarint(buf, v.Generation)
		buf = binary.AppendUvarint(buf, uint64(len(v.Hash)))
		buf = append(buf, v.Hash...)
		h.Write(buf)
	}
	return h.Sum(nil)
}
