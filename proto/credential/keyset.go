package credential

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Bounds of a key file: it is read again and again by a small program.
const (
	// MaxKeySetBytes is the size of the largest key file that is read.
	MaxKeySetBytes = 512 << 10
	// MaxKeys is the greatest number of keys in one set.
	MaxKeys = 64
	// MaxDenials is the greatest number of deny rules in one set.
	MaxDenials = 4096
)

// Key is a public key that proxies accept.
type Key struct {
	// ID is [KeyIDOf] the public key.
	ID KeyID
	// Public checks signatures.
	Public ed25519.PublicKey
	// Use says what the key may sign.
	Use Use
}

// Denial revokes tokens that are still running. A set Principal or Proxy must match; at least one is set.
type Denial struct {
	// Principal is the denied principal by its full name; empty means all on Proxy.
	Principal Principal
	// Proxy is the proxy where it is denied; empty means everywhere.
	Proxy ProxyUID
	// IssuedBefore spares tokens issued at or after it; zero spares none. A token's issue time is the start of its
	// window, so tokens of the window in which somebody was denied stay denied to that window's end.
	IssuedBefore time.Time
}

// KeySet is the set of keys that a proxy accepts. It is immutable; its zero value accepts nothing.
type KeySet struct {
	keys map[KeyID]Key
}

// DenyList is the set of revocations that a proxy knows. It is immutable; its zero value denies nothing.
type DenyList struct {
	byPrincipal map[Principal][]Denial
	byProxy     map[ProxyUID][]Denial // rules without a principal
}

// NewKeySet returns the set of the given keys, or an error that wraps [ErrBadKeySet]. A key may be given twice, but
// only for one use.
func NewKeySet(keys ...Key) (KeySet, error) {
	set := KeySet{keys: make(map[KeyID]Key, len(keys))}
	for _, k := range keys {
		switch {
		case len(k.Public) != ed25519.PublicKeySize:
			return KeySet{}, fmt.Errorf("%w: key %q has %d bytes, an Ed25519 public key has %d", ErrBadKeySet, k.ID, len(k.Public), ed25519.PublicKeySize)
		case k.ID != KeyIDOf(k.Public):
			return KeySet{}, fmt.Errorf("%w: the key with id %q must have the id %q", ErrBadKeySet, k.ID, KeyIDOf(k.Public))
		case k.Use != UseLease && k.Use != UseProbe:
			return KeySet{}, fmt.Errorf("%w: key %q has the use %q; say %q or %q", ErrBadKeySet, k.ID, k.Use, UseLease, UseProbe)
		}
		if have, ok := set.keys[k.ID]; ok && (have.Use != k.Use || !have.Public.Equal(k.Public)) {
			return KeySet{}, fmt.Errorf("%w: key %q is there twice with different contents", ErrBadKeySet, k.ID)
		}
		set.keys[k.ID] = k
	}
	if len(set.keys) > MaxKeys {
		return KeySet{}, fmt.Errorf("%w: %d keys, more than %d", ErrBadKeySet, len(set.keys), MaxKeys)
	}
	return set, nil
}

