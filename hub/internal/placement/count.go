package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// row is a member of the snapshot with the verdict on it and its candidates.
type row struct {
	*Member
	// excluded says why the member takes no part; empty when it does.
	excluded string
	// still says why the member gets nothing new; empty when it may grow.
	still string
	// cap says what limits the member to less than everything; empty when nothing does or when still does.
	cap string
	// seat is the member in the dealing, share in the one without any limits, which is what explanations compare with.
	// Both are nil when excluded.
	seat, share *candidate
}

// count is one run of Plan.
type count struct {
	fleet    Fleet
	rows     []*row
	dealt    dealing
	fair     dealing
	replicas int64
	left     int64
	// minsShort says that the minimums ask for more than there is.
	minsShort bool
	// weights is the sum of what fair shares are in proportion to.
	weights int64
	// named is what explanations call the others, see parties.
	named *parties
}

func newCount(s Snapshot) *count {
	c := &count{fleet: s.Fleet}
	if c.fleet.Strategy != Weighted && c.fleet.Strategy != Pack {
		c.fleet.Strategy = Spread
	}
	if c.fleet.Spread.By != ByRegion {
		c.fleet.Spread.By = ByMember
	}
	for i := range s.Members {
		c.rows = append(c.rows, newRow(c.fleet, &s.Members[i]))
	}
	// One order for everything that follows: the caller's must not show.
	slices.SortFunc(c.rows, func(a, b *row) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.UID, b.UID))
	})
	c.dealt = dealing{strategy: c.fleet.Strategy, maxSkew: int64(c.fleet.Spread.MaxSkew)}
	c.fair = dealing{strategy: c.fleet.Strategy}
	dealt, fair := c.newDomains(&c.dealt), c.newDomains(&c.fair)
	for _, r := range c.rows {
		if r.excluded == "" {
			c.seat(r, dealt, fair)
		}
	}
	if c.dealt.equalDomains() {
		c.dealt.maxSkew = 0
	}
	for _, d := range c.fair.domains {
		c.weights += d.weight
	}
	return c
}

// newRow judges a member.
func newRow(fleet Fleet, m *Member) *row {
	r := &row{Member: m}
	taint, tainted := untolerated(m.Taints, fleet.Tolerations)
	switch {
	case !m.Eligible:
		r.excluded = "not eligible"
		if m.Reason != "" {
			r.excluded += ": " + m.Reason
		}
	case !m.Accepted:
		r.excluded = "not accepted: set spec.accepted of the MemberCluster to true"
	case tainted && taint.Effect == NoExecute:
		r.excluded = fmt.Sprintf("taint %s is not tolerated", taint)
	case m.Liveness != Ready:
		r.still = string(m.Liveness)
		if m.Liveness == "" {
			r.still = string(NotJoined)
		}
	case tainted:
		r.still = fmt.Sprintf("taint %s is not tolerated", taint)
	}
	return r
}

// seat enters a member into both dealings.
func (c *count) seat(r *row, dealt, fair func(*row) *domain) {
	own := claim{
		weight: int64(max(r.Weight, 0)),
		have:   int64(max(r.Have, 0)),
		tie:    c.tie(string(r.UID)),
		name:   string(r.UID) + "\x00" + string(r.ID),
	}
	growth, why := int64(math.MaxInt32), ""
	if r.Max != nil && int64(*r.Max) < growth {
		growth, why = int64(max(*r.Max, 0)), fmt.Sprintf("max %d", max(*r.Max, 0))
	}
	limit := growth
	if r.Capacity != nil && int64(*r.Capacity) < growth {
		growth = int64(max(*r.Capacity, 0))
		// Capacity stops growth and evicts nobody.
		if room := max(growth, own.have); room < limit {
			limit, why = room, r.CapacityReason
			if why == "" {
				why = fmt.Sprintf("capacity %d", growth)
			}
		}
	}
	if r.still != "" {
		growth = 0
		if own.have <= limit {
			limit, why = own.have, ""
		}
	}
	r.cap = why
	minimum := int64(max(r.Min, 0))
	r.seat = &candidate{claim: own, minimum: minimum, limit: limit, floor: min(minimum, limit), growth: growth}
	c.join(&c.dealt, r.seat, dealt(r))

	// A member that gets nothing because it is lost has no fair share that others could be said to have taken over.
	share := own
	if r.still != "" && limit == 0 {
		share.weight = 0
	}
	r.share = &candidate{claim: share, limit: math.MaxInt64, growth: math.MaxInt64}
	c.join(&c.fair, r.share, fair(r))
}

