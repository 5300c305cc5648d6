package dispatch

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
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
