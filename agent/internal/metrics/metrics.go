package metrics

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoal-dev/shoal/agent/internal/sweep"
)

// namespace begins the name of every metric.
const namespace = "shoal_agent"

// Build is what the process was built from.
type Build struct{ Version, Commit, Go string }

// Block is a scope of a provider in which requests wait, because it has refused one.
type Block struct {
	// Member and Provider are the member's name and the entry of the provider file.
	Member, Provider string
	// Scope is the provider's word for what it holds for, such as a zone.
	Scope string
	// Reason is why, as in a Proxy's condition.
	Reason string
	// Until is when the next request is let through.
	Until time.Time
}

// Sources is what is asked at each scrape. Every function may be nil, and is called from several goroutines.
type Sources struct {
	// Build is told as it is.
	Build Build
	// NotAfter is when the agent's certificate ends; zero where it has none.
	NotAfter func() time.Time
	// Blocks are the scopes in which requests wait.
	Blocks func() []Block
	// Engagements are all members that the agent was told of, also those that it cannot work with at the moment.
	Engagements func() []Engagement
}

// Engagement is how a member fares that the agent was told of.
type Engagement struct {
	// Member is its name, and Source is who knows of it.
	Member, Source string
	// Engaged says that the agent works there, and Reason is what is wrong; empty where nothing is.
	Engaged bool
	Reason  string
}

// Count is how many proxies share what the metric tells them apart by.
type Count struct {
	Provider, Phase string
	Saturated       bool
}

// Member is one engaged member. Every function may be nil, and is called from several goroutines.
type Member struct {
	// Name is the member's.
	Name string
	// Proxies counts the Proxies in the cache; an error leaves the member out of a scrape.
	Proxies func() (map[Count]int, error)
	// Connected says whether the session with the hub is up.
	Connected func() bool
	// Frozen says whether verdicts are frozen.
	Frozen func() bool
	// Sweep is what the orphan sweep has seen and done.
	Sweep func() sweep.Status
}

// Register makes the collectors of an agent and registers them.
func Register(r prometheus.Registerer, s Sources) (*Collector, *Probes, error) {
	if r == nil {
		return nil, nil, errors.New("metrics: a registry is required")
	}
	collector, probes := newCollector(s), newProbes()
	for _, c := range []prometheus.Collector{collector, probes.results, probes.seconds} {
		if err := r.Register(c); err != nil {
			return nil, nil, fmt.Errorf("metrics: %w", err)
		}
	}
	return collector, probes, nil
}
