package placement

import (
	"fmt"
	"math"
	"strings"
)

// why explains one member's number by comparing it with its fair share: what the same method would give it were there
// no limits at all.
func (c *count) why(r *row) string {
	if r.excluded != "" {
		switch {
		case r.Have > 1:
			return fmt.Sprintf("%s; its %d proxies leave", r.excluded, r.Have)
		case r.Have == 1:
			return r.excluded + "; its proxy leaves"
		}
		return r.excluded
	}
	if r.still != "" && r.seat.limit == 0 {
		return r.still + ": gets nothing new"
	}
	var parts []string
	if c.fleet.Strategy == Pack {
		parts = append(parts, c.packedShare(r))
	} else {
		parts = append(parts, c.fairShare(r)+c.limits(r))
		if note := c.difference(r); note != "" {
			parts = append(parts, note)
		}
	}
	if m := int64(r.Min); m > r.seat.seats {
		switch {
		case r.still != "":
			parts = append(parts, fmt.Sprintf("below its min %d", m))
		case m > r.seat.limit:
			parts = append(parts, fmt.Sprintf("its min %d is more than it may have", m))
		case c.minsShort:
			parts = append(parts, "the minimums ask for more than the fleet has")
		}
	}
	if r.still != "" {
		parts = append(parts, r.still+": gets nothing new")
	}
	return strings.Join(parts, "; ")
}

// packedShare explains a number under Pack.
func (c *count) packedShare(r *row) string {
	seats := r.seat.seats
	switch {
	case r.seat.weight == 0 && seats == 0:
		return "weight 0"
	case r.seat.weight == 0:
		return fmt.Sprintf("min %d, and no more at weight 0", seats)
	case r.seat.full() && r.cap != "":
		return "packed full: " + r.cap
	case r.seat.full() && r.still != "":
		return "packed with what it has"
	case r.seat.domain.parked:
		return fmt.Sprintf("packed to %d, held by %s", seats, c.skew())
	case seats == 0:
		return "not needed: those packed before it hold everything"
	case seats == r.seat.floor:
		return fmt.Sprintf("min %d; those packed before it hold the rest", seats)
	}
	return fmt.Sprintf("packed with %d", seats)
}

// fairShare writes the share without limits, and how it was rounded.
func (c *count) fairShare(r *row) string {
	if r.seat.weight == 0 {
		return "fair share 0 (weight 0)"
	}
	quota, share := c.quota(r), r.share.seats
	if math.Abs(quota-float64(share)) < 1e-9 {
		return fmt.Sprintf("fair share %d", share)
	}
	how := "rounded down"
	if float64(share) > quota {
		how = "rounded up"
	}
	return fmt.Sprintf("fair share %d (%.2f %s%s)", share, quota, how, c.fair.tied(r.share))
}

// quota is the share before rounding. It is for show: the dealing is exact.
func (c *count) quota(r *row) float64 {
	q := float64(c.replicas) * float64(r.share.weight) / float64(max(c.weights, 1))
	if c.fleet.Strategy == Spread && c.fleet.Spread.By == ByRegion {
		// By region first, and then by weight within the region.
		d := r.share.domain
		q *= float64(d.weight) / float64(max(d.inside, 1))
	}
	return q
}

// limit is what keeps a member from its fair share by its own fault or wish.
type limit int

const (
	unlimited limit = iota
	capped
	still
	skewed
	raised
)

// limited says which limit applies to a row.
func (r *row) limited() limit {
	seats, share := r.seat.seats, r.share.seats
	switch {
	case seats < share && r.seat.full() && r.cap != "":
		return capped
	case seats < share && r.seat.full() && r.still != "":
		return still
	case seats < share && r.seat.domain.parked:
		return skewed
	case seats > share && seats <= r.seat.floor:
		return raised
	}
	return unlimited
}

