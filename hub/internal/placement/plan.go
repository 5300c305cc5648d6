package placement

// Plan divides the fleet's replicas over the members of the snapshot. It never fails: what cannot be placed is reported
// in the decision.
func Plan(s Snapshot) Decision {
	c := newCount(s)
	c.deal(int64(max(s.Fleet.Replicas, 0)))
	return c.decision()
}
