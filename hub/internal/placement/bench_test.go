package placement

import (
	"fmt"
	"sort"
	"testing"
	"time"
)

// crowd is a fleet over members in eight regions, with uneven weights, some of them capped or lost, and a placement for
// nine tenths of its size.
func crowd(replicas int32, members int) Snapshot {
	s := Snapshot{Fleet: Fleet{UID: "crowd", Spread: SpreadRule{By: ByRegion, MaxSkew: replicas / 20}}}
	for i := range members {
		m := member(fmt.Sprintf("m%03d", i), in(fmt.Sprintf("region-%d", i%8)), weight(int32(1+i%5)))
		switch i % 10 {
		case 3:
			atMost(replicas / int32(members) / 2)(&m)
		case 7:
			is(Unreachable)(&m)
			have(replicas / int32(members) / 2)(&m)
		}
		s.Members = append(s.Members, m)
	}
	s = settled(s, Plan(resized(s, replicas*9/10)))
	return resized(s, replicas)
}

// BenchmarkPlacement plans 10,000 replicas over 200 members (bar: 10 ms) and prints the median time, and its ratio to
// 1,000 over 20.
func BenchmarkPlacement(b *testing.B) {
	big, small := crowd(10_000, 200), crowd(1_000, 20)
	var sink int32
	run := func(s Snapshot) time.Duration {
		begin := time.Now()
		sink += Plan(s).Placed
		return time.Since(begin)
	}
	var bigs, smalls []time.Duration
	for b.Loop() {
		bigs, smalls = append(bigs, run(big)), append(smalls, run(small))
	}
	if sink == 0 {
		b.Fatal("nothing was placed")
	}
	b.ReportMetric(median(bigs).Seconds()*1e3, "ms/plan")
	// Reported from here and not from a wrapper, so that it is the last run's.
	fmt.Printf("BENCH placement %.3f ms %.2f\n", median(bigs).Seconds()*1e3, float64(median(bigs))/float64(median(smalls)))
}

func median(d []time.Duration) time.Duration {
	sort.Slice(d, func(i, j int) bool { return d[i] < d[j] })
	return d[len(d)/2]
}
