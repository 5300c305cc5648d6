package dispatch

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
)

// Canonical writes v as JSON that is the same for the same content: keys sorted, no space, numbers as they are.
func Canonical(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write %T as JSON: %w", v, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // a float would lose digits of an int64
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return nil, fmt.Errorf("read %T back from its own JSON: %w", v, err)
	}
	return json.Marshal(plain)
}

// Hash returns the SHA-256 of text in hex.
func Hash(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// NewItem makes an item of a spec.
func NewItem(uid string, generation int64, spec any) (Item, error) {
	text, err := Canonical(spec)
	if err != nil {
		return Item{}, err
	}
	return Item{UID: uid, Generation: generation, Hash: Hash(text), Spec: text}, nil
}

// With returns the item with credentials. Its hash speaks of their keys, never of what they are, so that a member is told
// of credentials that were not known before.
func (i Item) With(credentials []Credentials) Item {
	if len(credentials) == 0 {
		return i
	}
	i.Credentials = slices.Clone(credentials)
	slices.SortFunc(i.Credentials, func(a, b Credentials) int { return cmp.Compare(a.Key, b.Key) })
	text := slices.Clone(i.Spec)
	for _, c := range i.Credentials {
		text = append(append(text, '\n'), c.Key...)
	}
	i.Hash = Hash(text)
	return i
}
