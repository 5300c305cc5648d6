package disk

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/keeper/record"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// TestSizes measures what docs/operations/journal.md says of sizes: a fleet
// with names as Kubernetes makes them, every proxy with two leases.
func TestSizes(t *testing.T) {
	const proxies, perProxy = 1000, 2
	engine := lease.New(lease.Options{IDs: lease.NewRandomIDs(rand.Reader), Epoch: 1_780_000_000, HistoryComplete: true})
	bytes := map[string]int{}
	step := func(cmd lease.Command) lease.Result {
		t.Helper()
		out, err := engine.Step(now, cmd)
		if err != nil {
			t.Fatal(err)
		}
		for _, rec := range out.Records {
			data, err := record.Encode(nil, rec)
			if err != nil {
				t.Fatal(err)
			}
			bytes[fmt.Sprintf("%T", rec)] += len(data) + len(logKey(0))
		}
		return out.Result
	}
	step(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{MaxLeasesPerProxy: perProxy}}})
	for i := range proxies {
		step(lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID(fmt.Sprintf("0f5e4c1a-7d3b-4a55-9a51-%012d", i)), Fleet: "crawl/news", Member: "us-east1-a", Name: "news-us-east1-a-x7k2p",
			Region: "us-east1", Country: "US", Labels: map[string]string{"shoal.dev/tier": "datacenter"}, Ready: true,
			Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)})},
			Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: 21000}},
		}})
	}
	var held []lease.Lease
	for i := range proxies * perProxy {
		held = append(held, step(lease.Acquire{
			Principal: "crawler-1", Fleet: "crawl/news", Target: lease.MustParseTarget("www.example.com"),
			RequestID: lease.RequestID(fmt.Sprintf("8a6e0804-2bd0-4672-b79d-%012d", i)),
		}).(lease.Granted).Leases...)
	}
	began := time.Now()
	records := engine.Snapshot()
	took := time.Since(began)
	snapshot := 0
	for _, rec := range records {
		data, err := record.Encode(nil, rec)
		if err != nil {
			t.Fatal(err)
		}
		snapshot += len(data) + len(snapshotKey(0, 0))
	}
	for i := range held {
		step(lease.Renew{Principal: "crawler-1", ID: held[i].ID, TTL: new(20 * time.Minute)})
		step(lease.Release{Principal: "crawler-1", ID: held[i].ID})
	}
	perProxyBytes := bytes["*lease.ProxySet"] / proxies
	granted := bytes["*lease.LeasesGranted"] / len(held)
	renewed := bytes["*lease.Extended"] / len(held)
	ended := bytes["*lease.Finished"] / len(held)
	t.Logf("bytes: proxy %d; grant %d, renewal %d, end %d; snapshot of %d proxies with %d leases %d (%d records, %s)",
		perProxyBytes, granted, renewed, ended, proxies, len(held), snapshot, len(records), took)
	if perProxyBytes > 300 || granted > 300 || renewed > 80 || ended > 80 || snapshot > (300*proxies+300*len(held))*11/10 {
		t.Error("records have grown: correct the sizes in docs/operations/journal.md")
	}
}
