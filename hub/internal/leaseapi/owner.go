package leaseapi

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// networkExternal is the network of proxies that someone else runs. The hub alone says which those are; see package feed.
const networkExternal lease.Network = "External"

// Owners knows the credentials of proxies that someone else runs. It answers from memory.
type Owners interface {
	// Lookup gives the credentials of one proxy of a fleet, empty if it asks for none; known is false while they are not
	// known.
	Lookup(fleet lease.FleetID, host string, port uint16) (username, password string, known bool)
}

// OwnersFunc makes [Owners] of a function.
type OwnersFunc func(fleet lease.FleetID, host string, port uint16) (username, password string, known bool)

// Lookup implements [Owners].
func (f OwnersFunc) Lookup(fleet lease.FleetID, host string, port uint16) (username, password string, known bool) {
	return f(fleet, host, port)
}

// ownersOf gives the credentials of a lease on a proxy that someone else runs, or refuses. They are never kept with the
// lease, so that an answer has those of now.
func (s *service) ownersOf(l *lease.Lease) (username, password string, err error) {
	known := false
	if s.owners != nil {
		username, password, known = s.owners.Lookup(l.Fleet, l.Endpoint.Host, l.Endpoint.Port)
	}
	if !known {
		return "", "", fault.New(leasev1.Refusal_UNAVAILABLE, fmt.Sprintf(
			"the hub does not know the credentials of this proxy of %s at the moment; try again, and see the fleet's condition Accepted if it lasts",
			l.Fleet), fault.Details{RetryAfter: retryUnavailable})
	}
	return username, password, nil
}

// escaped writes a user name or a password into a URL. Everything is escaped that is not unreserved: an owner's password
// may have any character, and clients differ in which of the reserved ones they take as they are.
func escaped(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