// Keys returns the keys, ordered by id.
func (s KeySet) Keys() []Key {
	keys := make([]Key, 0, len(s.keys))
	for _, k := range s.keys {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return keys
}

func (s KeySet) lookup(id KeyID) (Key, bool) {
	k, ok := s.keys[id]
	return k, ok
}

// NewDenyList returns the list of the given rules, or an error that wraps [ErrBadKeySet].
func NewDenyList(denials ...Denial) (DenyList, error) {
	if len(denials) > MaxDenials {
		return DenyList{}, fmt.Errorf("%w: %d deny rules, more than %d; roll the signing key instead", ErrBadKeySet, len(denials), MaxDenials)
	}
	list := DenyList{byPrincipal: make(map[Principal][]Denial), byProxy: make(map[ProxyUID][]Denial)}
	for i, d := range denials {
		switch {
		case d.Principal == "" && d.Proxy == "":
			return DenyList{}, fmt.Errorf("%w: deny rule %d names neither principal nor proxy; to deny everything remove the key", ErrBadKeySet, i)
		case d.Principal != "":
			short := ShortPrincipal(d.Principal)
			list.byPrincipal[short] = append(list.byPrincipal[short], d)
		default:
			list.byProxy[d.Proxy] = append(list.byProxy[d.Proxy], d)
		}
	}
	return list, nil
}

func (l DenyList) denies(c Claims) bool {
	hit := func(d Denial) bool {
		return (d.Proxy == "" || d.Proxy == c.Proxy) && (d.IssuedBefore.IsZero() || c.Issued.Before(d.IssuedBefore))
	}
	return slices.ContainsFunc(l.byPrincipal[c.Principal], hit) || slices.ContainsFunc(l.byProxy[c.Proxy], hit)
}

// keyFile is the JSON form of a key file.
type keyFile struct {
	Keys []keyEntry  `json:"keys"`
	Deny []denyEntry `json:"deny,omitempty"`
}

type keyEntry struct {
	ID        KeyID  `json:"id"`
	PublicKey string `json:"publicKey"` // standard base64 of the 32 bytes
	Use       Use    `json:"use"`
}

type denyEntry struct {
	Principal    Principal `json:"principal,omitempty"`
	Proxy        ProxyUID  `json:"proxy,omitempty"`
	IssuedBefore string    `json:"issuedBefore,omitempty"` // RFC 3339
}

// Marshal returns the JSON of a key file, the same bytes for the same content, with a line break at its end.
func Marshal(keys []Key, deny []Denial) ([]byte, error) {
	set, err := NewKeySet(keys...)
	if err != nil {
		return nil, err
	}
	if _, err := NewDenyList(deny...); err != nil {
		return nil, err
	}
	file := keyFile{Keys: []keyEntry{}}
	for _, k := range set.Keys() {
		file.Keys = append(file.Keys, keyEntry{ID: k.ID, PublicKey: base64.StdEncoding.EncodeToString(k.Public), Use: k.Use})
	}
	for _, d := range deny {
		entry := denyEntry{Principal: d.Principal, Proxy: d.Proxy}
		if !d.IssuedBefore.IsZero() {
			entry.IssuedBefore = d.IssuedBefore.UTC().Format(time.RFC3339Nano)
		}
		file.Deny = append(file.Deny, entry)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(file); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadKeySet, err)
	}
	return out.Bytes(), nil
}

// Parse reads one key file. It is strict: a field or a use that it does not know is an error that wraps
// [ErrBadKeySet], because a rule that is not understood must not be dropped.
func Parse(data []byte) ([]Key, []Denial, error) {
	if len(data) > MaxKeySetBytes {
		return nil, nil, fmt.Errorf("%w: %d bytes, more than %d", ErrBadKeySet, len(data), MaxKeySetBytes)
	}
	var file keyFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrBadKeySet, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, fmt.Errorf("%w: there is more after the JSON object", ErrBadKeySet)
	}
	if file.Keys == nil {
		return nil, nil, fmt.Errorf("%w: \"keys\" is missing; write [] for none", ErrBadKeySet)
	}
	keys := make([]Key, 0, len(file.Keys))
	for _, e := range file.Keys {
		public, err := base64.StdEncoding.Strict().DecodeString(e.PublicKey)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: the public key of %q is not base64", ErrBadKeySet, e.ID)
		}
		keys = append(keys, Key{ID: e.ID, Public: public, Use: e.Use})
	}
	var denials []Denial
	for i, e := range file.Deny {
		d := Denial{Principal: e.Principal, Proxy: e.Proxy}
		if e.IssuedBefore != "" {
			at, err := time.Parse(time.RFC3339, e.IssuedBefore)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: issuedBefore of deny rule %d is %q; write a time like 2026-01-02T15:04:05Z", ErrBadKeySet, i, e.IssuedBefore)
			}
			d.IssuedBefore = at
		}
		denials = append(denials, d)
	}
	// Check here, so that the error can be told from one that appears only when files are merged.
	if _, err := NewKeySet(keys...); err != nil {
		return nil, nil, err
	}
	if _, err := NewDenyList(denials...); err != nil {
		return nil, nil, err
	}
	return keys, denials, nil
}

// File is one key file by name.
type File struct {
	// Name is used in errors.
	Name string
	// Data is its content.
	Data []byte
}

// Merge reads several key files into one set: the hub's keys and the agent's own lie side by side. All must be good,
// else nothing is returned but an error that wraps [ErrBadKeySet] and names the file.
func Merge(files ...File) (KeySet, DenyList, error) {
	var keys []Key
	var denials []Denial
	for _, f := range files {
		k, d, err := Parse(f.Data)
		if err != nil {
			return KeySet{}, DenyList{}, fmt.Errorf("%s: %w", f.Name, err)
		}
		keys, denials = append(keys, k...), append(denials, d...)
	}
	set, err := NewKeySet(keys...)
	if err != nil {
		return KeySet{}, DenyList{}, err
	}
	list, err := NewDenyList(denials...)
	if err != nil {
		return KeySet{}, DenyList{}, err
	}
	return set, list, nil
}