func (c *count) join(d *dealing, m *candidate, dom *domain) {
	m.domain = dom
	dom.have += m.have
	dom.inside += m.weight
	if c.fleet.Spread.By == ByMember || c.fleet.Strategy != Spread {
		dom.weight += m.weight
	} else {
		dom.weight = max(dom.weight, m.weight)
	}
	d.candidates = append(d.candidates, m)
}

// newDomains returns a function that finds or makes a member's domain.
func (c *count) newDomains(d *dealing) func(*row) *domain {
	known := map[string]*domain{}
	return func(r *row) *domain {
		name := string(r.UID) + "\x00" + string(r.ID)
		seed := string(r.UID)
		if c.fleet.Spread.By == ByRegion {
			name, seed = r.Region, r.Region
		}
		if dom := known[name]; dom != nil {
			return dom
		}
		dom := &domain{claim: claim{name: name, tie: c.tie(seed)}}
		known[name] = dom
		d.domains = append(d.domains, dom)
		return dom
	}
}

// tie hashes the fleet in, so that the odd proxies of many small fleets do not all go to the member whose UID happens
// to be the least.
func (c *count) tie(of string) uint64 {
	sum := sha256.Sum256([]byte(string(c.fleet.UID) + "\x00" + of))
	return binary.BigEndian.Uint64(sum[:])
}

func (c *count) deal(replicas int64) {
	c.replicas = replicas
	var floors int64
	for _, m := range c.dealt.candidates {
		floors += m.floor
	}
	c.minsShort = floors > replicas
	c.left = c.dealt.run(replicas)
	c.fair.run(replicas)
}

func (c *count) decision() Decision {
	d := Decision{Unplaced: int32(c.left), Placed: int32(c.replicas - c.left)}
	var grown, shrunk int32
	for _, r := range c.rows {
		a := Allotment{
			Member: r.ID, UID: r.UID, Region: r.Region,
			Weight: max(r.Weight, 0), Have: max(r.Have, 0),
		}
		if r.seat != nil {
			a.Wanted = int32(r.seat.seats)
		}
		a.Why = c.why(r)
		grown += max(a.Wanted-a.Have, 0)
		shrunk += max(a.Have-a.Wanted, 0)
		d.Members = append(d.Members, a)
	}
	d.Moved = min(grown, shrunk)
	d.Shortfall, d.UnplacedWhy = c.shortfall()
	return d
}

// shortfall says why seats were left over.
func (c *count) shortfall() (Shortfall, string) {
	if c.left == 0 {
		return NoShortfall, ""
	}
	var part, live int
	for _, r := range c.rows {
		if r.excluded != "" {
			continue
		}
		part++
		if r.still == "" {
			live++
		}
	}
	text := fmt.Sprintf("%d of %d proxies have no place: ", c.left, c.replicas)
	switch {
	case len(c.rows) == 0:
		return NoMembers, text + "there are no members; join one, or widen placement.memberSelector"
	case part == 0:
		return NoMembers, text + fmt.Sprintf("none of %s takes part, each for its own reason", members(len(c.rows)))
	case live == 0:
		return NoneLive, text + fmt.Sprintf("none of %s that take part may grow now", members(part))
	}
	return AllFull, text + fmt.Sprintf("of %s that may grow, each reached its max, its capacity, or its min at weight 0; raise them or add members", members(live))
}

func members(n int) string {
	if n == 1 {
		return "1 member"
	}
	return fmt.Sprintf("%d members", n)
}
