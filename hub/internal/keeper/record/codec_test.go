package record_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// seal adds the checksum.
func seal(body []byte) []byte {
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

func mustEncode(t *testing.T, rec lease.Record) []byte {
	t.Helper()
	data, err := record.Encode(nil, rec)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestRoundTrip writes and reads records of each kind, with every field set and
// with fields as chance gives them.
func TestRoundTrip(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := map[byte]string{}
	many := record.NewDecoder()
	for i, rec := range append(journaltest.Kinds(), journaltest.Random(random, 2000)...) {
		data := mustEncode(t, rec)
		got, err := record.Decode(data)
		if err != nil {
			t.Fatalf("record %d, %T: %v", i, rec, err)
		}
		if again, err := many.Decode(data); err != nil || cmp.Diff(got, again, journaltest.Compare()...) != "" {
			t.Fatalf("record %d, %T: read with shared texts it is another: %v", i, rec, err)
		}
		if diff := cmp.Diff(rec, got, journaltest.Compare()...); diff != "" {
			t.Fatalf("record %d, %T (-written +read):\n%s", i, rec, diff)
		}
		kind := journaltest.KindOf(rec)
		if other, used := kinds[data[1]]; used && other != kind {
			t.Fatalf("%s and %s have the same kind %d", other, kind, data[1])
		}
		kinds[data[1]] = kind
	}
}

// TestNoEncoding writes a record of a type that is none of the engine's.
func TestNoEncoding(t *testing.T) {
	if _, err := record.Encode(nil, journaltest.Unknown{}); err == nil {
		t.Error("it was written")
	}
}

// TestDecodeRefuses changes each byte of records, and cuts them anywhere.
func TestDecodeRefuses(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		good := mustEncode(t, rec)
		for i := range good {
			bad := append([]byte{}, good...)
			bad[i] ^= 0x10
			if got, err := record.Decode(bad); err == nil {
				t.Fatalf("%T with byte %d changed is read as %v", rec, i, got)
			}
			if got, err := record.Decode(good[:i]); err == nil {
				t.Fatalf("%T cut after %d bytes is read as %v", rec, i, got)
			}
		}
	}
}

// TestDecodeNewer reads records of hubs to come: right sums, unknown contents.
func TestDecodeNewer(t *testing.T) {
	known := mustEncode(t, journaltest.Kinds()[0])
	for name, head := range map[string][2]byte{"Version": {known[0] + 1, known[1]}, "Kind": {known[0], 250}} {
		t.Run(name, func(t *testing.T) {
			if _, err := record.Decode(seal([]byte{head[0], head[1], 0})); !errors.Is(err, record.ErrNewer) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestDecodeOlder reads a policy of the format before target rules.
func TestDecodeOlder(t *testing.T) {
	want := &lease.FleetSet{At: time.Unix(1, 0).UTC(), Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{
		MaxLeasesPerProxy: 5, DefaultTTL: time.Minute, Cooldown: lease.Cooldown{Base: time.Minute, Factor: 1.5, Max: time.Hour},
	}}}
	data := mustEncode(t, want)
	body := data[:len(data)-5] // without the checksum and the number of rules, which is 0
	body[0] = 1
	got, err := record.Decode(seal(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(lease.Record(want), got, journaltest.Compare()...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzDecode reads anything: what is read is written as it was.
func FuzzDecode(f *testing.F) {
	for _, rec := range journaltest.Kinds() {
		data, err := record.Encode(nil, rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data[:len(data)-4])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rec, err := record.Decode(seal(body))
		if err != nil {
			return
		}
		again, err := record.Decode(mustEncode(t, rec))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rec, again, journaltest.Compare()...); diff != "" {
			t.Fatalf("written again it differs:\n%s", diff)
		}
	})
}

// TestBytesPerRecord says what records cost; docs/operations/journal.md has
// figures of a fleet.
func TestBytesPerRecord(t *testing.T) {
	for _, rec := range journaltest.Kinds() {
		data := mustEncode(t, rec)
		t.Logf("%T: %d bytes", rec, len(data))
		if len(data) > 768 {
			t.Errorf("%T takes %d bytes", rec, len(data))
		}
	}
}
