// Package record encodes the lease engine's records for the journals that outlive their process. All of them use the same
// bytes, so that leases can be moved from one kind of journal to another.
//
// An encoded record has a version, a kind, its fields and a checksum of its own, so that a record that another hub wrote,
// or that changed on its way, is refused and not guessed at. One list of fields both writes and reads.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// format is the version of the encoding: byte 0 of every record. It grows when fields change; a new type of record needs a
// new kind only. Older ones, from oldest on, are read: their records lack the fields that came later.
//
//   - 2: a policy has target rules.
const (
	format = 2
	oldest = 1
)

// kind is byte 1 of every record. Kinds are never used again for another type.
type kind byte

const (
	kindFleetSet kind = iota + 1
	kindFleetRemoved
	kindProxySet
	kindProxyRemoved
	kindMemberSeen
	kindLeasesGranted
	kindExtended
	kindFinished
	kindExitCooled
	kindTargetPaused
	kindSnapshotBegun
	kindLeaseKept
	kindSessionKept
	kindProxyPlaced
	kindTargetHalted
	kindTargetResumed
	kindRevocationSet
	kindRevocationLifted
	kindCooldownCleared
	kindPaceLearned
)

// kinds makes an empty record of each kind.
var kinds = map[kind]func() lease.Record{
	kindFleetSet:         func() lease.Record { return new(lease.FleetSet) },
	kindFleetRemoved:     func() lease.Record { return new(lease.FleetRemoved) },
	kindProxySet:         func() lease.Record { return new(lease.ProxySet) },
	kindProxyRemoved:     func() lease.Record { return new(lease.ProxyRemoved) },
	kindMemberSeen:       func() lease.Record { return new(lease.MemberSeen) },
	kindLeasesGranted:    func() lease.Record { return new(lease.LeasesGranted) },
	kindExtended:         func() lease.Record { return new(lease.Extended) },
	kindFinished:         func() lease.Record { return new(lease.Finished) },
	kindExitCooled:       func() lease.Record { return new(lease.ExitCooled) },
	kindTargetPaused:     func() lease.Record { return new(lease.TargetPaused) },
	kindSnapshotBegun:    func() lease.Record { return new(lease.SnapshotBegun) },
	kindLeaseKept:        func() lease.Record { return new(lease.Kept) },
	kindSessionKept:      func() lease.Record { return new(lease.SessionKept) },
	kindProxyPlaced:      func() lease.Record { return new(lease.ProxyPlaced) },
	kindTargetHalted:     func() lease.Record { return new(lease.TargetHalted) },
	kindTargetResumed:    func() lease.Record { return new(lease.TargetResumed) },
	kindRevocationSet:    func() lease.Record { return new(lease.RevocationSet) },
	kindRevocationLifted: func() lease.Record { return new(lease.RevocationLifted) },
	kindCooldownCleared:  func() lease.Record { return new(lease.CooldownCleared) },
	kindPaceLearned:      func() lease.Record { return new(lease.PaceLearned) },
}

// ErrNewer is for records of a version or kind that this hub does not know.
var ErrNewer = errors.New("it was written by a newer hub; run that version again, or a later one")

var (
	errChecksum = errors.New("its checksum does not match")
	errShort    = errors.New("it is shorter than it says")
	errLong     = errors.New("it is longer than it says")
)

var checksums = crc32.MakeTable(crc32.Castagnoli)

// Encode appends the record to into: format, kind, fields, checksum. It fails for a type that has no encoding only.
func Encode(into []byte, rec lease.Record) ([]byte, error) {
	k := kindOf(rec)
	if k == 0 {
		return nil, fmt.Errorf("records of type %T have no encoding", rec)
	}
	start := len(into)
	c := coder{out: append(into, format, byte(k)), writing: true, format: format}
	c.record(rec)
	return binary.BigEndian.AppendUint32(c.out, crc32.Checksum(c.out[start:], checksums)), nil
}

// Decode reads what [Encode] wrote. Nothing of data is kept.
func Decode(data []byte) (lease.Record, error) {
	var d Decoder
	return d.Decode(data)
}

// mostTexts bounds what a Decoder remembers.
const mostTexts = 1 << 16

// Decoder reads many records. Texts that many records have, such as the names of fleets and principals, are the same in
// all that it reads: a million leases then share them. It is for one goroutine. Make one with [NewDecoder].
type Decoder struct {
	texts map[string]string
}

// NewDecoder makes a Decoder that shares texts. The zero one shares none.
func NewDecoder() *Decoder { return &Decoder{texts: map[string]string{}} }

// Decode is the function [Decode].
func (d *Decoder) Decode(data []byte) (lease.Record, error) {
	if len(data) < 6 {
		return nil, errShort
	}
	body, sum := data[:len(data)-4], binary.BigEndian.Uint32(data[len(data)-4:])
	if crc32.Checksum(body, checksums) != sum {
		return nil, errChecksum
	}
	if body[0] < oldest || body[0] > format {
		return nil, fmt.Errorf("it has version %d, not %d: %w", body[0], format, ErrNewer)
	}
	fresh, known := kinds[kind(body[1])]
	if !known {
		return nil, fmt.Errorf("it is of kind %d: %w", body[1], ErrNewer)
	}
	rec := fresh()
	c := coder{in: body[2:], format: body[0], texts: d.texts}
	c.record(rec)
	switch {
	case c.err != nil:
		return nil, c.err
	case len(c.in) > 0:
		return nil, errLong
	}
	return rec, nil
}

