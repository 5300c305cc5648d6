package valkey

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey/valkeytest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// BenchmarkJournalValkey prints how many renewals a second the journal takes in batches as large as the keeper's, against
// what the server itself does with one client that adds as many entries of that size to a stream at once. A renewal is
// the smallest record and the most frequent one. Both sync each time that they are answered.
func BenchmarkJournalValkey(b *testing.B) {
	const batch, rounds = 256, 400
	server := valkeytest.Start(b)
	records := make([]lease.Record, batch)
	for i := range records {
		records[i] = &lease.Extended{At: now, ID: lease.ID(fmt.Sprintf("lse_%022d", i)), Expires: now.Add(time.Minute)}
	}
	one, err := record.Encode(nil, records[0])
	if err != nil {
		b.Fatal(err)
	}
	j := mustOpen(b, options(server, "p"))
	for b.Loop() {
		reference, err := server.Pipelined(b.Context(), len(one), batch, rounds)
		if err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		for range rounds {
			mustAppend(b, j, records...)
		}
		rate := rounds * batch / time.Since(began).Seconds()
		reference1, err := server.Pipelined(b.Context(), len(one), 1, rounds)
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		for range rounds {
			mustAppend(b, j, records[0])
		}
		alone := rounds / time.Since(began).Seconds()
		fmt.Fprintf(os.Stdout, "\nBENCH journal_valkey %.0f records/s %.2f\nBENCH journal_valkey_single %.0f records/s %.2f\n",
			rate, rate/reference, alone, alone/reference1)
	}
}
