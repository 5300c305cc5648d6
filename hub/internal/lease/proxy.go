package lease

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Proxy is what the engine knows of a proxy: what a member last reported, and
// what the hub decided (Draining). Its slices and map are never changed once
// they are handed to the engine or received from it.
type Proxy struct {
	// UID, Fleet and Member never change for a proxy.
	UID    ProxyUID
	Fleet  FleetID
	Member MemberID
	// Name is the name of the Proxy object on its member.
	Name string
	// Region and Country are where the proxy runs; either may be empty.
	Region  string
	Country string
	// Labels are the fleet template's labels, for selectors.
	Labels map[string]string
	// Endpoints are where crawlers reach the proxy. One without is never
	// leased.
	Endpoints []Endpoint
	// Exits are the addresses by which targets see the proxy, measured. It
	// may be empty: then nothing cools down.
	Exits []netip.Addr
	// Ready is the verdict of the probes. Saturated keeps Ready and stops
	// leasing. Draining is one-way: once set for a uid, it stays.
	Ready     bool
	Saturated bool
	Draining  bool
	// DrainDeadline is when a draining proxy is removed. Zero means that no
	// deadline is known.
	DrainDeadline time.Time
	// LastSeen is when the hub last heard of the proxy, by its own clock.
	// Zero means now. It counts for the whole member: see [Touch].
	LastSeen time.Time
	// LastReady is when the proxy was last judged ready. Zero means
	// LastSeen if Ready, else never.
	LastReady time.Time
}

// Network names a way to reach a proxy: "PodIP", "HostPort", "VM".
type Network string

// Endpoint is one address of a proxy.
type Endpoint struct {
	Network Network
	Host    string
	Port    uint16
	TLS     bool
}

// endpoint returns the endpoint in a network, or the first one if the network
// is empty.
func (p *Proxy) endpoint(network Network) (Endpoint, bool) {
	for _, endpoint := range p.Endpoints {
		if network == "" || endpoint.Network == network {
			return endpoint, true
		}
	}
	return Endpoint{}, false
}

// Same tells whether two descriptions differ in nothing that must be
// remembered, so that a report that repeats the last one costs no record.
// Their times may differ: Touch keeps those fresh.
func (p *Proxy) Same(q *Proxy) bool {
	return p.UID == q.UID && p.Fleet == q.Fleet && p.Member == q.Member && p.Name == q.Name &&
		p.Region == q.Region && p.Country == q.Country &&
		p.Ready == q.Ready && p.Saturated == q.Saturated &&
		p.Draining == q.Draining && p.DrainDeadline.Equal(q.DrainDeadline) &&
		maps.Equal(p.Labels, q.Labels) && slices.Equal(p.Endpoints, q.Endpoints) && slices.Equal(p.Exits, q.Exits)
}

// Selector chooses among the proxies of a fleet. Fields that are set must all
// hold; the zero Selector fits every proxy.
//
// The plain path and every selector in use keep a view of their own, so that
// a grant costs the same in a fleet of any size. The first Acquire with a
// selector that was not used lately looks at the whole fleet once.
type Selector struct {
	// Labels must all be there with these values.
	Labels  map[string]string
	Region  string
	Country string
	Member  MemberID
	// Exit asks for proxies that leave by this exit.
	Exit Exit
}

// IsZero tells the selector that fits every proxy.
func (s *Selector) IsZero() bool {
	return len(s.Labels) == 0 && s.Region == "" && s.Country == "" && s.Member == "" && !s.Exit.IsValid()
}

// Matches tells whether a proxy fits the selector.
func (s *Selector) Matches(p *Proxy) bool { return s.IsZero() || s.matches(p, "") }

// matches tells whether a proxy fits the selector and is reachable in the
// network.
func (s *Selector) matches(p *Proxy, network Network) bool {
	if s.Region != "" && s.Region != p.Region ||
		s.Country != "" && !strings.EqualFold(s.Country, p.Country) ||
		s.Member != "" && s.Member != p.Member {
		return false
	}
	for key, want := range s.Labels {
		if have, ok := p.Labels[key]; !ok || have != want {
			return false
		}
	}
	if s.Exit.IsValid() && !slices.ContainsFunc(p.Exits, s.Exit.Contains) {
		return false
	}
	_, reachable := p.endpoint(network)
	return reachable
}

// key returns a text that is the same for equal selectors only, "" for the
// one that fits every reachable proxy.
func (s *Selector) key(network Network) string {
	if s.IsZero() && network == "" {
		return ""
	}
	var b strings.Builder
	for _, part := range []string{string(network), s.Region, strings.ToUpper(s.Country), string(s.Member), s.Exit.String()} {
		b.WriteString(part)
		b.WriteByte(0)
	}
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		b.WriteString(label)
		b.WriteByte(0)
		b.WriteString(s.Labels[label])
		b.WriteByte(0)
	}
	return b.String()
}

// String writes the selector for messages, as in "region=us-east1,tier=fast".
func (s *Selector) String() string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	add("region", s.Region)
	add("country", s.Country)
	add("member", string(s.Member))
	add("exit", s.Exit.String())
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		parts = append(parts, label+"="+s.Labels[label])
	}
	return strings.Join(parts, ",")
}
