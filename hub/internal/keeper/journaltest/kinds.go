package journaltest

import (
	"net/netip"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// start is when the suite's records begin.
var start = time.Date(2026, 1, 1, 12, 0, 0, 123456789, time.UTC)

// Kinds returns a record of each kind with every field set.
func Kinds() []lease.Record {
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	exit := lease.ExitOf(netip.MustParseAddr("2001:db8:0:7::1"))
	policy := lease.Policy{
		MaxLeasesPerProxy: 5, MaxLeasesPerPrincipal: 7, DefaultTTL: time.Minute, MaxTTL: time.Hour, MaxLifetime: 2 * time.Hour,
		ReuseDelay: time.Second, Cooldown: lease.Cooldown{Base: time.Minute, Factor: 1.5, Max: time.Hour},
		Targets: []lease.TargetRule{{
			Match: "shop.example.com", Pace: lease.PaceFixed, MaxConcurrentPerExit: 2, MinInterval: time.Second,
			Cooldown: lease.Cooldown{Base: time.Hour, Factor: 3, Max: 2 * time.Hour}, Implied: true,
		}},
	}
	proxy := lease.Proxy{
		UID: "px-1", Fleet: "crawl/news", Member: "east", Name: "news-1", Region: "us-east1", Country: "US",
		Labels:    map[string]string{"tier": "datacenter"},
		Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: 21007, TLS: true}, {Network: "PodIP", Host: "10.0.0.1", Port: 3128}},
		Exits:     []netip.Addr{netip.MustParseAddr("203.0.113.9"), netip.MustParseAddr("2001:db8:0:7::1")},
		Ready:     true, Saturated: true, Draining: true, DrainDeadline: at(900), LastSeen: at(2), LastReady: at(1),
	}
	return []lease.Record{
		&lease.FleetSet{At: at(0), Fleet: lease.Fleet{ID: "crawl/news", Created: at(-9), Policy: policy}},
		&lease.MemberSeen{At: at(1), ID: "east", Suspect: true, Seen: at(1)},
		&lease.ProxySet{At: at(2), Proxy: proxy},
		&lease.LeasesGranted{
			At: at(3), Principal: "anna", Fleet: "crawl/news", Target: lease.MustParseTarget("bücher.example"), Network: "PodIP", Exclusive: true,
			TTL: time.Minute, Expires: at(63), LifetimeEnd: at(3600),
			Leases:    []lease.GrantedLease{{ID: "lse_1", Token: lease.FencingToken{Epoch: 1, Sequence: 2}, Proxy: "px-1", Slots: 5}},
			RequestID: "r 1", Fingerprint: [32]byte{1, 2, 3}, SessionKey: "cart/\x00ö", SessionUntil: at(7200),
		},
		&lease.Extended{At: at(4), ID: "lse_1", Expires: at(64)},
		&lease.ExitCooled{At: at(5), Exit: exit, Target: "example.com", Until: at(605), Banned: true, Strikes: 3, Rest: 10 * time.Minute},
		&lease.TargetPaused{At: at(6), Fleet: "crawl/news", Target: "example.com", Until: at(66)},
		&lease.Finished{At: at(7), ID: "lse_1", State: lease.StateReleased, HeldUntil: at(17)},
		&lease.ProxyRemoved{At: at(8), UID: "px-1"},
		&lease.FleetRemoved{At: at(9), ID: "crawl/news"},
		&lease.SnapshotBegun{At: at(10), Sequence: 300},
		&lease.Kept{
			At: at(11), ID: "lse_1", Token: lease.FencingToken{Epoch: 1, Sequence: 2}, Principal: "anna", Fleet: "crawl/news", Proxy: "px-1",
			Target: lease.MustParseTarget("bücher.example"), Network: "PodIP", Exclusive: true, Slots: 5, TTL: time.Minute, Granted: at(3),
			Expires: at(63), LifetimeEnd: at(3600), State: lease.StateReleased, HeldUntil: at(73), ExitsChanged: true, SessionKey: "cart/\x00ö",
			RequestID: "r 1", Fingerprint: [32]byte{1, 2, 3}, Forgotten: true,
			GoneProxy: &proxy, GoneFleet: &policy,
		},
		&lease.SessionKept{At: at(12), Principal: "anna", Fleet: "crawl/news", Key: "cart", Proxy: "px-1", Until: at(7200)},
		&lease.ProxyPlaced{At: at(13), UID: "px-1", LastUsed: at(7), OnSite: 3},
		&lease.TargetHalted{At: at(14), Target: "example.com", Until: at(74), Why: "they asked us to"},
		&lease.TargetResumed{At: at(15), Target: "example.com"},
		&lease.RevocationSet{At: at(16), Principal: "anna", Proxy: "px-1", Until: at(3600), Why: "lost her laptop"},
		&lease.RevocationLifted{At: at(17), Principal: "anna", Proxy: "px-1"},
		&lease.CooldownCleared{At: at(18), Exit: exit, Target: "example.com"},
		&lease.PaceLearned{
			At: at(19), Exit: exit, Target: "example.com", Rate: 0.4, Limit: 0.5, Borne: 0.45, RefusedAt: at(12), Streak: 2, LastPage: at(18), PerLease: 1.5,
		},
	}
}