// coder writes or reads fields: one list of fields serves both, so that they cannot differ. While writing it changes
// nothing that it is shown.
type coder struct {
	writing bool
	format  byte
	out     []byte
	in      []byte
	texts   map[string]string // shared ones, by themselves; nil while none are
	err     error
}

func (c *coder) uint(v *uint64) {
	if c.writing {
		c.out = binary.AppendUvarint(c.out, *v)
		return
	}
	n, size := binary.Uvarint(c.in)
	if size <= 0 {
		c.fail(errShort)
		return
	}
	*v, c.in = n, c.in[size:]
}

func (c *coder) int(v *int64) {
	if c.writing {
		c.out = binary.AppendVarint(c.out, *v)
		return
	}
	n, size := binary.Varint(c.in)
	if size <= 0 {
		c.fail(errShort)
		return
	}
	*v, c.in = n, c.in[size:]
}

func (c *coder) fail(err error) {
	if c.err == nil {
		c.err = err
	}
	c.in = nil
}

func (c *coder) bytes(v []byte) {
	if c.writing {
		c.out = append(c.out, v...)
		return
	}
	if len(c.in) < len(v) {
		c.fail(errShort)
		return
	}
	c.in = c.in[copy(v, c.in):]
}

func (c *coder) number(v *int) {
	n := int64(*v)
	c.int(&n)
	if !c.writing {
		*v = int(n)
	}
}

func (c *coder) bool(v *bool) {
	var b [1]byte
	if *v {
		b[0] = 1
	}
	c.bytes(b[:])
	if !c.writing {
		*v = b[0] != 0
	}
}

func (c *coder) float(v *float64) {
	bits := math.Float64bits(*v)
	c.uint(&bits)
	if !c.writing {
		*v = math.Float64frombits(bits)
	}
}

func (c *coder) duration(v *time.Duration) { c.int((*int64)(v)) }

// time keeps nanoseconds since 1970, the engine's measure; 0 is the zero time.
func (c *coder) time(v *time.Time) {
	var n int64
	if c.writing && !v.IsZero() {
		n = v.UnixNano()
	}
	c.int(&n)
	if c.writing {
		return
	}
	*v = time.Time{}
	if n != 0 {
		*v = time.Unix(0, n).UTC()
	}
}

// text codes any kind of string.
func text[S ~string](c *coder, v *S) {
	n := uint64(len(*v))
	c.uint(&n)
	if c.writing {
		c.out = append(c.out, *v...)
		return
	}
	if n > uint64(len(c.in)) {
		c.fail(errShort)
		return
	}
	*v, c.in = S(c.in[:n]), c.in[n:]
}

// shared codes a text that many records have.
func shared[S ~string](c *coder, v *S) {
	before := c.in
	n := uint64(0)
	if c.writing || c.texts == nil {
		text(c, v)
		return
	}
	c.uint(&n)
	if n > uint64(len(c.in)) {
		c.fail(errShort)
		return
	}
	known, ok := c.texts[string(c.in[:n])]
	if ok {
		*v, c.in = S(known), c.in[n:]
		return
	}
	c.in = before
	text(c, v)
	if c.err == nil && len(c.texts) < mostTexts {
		c.texts[string(*v)] = string(*v)
	}
}

// list codes a slice. An empty one is read as nil.
func list[E any](c *coder, v *[]E, each func(*E)) {
	n := uint64(len(*v))
	c.uint(&n)
	if !c.writing {
		if n > uint64(len(c.in)) { // each element has a byte at least
			c.fail(errShort)
			return
		}
		*v = nil
		if n > 0 {
			*v = make([]E, n)
		}
	}
	for i := range *v {
		each(&(*v)[i])
	}
}

// optional codes a pointer that may be nil.
func optional[E any](c *coder, v **E, code func(*E)) {
	some := *v != nil
	c.bool(&some)
	if !some {
		return
	}
	if !c.writing {
		*v = new(E)
	}
	code(*v)
}

type pair struct{ key, value string }

func (c *coder) labels(v *map[string]string) {
	var pairs []pair
	for _, key := range slices.Sorted(maps.Keys(*v)) {
		pairs = append(pairs, pair{key, (*v)[key]})
	}
	list(c, &pairs, func(p *pair) { shared(c, &p.key); shared(c, &p.value) })
	if c.writing || len(pairs) == 0 {
		return
	}
	*v = make(map[string]string, len(pairs))
	for _, p := range pairs {
		(*v)[p.key] = p.value
	}
}

// addr codes an address, valid or not, without its zone as exits have none.
func (c *coder) addr(v *netip.Addr) {
	var raw []byte
	if c.writing {
		raw = v.AsSlice()
	}
	list(c, &raw, func(b *byte) {
		one := [1]byte{*b}
		c.bytes(one[:])
		*b = one[0]
	})
	if c.writing {
		return
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok && len(raw) > 0 {
		c.fail(fmt.Errorf("an address of it has %d bytes", len(raw)))
	}
	*v = addr
}

func (c *coder) exit(v *lease.Exit) {
	addr := v.Prefix().Addr()
	c.addr(&addr)
	if !c.writing {
		*v = lease.ExitOf(addr)
	}
}

func (c *coder) target(v *lease.Target) {
	host, key := v.Host(), v.Key()
	shared(c, &host)
	shared(c, &key)
	if !c.writing {
		*v = lease.RestoreTarget(host, key)
	}
}
