package lease

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// BenchmarkEngineScale prints the line that `make bench` collects: the time of
// Step(Acquire) in a fleet of 100,000 proxies, 30 % of whose exits cool down
// for the target, and its ratio to a fleet of 1,000. The two are measured in
// turns, a chunk each, and the medians of the chunks are compared, so that
// other work on the machine meets both alike. It measures for longer than
// testing's benchtime, whatever b.N asks, and so runs once.
func BenchmarkEngineScale(b *testing.B) {
	const chunk, chunks = 250, 2000
	small, large := newBenchLoad(b, 1_000), newBenchLoad(b, 100_000)
	measure := func(l *benchLoad) float64 {
		if len(l.held)+chunk > l.round {
			l.release(b)
		}
		began := b.Elapsed()
		for range chunk {
			l.grant(b)
		}
		return float64(b.Elapsed()-began) / chunk
	}
	var smalls, larges []float64
	b.ResetTimer()
	for range chunks {
		smalls = append(smalls, measure(small))
		larges = append(larges, measure(large))
	}
	b.StopTimer()
	slices.Sort(smalls)
	slices.Sort(larges)
	atSmall, atLarge := smalls[chunks/2], larges[chunks/2]
	b.ReportMetric(atLarge, "ns/acquire@100k")
	b.ReportMetric(atSmall, "ns/acquire@1k")
	b.ReportMetric(atLarge/atSmall, "ratio")
	b.ReportMetric(0, "ns/op") // one op is all of the above
	fmt.Fprintf(os.Stdout, "\nBENCH engine_scale %.0f ns %.2f\n", atLarge, atLarge/atSmall)
}

// strayAllocations are what the runtime may add to a count of allocations in a run: maps that grow, and its own. One
// allocation for each proxy that is passed over would be hundreds.
const strayAllocations = 10

// TestPassingOverCostsNothing checks that the proxies which a grant or a
// refusal passes over cost no allocation: it takes as many in a fleet where
// many cool as in one where few do.
func TestPassingOverCostsNothing(t *testing.T) {
	granting := func(n int) float64 {
		l := newBenchLoad(t, n)
		return testing.AllocsPerRun(100, func() { l.grant(t) })
	}
	if few, many := granting(2_000), granting(20_000); many > few+strayAllocations {
		t.Errorf("a grant takes %v allocations with 6000 exits cooling, %v with 600", many, few)
	}

	refusing := func(n int) float64 {
		e := benchFleet(t, n)
		for i := range n {
			if i%10 < 3 {
				continue
			}
			p := e.proxies[ProxyUID(fmt.Sprintf("uid-%06d", i))]
			err := e.Apply(&ExitCooled{
				At: benchStart, Exit: p.list[0], Target: benchTarget.Key(), Until: benchStart.Add(benchForever),
				Banned: true, Strikes: 1, Rest: benchForever,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		var acquire Command = Acquire{Principal: "crawler", Fleet: "crawl/news", Target: benchTarget}
		return testing.AllocsPerRun(100, func() {
			var refusal *Refusal
			if _, err := e.Step(benchStart, acquire); !errors.As(err, &refusal) || refusal.Reason != CoolingDown {
				t.Fatalf("want %s, got %v", CoolingDown, err)
			}
		})
	}
	if few, many := refusing(500), refusing(5_000); many > few+strayAllocations {
		t.Errorf("a refusal takes %v allocations with 5000 exits cooling, %v with 500", many, few)
	}
}

// TestPassingOverIsPaidOnce checks the bound that makes grants flat: however
// the proxies of a target come to cool and to return, a view passes over an
// entry of a queue once.
func TestPassingOverIsPaidOnce(t *testing.T) {
	const n = 10_000
	l := newBenchLoad(t, n)
	f := l.engine.fleets["crawl/news"]
	v := f.byKey[viewKey{target: benchTarget.Key()}]
	passed := 0
	for range 5_000 {
		was := slices.Clone(v.cursors)
		l.grant(t)
		for load := range v.cursors {
			if v.cursors[load].layout == was[load].layout {
				passed += v.cursors[load].position - was[load].position
			}
		}
		if len(l.held) == l.round {
			l.release(t)
		}
	}
	if most := 4 * 5_000; passed > most {
		t.Errorf("5000 grants passed over %d entries, want at most %d", passed, most)
	}
}
