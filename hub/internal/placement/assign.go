package placement

import (
	"cmp"
	"slices"
)

// EndpointID names a proxy that someone else runs; it is unique in a fleet.
type EndpointID string

// Endpoint is a proxy that someone else runs, and the member that probes it now.
type Endpoint struct {
	ID EndpointID
	// Member is empty for an endpoint that no member has.
	Member MemberID
}

// Assign says which member each endpoint is for. The decision must be a [Plan] of the snapshot in which every member has
// as many proxies as endpoints name it.
//
// Unlike replicas, endpoints are not alike, and one that changes its member loses its leases and gains nothing: so it
// stays with a member as long as that takes part, whatever the shares. A member that takes no part, or has more than its
// maximum, gives up what is too much, from the last by ID. What nobody has goes, in order of ID, to the member that is
// furthest below its share; between equals, to the first by ID. An endpoint for which there is no room is not in the
// result: the decision says why.
func Assign(s Snapshot, d Decision, endpoints []Endpoint) map[EndpointID]MemberID {
	rooms := make(map[MemberID]int32, len(s.Members))
	for i := range s.Members {
		rooms[s.Members[i].ID] = roomOf(s.Fleet, &s.Members[i])
	}
	sorted := slices.SortedFunc(slices.Values(endpoints), func(a, b Endpoint) int { return cmp.Compare(a.ID, b.ID) })
	assigned := make(map[EndpointID]MemberID, len(endpoints))
	kept := make(map[MemberID]int32, len(s.Members))
	for _, e := range sorted {
		if room, known := rooms[e.Member]; known && kept[e.Member] < room {
			assigned[e.ID] = e.Member
			kept[e.Member]++
		}
	}
	for _, e := range sorted {
		if _, done := assigned[e.ID]; done {
			continue
		}
		var best *Allotment
		for i := range d.Members {
			row := &d.Members[i]
			below := row.Wanted - kept[row.Member]
			if below > 0 && kept[row.Member] < rooms[row.Member] && (best == nil || below > best.Wanted-kept[best.Member]) {
				best = row
			}
		}
		if best == nil {
			break
		}
		assigned[e.ID] = best.Member
		kept[best.Member]++
	}
	return assigned
}

// roomOf is how many endpoints a member may keep.
func roomOf(fleet Fleet, m *Member) int32 {
	if newRow(fleet, m).excluded != "" || m.Weight <= 0 && m.Min <= 0 {
		return 0
	}
	room := int32(1<<31 - 1)
	if m.Weight <= 0 {
		room = m.Min // nothing beyond it
	}
	if m.Max != nil {
		room = min(room, max(*m.Max, 0))
	}
	return room
}
