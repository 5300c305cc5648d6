package computefake

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"
)

func (a *address) path(project, region string) string {
	return fmt.Sprintf("projects/%s/regions/%s/addresses/%s", project, region, a.Name)
}

// insertAddress reserves an address.
func (w *world) insertAddress(now time.Time, c *call) (any, *apiError) {
	p, region := w.projects[c.vars["project"]], c.vars["region"]
	var in Address
	if bad := c.decode(&in); bad != nil {
		return nil, bad
	}
	if o, bad := w.remembered(now, p, c); o != nil || bad != nil {
		return o.answer(), bad
	}
	a := &address{Address: in}
	switch {
	case !namePattern.MatchString(a.Name):
		return nil, invalid("resource.name", "'%s'. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'", a.Name)
	case a.ID != 0, a.Status != "", a.Region != "", a.SelfLink != "", a.CreationTimestamp != "", a.Users != nil, a.LabelFingerprint != "":
		return nil, invalid("resource", "A field is set that only the service may set.")
	case a.Address.Address != "":
		return nil, invalid("resource.address", "'%s'. Only addresses of the service's choice are supported.", a.Address.Address)
	case a.AddressType != "" && a.AddressType != "EXTERNAL":
		return nil, invalid("resource.addressType", "'%s'. Only EXTERNAL is supported.", a.AddressType)
	case a.IPVersion != "" && a.IPVersion != "IPV4":
		return nil, invalid("resource.ipVersion", "'%s'. Only IPV4 is supported.", a.IPVersion)
	case !slices.Contains([]string{"", "PREMIUM", "STANDARD"}, a.NetworkTier):
		return nil, invalid("resource.networkTier", "'%s'. Must be PREMIUM or STANDARD.", a.NetworkTier)
	}
	if bad := checkLabels("resource.labels", a.Labels); bad != nil {
		return nil, bad
	}
	if _, taken := p.addresses[region][a.Name]; taken {
		return nil, alreadyExists(a.path(p.name, region))
	}
	if f := w.exceeded(p.name, region, map[string]float64{MetricStaticAddresses: 1}); f != nil {
		return nil, quotaError(f)
	}
	if a.NetworkTier == "" {
		a.NetworkTier = "PREMIUM"
	}
	a.Kind, a.ID, a.CreationTimestamp = "compute#address", w.newID(), stamp(now)
	a.AddressType, a.IPVersion, a.Status = "EXTERNAL", "IPV4", "RESERVED"
	a.Region, a.SelfLink = link("projects/"+p.name+"/regions/"+region), link(a.path(p.name, region))
	a.LabelFingerprint = fingerprint(a.Labels)
	a.Address.Address = takeAddress(w.o.NATRange, &w.natNext, w.natInUse)
	p.addresses[region][a.Name] = a
	o := w.begin(now, p, "regions/"+region, "insert", a.path(p.name, region), a.ID)
	w.remember(now, p, c, o)
	w.later(now, o, func() {})
	return o.Operation, nil
}

func (w *world) findAddress(c *call) (*project, *address, *apiError) {
	p, region := w.projects[c.vars["project"]], c.vars["region"]
	a, ok := p.addresses[region][c.vars["address"]]
	if !ok {
		return p, nil, notFound(fmt.Sprintf("projects/%s/regions/%s/addresses/%s", p.name, region, c.vars["address"]))
	}
	return p, a, nil
}

func (w *world) getAddress(_ time.Time, c *call) (any, *apiError) {
	_, a, bad := w.findAddress(c)
	if bad != nil {
		return nil, bad
	}
	return a.Address, nil
}

// deleteAddress gives an address back, unless something uses it.
func (w *world) deleteAddress(now time.Time, c *call) (any, *apiError) {
	region := c.vars["region"]
	if o, bad := w.remembered(now, w.projects[c.vars["project"]], c); o != nil || bad != nil {
		return o.answer(), bad
	}
	p, a, bad := w.findAddress(c)
	if bad != nil {
		return nil, bad
	}
	if a.user != nil {
		return nil, &apiError{
			code: http.StatusBadRequest, reason: reasonInUse,
			message: fmt.Sprintf("The address resource '%s' is already being used by '%s'", a.path(p.name, region), a.user.path()),
		}
	}
	delete(p.addresses[region], a.Name)
	if addr, err := netip.ParseAddr(a.Address.Address); err == nil {
		delete(w.natInUse, addr)
	}
	o := w.begin(now, p, "regions/"+region, "delete", a.path(p.name, region), a.ID)
	w.remember(now, p, c, o)
	w.later(now, o, func() {})
	return o.Operation, nil
}

// addressFields are what a filter of addresses may name.
var addressFields = []string{"labels", "name", "status", "address"}

func addressField(a *address) func(string) (string, bool) {
	return func(field string) (string, bool) {
		switch field {
		case "name":
			return a.Name, true
		case "status":
			return a.Status, true
		case "address":
			return a.Address.Address, true
		}
		value, ok := a.Labels[field[len(labelsPrefix):]]
		return value, ok
	}
}

// scopedAddress is an address and its region.
type scopedAddress struct {
	region string
	a      Address
}

func (p *project) addressesOf(region string, q listQuery) []scopedAddress {
	var out []scopedAddress
	for r, all := range p.addresses {
		for _, a := range all {
			if (region == "" || r == region) && q.filter.matches(addressField(a)) {
				out = append(out, scopedAddress{r, a.Address})
			}
		}
	}
	slices.SortFunc(out, func(a, b scopedAddress) int { return strings.Compare(a.region+"/"+a.a.Name, b.region+"/"+b.a.Name) })
	return out
}

func (w *world) listAddresses(_ time.Time, c *call) (any, *apiError) {
	q, bad := c.listQuery(addressFields)
	if bad != nil {
		return nil, bad
	}
	p, region := w.projects[c.vars["project"]], c.vars["region"]
	at := "projects/" + p.name + "/regions/" + region + "/addresses"
	out := list[Address]{Kind: "compute#addressList", ID: at, SelfLink: link(at)}
	page, token := paginate(p.addressesOf(region, q), q, func(s scopedAddress) string { return q.key(s.a.Name, s.a.CreationTimestamp) })
	for _, s := range page {
		out.Items = append(out.Items, s.a)
	}
	out.NextPageToken = token
	return out, nil
}

func (w *world) aggregatedAddresses(_ time.Time, c *call) (any, *apiError) {
	q, bad := c.listQuery(addressFields)
	if bad != nil {
		return nil, bad
	}
	p := w.projects[c.vars["project"]]
	out := newAggregated("address", p)
	out.Kind, out.ID = "compute#addressAggregatedList", "projects/"+p.name+"/aggregated/addresses"
	out.SelfLink = link(out.ID)
	page, token := paginate(p.addressesOf("", q), q, func(s scopedAddress) string { return q.key(s.region+"/"+s.a.Name, s.a.CreationTimestamp) })
	byScope := map[string][]Address{}
	for _, s := range page {
		byScope["regions/"+s.region] = append(byScope["regions/"+s.region], s.a)
	}
	scopes := []string{"global"}
	for _, r := range w.o.regions() {
		scopes = append(scopes, "regions/"+r)
	}
	for _, scope := range scopes {
		if found := byScope[scope]; len(found) > 0 {
			out.Items[scope] = map[string]any{"addresses": found}
		} else {
			out.Items[scope] = map[string]any{"warning": noResults(scope)}
		}
	}
	out.NextPageToken = token
	return out, nil
}
