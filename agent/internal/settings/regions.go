package settings

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
)

// Region is a region of Google Cloud that is a member.
type Region struct {
	// Member is the MemberCluster's name on the hub.
	Member string `yaml:"member"`
	// Region is Google's name of it, such as europe-west4. It is what the hub is told, too.
	Region string `yaml:"region"`
	// Country is the ISO 3166 code of the country it leaves from.
	Country string `yaml:"country,omitempty"`
	// Zones are the zones of the region in which machines are made.
	Zones []string `yaml:"zones"`
	// Providers are entries of type gcp by the names that fleets say. Without any, each entry of type gcp is offered under
	// its own name.
	Providers map[string]string `yaml:"providers,omitempty"`
	// Ceiling bounds what a hub may ask of the region.
	Ceiling `yaml:",inline"`

	project string
	entries map[string]gcp.Settings
}

// Project is the project that the region's machines are made in.
func (r *Region) Project() string { return r.project }

// Entries are the settings of the entries that the region offers, by the names that fleets say.
func (r *Region) Entries() map[string]gcp.Settings { return r.entries }

var regionPattern = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)+$`)

// ReadRegions reads and checks a file of regions for an agent with these settings. A file that says nothing has no
// regions. Its error names every mistake with its line.
func ReadRegions(file []byte, s *Settings) ([]Region, error) {
	var regions []Region
	d, _, err := read(file, &regions)
	if err != nil {
		return nil, fmt.Errorf("regions: %w", err)
	}
	members, places := map[string]int{}, map[string]int{}
	for i := range regions {
		r := &regions[i]
		field := fmt.Sprintf("[%d]", i)
		d.checkRegion(field, r, s)
		before, again := members[r.Member]
		switch {
		case s.Member != nil && r.Member == s.Member.Name:
			d.refuse(field+".member", "%q is the agent's own cluster, by its configuration file; choose another", r.Member)
		case again:
			d.refuse(field+".member", "%q is taken by the region in line %d; choose another", r.Member, before)
		default:
			members[r.Member] = d.lineOf(field)
		}
		place := r.project + "/" + r.Region
		if before, again := places[place]; again && r.project != "" {
			d.refuse(field+".region", "%s of project %s is the member in line %d already; one region is one member", r.Region, r.project, before)
		}
		places[place] = d.lineOf(field)
	}
	if err := d.err(); err != nil {
		return nil, fmt.Errorf("regions: %w", err)
	}
	return regions, nil
}

func (d *document) checkRegion(field string, r *Region, s *Settings) {
	d.checkName(field+".member", r.Member)
	if !regionPattern.MatchString(r.Region) {
		d.refuse(field+".region", "%q is no region of Google Cloud; write such as europe-west4", r.Region)
	}
	d.checkPlace(field+".region", r.Region, field+".country", r.Country)
	if len(r.Zones) == 0 {
		d.refuse(field+".zones", "it is empty, so there would be no place for machines; write such as [%s-a, %s-b]", r.Region, r.Region)
	}
	for i, zone := range r.Zones {
		at := fmt.Sprintf("%s.zones[%d]", field, i)
		switch {
		case !regionPattern.MatchString(zone) || !strings.HasPrefix(zone, r.Region+"-"):
			d.refuse(at, "%q is no zone of %s; write such as %s-b", zone, r.Region, r.Region)
		case slices.Contains(r.Zones[:i], zone):
			d.refuse(at, "%s is written twice; keep one", zone)
		}
	}
	d.checkCeiling(field, &r.Ceiling, "the region's own networks")
	for i, target := range s.Probe.targets {
		if own, inside := within(target, r.cluster); inside {
			d.refuse(field+".clusterCIDRs", "%s has probe.targets[%d], %s, so no proxy would ever become Ready; narrow it", own, i, target)
		}
	}
	d.checkOffer(field, r, s)
}

// checkOffer resolves the entries that the region offers.
func (d *document) checkOffer(field string, r *Region, s *Settings) {
	known := map[string]*gcp.Settings{}
	for i := range s.Providers {
		if s.Providers[i].Type == TypeGCP {
			known[s.Providers[i].Name] = s.Providers[i].GCP
		}
	}
	offer := r.Providers
	if len(offer) == 0 {
		offer = map[string]string{}
		for name := range known {
			offer[name] = name
		}
	}
	if len(known) == 0 {
		d.refuse(field, "the configuration file has no provider of type gcp for it; add one under providers")
		return
	}
	r.entries = map[string]gcp.Settings{}
	for _, name := range slices.Sorted(maps.Keys(offer)) {
		at := field + ".providers." + name
		entry, ok := known[offer[name]]
		switch {
		case !namePattern.MatchString(name):
			d.refuse(at, "%q is no name; write lower-case letters, digits and dashes, at most 63", name)
		case !ok:
			d.refuse(at, "%q is no provider of type gcp in the configuration file; write one of %s", offer[name], strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case r.project != "" && entry.Project != r.project:
			d.refuse(at, "%s is of project %s, and another entry of this region of %s; one member is one region of one project: name the entries of one under providers",
				offer[name], entry.Project, r.project)
		default:
			r.project = entry.Project
			r.entries[name] = *entry
		}
	}
}
