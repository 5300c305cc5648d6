package rollout

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkStep takes one step in the middle of rolling 10,000 proxies over 200 members: a quarter is new and ready,
// all the rest is old, one in three leased.
func BenchmarkStep(b *testing.B) {
	in := Input{Now: t0, Current: "r1", Budget: Budget{MaxSurge: 2500}, DrainTimeout: time.Minute}
	for i := range 200 {
		id := MemberID(fmt.Sprintf("m%03d", i))
		in.Members = append(in.Members, Member{ID: id, Desired: 50})
		in.Placements = append(in.Placements,
			Placement{Key: Key{id, "r0"}, Replicas: 50}, Placement{Key: Key{id, "r1"}, Replicas: 12})
		for n := range 62 {
			p := proxy(i*100+n, old)
			p.Member = id
			if n >= 50 {
				p.Revision = "r1"
			}
			if n%3 == 0 {
				p.Leased = 1
			}
			in.Proxies = append(in.Proxies, p)
		}
	}
	for b.Loop() {
		if plan := Step(in); len(plan.Drained) != 2400 {
			b.Fatalf("drained %d, want 2400: as many as are new and ready", len(plan.Drained))
		}
	}
}
