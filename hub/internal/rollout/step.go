package rollout

// Step computes the next placements. It never fails and changes none of its input.
func Step(in Input) Plan {
	s := newState(in)
	s.keepDraining()
	s.take()
	s.order()
	return s.plan()
}
