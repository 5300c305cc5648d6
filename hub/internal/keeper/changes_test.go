package keeper_test

import (
	"testing"
	"testing/synctest"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// TestChanges checks which commands a watcher of a fleet's proxies hears of, and that a slow one is told that it must read
// them all.
func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := run(t, keeper.NewMemory(keeper.MemoryOptions{}))
		k.stock(t, 2)
		page := k.must(t, lease.List{Fleet: "crawl/news"}).(lease.Page)
		first := page.Proxies[0].Proxy
		changes := k.WatchFleet("crawl/news")
		others := k.WatchFleet("crawl/weather")
		expect := func(what string, proxies int, all bool) {
			t.Helper()
			synctest.Wait()
			got, gotAll, open := changes.Take()
			if len(got) != proxies || gotAll != all || !open {
				t.Errorf("%s: %v, all %v, open %v; want %d, %v", what, got, gotAll, open, proxies, all)
			}
		}
		expect("nothing", 0, false)
		k.must(t, acquire())
		expect("a grant", 0, false)
		changed := first
		changed.Ready = false
		k.must(t, lease.UpsertProxy{Proxy: changed})
		changed.Ready = true
		k.must(t, lease.UpsertProxy{Proxy: changed})
		<-changes.Ready()
		expect("two changes of one", 1, false)
		k.must(t, lease.Drain{UID: first.UID})
		expect("a drain", 1, false)
		k.must(t, lease.RemoveProxy{UID: first.UID})
		expect("a removal", 1, false)
		k.must(t, lease.RemoveFleet{ID: "crawl/news"})
		expect("the fleet", 0, true)
		if got, all, _ := others.Take(); len(got) > 1 || all {
			t.Errorf("a watcher of another fleet hears of %v", got)
		}
		changes.Close()
		changes.Close()
		if _, _, open := changes.Take(); open {
			t.Error("a closed watch is open")
		}
		k.stop()
		if err := <-k.err; err != nil {
			t.Error(err)
		}
		<-others.Ready()
		if _, _, open := others.Take(); open {
			t.Error("the watch of a stopped keeper is open")
		}
		if _, _, open := k.WatchFleet("crawl/news").Take(); open {
			t.Error("a stopped keeper can be watched")
		}
	})
}
