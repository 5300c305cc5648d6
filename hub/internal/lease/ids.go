package lease

import (
	"encoding/base64"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// FleetID names a fleet as "namespace/name". The namespace is the tenant.
type FleetID string

// Namespace returns the tenant part of the id.
func (id FleetID) Namespace() string {
	namespace, _, _ := strings.Cut(string(id), "/")
	return namespace
}

// ProxyUID is the UID of a Proxy object on its member. It never comes back:
// a replaced instance has another one.
type ProxyUID string

// MemberID is the name of a MemberCluster on the hub.
type MemberID string

// Principal is an authenticated caller: the name of an API token or of a
// Kubernetes service account. Two principals never share a lease, a session
// key or a request id.
type Principal string

// RequestID makes an Acquire safe to repeat. It is scoped to a principal and
// a fleet.
type RequestID string

// ID names one lease for ever. It consists of "lse_" and characters of
// [A-Za-z0-9_-], so it can be a user name in a proxy URL without escaping.
type ID string

// leasePrefix begins every lease id, so that one is recognised in a log line.
const leasePrefix = "lse_"

// FencingToken orders grants: of two leases on one proxy the later one has
// the greater token, across restarts and changes of leadership.
type FencingToken struct {
	// Epoch grows with every change of the authority that grants.
	Epoch uint64
	// Sequence grows with every lease granted, and never falls.
	Sequence uint64
}

// String writes the token as "epoch-sequence".
func (t FencingToken) String() string {
	return strconv.FormatUint(t.Epoch, 10) + "-" + strconv.FormatUint(t.Sequence, 10)
}

// Compare returns -1, 0 or 1 as t is older than, equal to or newer than u.
func (t FencingToken) Compare(u FencingToken) int {
	switch {
	case t == u:
		return 0
	case t.Epoch < u.Epoch, t.Epoch == u.Epoch && t.Sequence < u.Sequence:
		return -1
	default:
		return 1
	}
}

// IDSource makes lease ids. The engine calls it from the goroutine that calls
// Step, once for each lease granted. Ids must not repeat.
type IDSource interface {
	NextID() ID
}

// RandomIDs makes ids of 128 random bits.
type RandomIDs struct {
	source io.Reader
}

// NewRandomIDs makes ids from a source of random bytes: crypto/rand.Reader,
// buffered, in a hub, and a seeded one in a test. The source must not fail; a
// failure panics, because an id that can be guessed or repeated is worse.
func NewRandomIDs(source io.Reader) *RandomIDs {
	return &RandomIDs{source: source}
}

// NextID implements [IDSource].
func (r *RandomIDs) NextID() ID {
	var raw [16]byte
	if _, err := io.ReadFull(r.source, raw[:]); err != nil {
		panic(fmt.Sprintf("lease: the source of random lease ids failed: %v", err))
	}
	var text [len(leasePrefix) + 22]byte
	copy(text[:], leasePrefix)
	base64.RawURLEncoding.Encode(text[len(leasePrefix):], raw[:])
	return ID(text[:])
}

// CountingIDs makes lse_1, lse_2 and so on, for tests and transcripts: such
// ids are easy to read and easy to guess.
type CountingIDs struct {
	last uint64
}

// NextID implements [IDSource].
func (c *CountingIDs) NextID() ID {
	c.last++
	return ID(leasePrefix + strconv.FormatUint(c.last, 10))
}