// limits says what the member itself is held by.
func (c *count) limits(r *row) string {
	switch r.limited() {
	case capped:
		return ", capped by " + r.cap
	case still:
		return fmt.Sprintf(", limited to the %d it has", r.seat.seats)
	case skewed:
		return fmt.Sprintf(", held at %d by %s", r.seat.seats, c.skew())
	case raised:
		if r.seat.seats < r.seat.floor {
			return fmt.Sprintf(", raised to %d towards its min %d", r.seat.seats, r.Min)
		}
		return fmt.Sprintf(", raised to its min %d", r.seat.seats)
	case unlimited:
	}
	return ""
}

func (c *count) skew() string {
	over := "members"
	if c.fleet.Spread.By == ByRegion {
		over = "regions"
	}
	return fmt.Sprintf("maxSkew %d between %s", c.fleet.Spread.MaxSkew, over)
}

// difference says from whom, or to whom, the rest of the number went.
func (c *count) difference(r *row) string {
	diff := r.seat.seats - r.share.seats
	if diff == 0 || r.limited() != unlimited {
		return ""
	}
	if diff > 0 {
		return fmt.Sprintf("+%d from %s (Webster%s)", diff, c.parties().donors, c.dealt.tied(r.seat))
	}
	return fmt.Sprintf("−%d %s", -diff, c.parties().takers)
}

// parties names those that have less than their fair share, and those that have more, as explanations of the others
// mention them.
type parties struct{ donors, takers string }

// parties is worked out once: every explanation may need it.
func (c *count) parties() *parties {
	if c.named != nil {
		return c.named
	}
	var donors, lifted, takers []string
	for _, r := range c.rows {
		switch {
		case r.seat == nil:
		case r.seat.seats < r.share.seats:
			donors = append(donors, string(r.ID))
		case r.limited() == raised:
			lifted = append(lifted, string(r.ID))
		case r.seat.seats > r.share.seats:
			takers = append(takers, string(r.ID))
		}
	}
	c.named = &parties{donors: "the remainders of " + list(donors), takers: "to " + list(takers)}
	if len(donors) == 1 {
		c.named.donors = donors[0] + "'s remainder"
	}
	if len(lifted) > 0 {
		c.named.takers = "for the min of " + list(lifted)
	}
	return c.named
}

// list writes at most three names.
func list(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d others", strings.Join(names[:most-1], ", "), len(names)-most+1)
	}
	if len(names) == 0 {
		return "others"
	}
	if len(names) == 1 {
		return names[0]
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// tied says how a tie at the candidate's last or next seat was broken: it won its last against one that is still
// waiting with an equal claim, or lost its next to one that was dealt it with an equal claim.
func (d *dealing) tied(c *candidate) string {
	dom := c.domain
	if !dom.open.empty() {
		if note := d.broken(&c.claim, &dom.open.top().claim); note != "" {
			return note
		}
	}
	if dom.last != nil {
		if note := d.broken(&dom.last.claim, &c.claim); note != "" {
			return note
		}
	}
	// Within its domain it was clear; between domains it may have been close.
	if d.strategy == Spread {
		if dom.last == c && !d.open.empty() {
			if note := d.broken(&dom.claim, &d.open.top().claim); note != "" {
				return note
			}
		}
		if d.last != nil && !dom.open.empty() && dom.open.top() == c {
			return d.broken(&d.last.claim, &dom.claim)
		}
		return ""
	}
	if !d.open.empty() {
		if note := d.broken(&c.claim, &d.open.top().open.top().claim); note != "" {
			return note
		}
	}
	if d.last != nil && d.last.last != nil {
		return d.broken(&d.last.last.claim, &c.claim)
	}
	return ""
}

// broken says how winner got its last seat before loser got its next, if their claims to it were equal.
func (d *dealing) broken(winner, loser *claim) string {
	if winner == loser || winner.seats == 0 ||
		compareQuotients(winner.weight, winner.seats-1, loser.weight, loser.seats) != 0 {
		return ""
	}
	if d.maxSkew <= 0 && winner.heldLast() && !loser.holdsNext() {
		return ", tie to the holder"
	}
	return ", tie by UID"
}
