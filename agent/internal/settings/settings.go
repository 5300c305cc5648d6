package settings

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
)

// Settings is the agent's configuration file.
type Settings struct {
	// Member is the member that the agent's own cluster is; nil where the agent serves regions or other clusters only.
	Member *Member `yaml:"member,omitempty"`
	// Hub says where the hub is.
	Hub Hub `yaml:"hub"`
	// Providers are the entries that fleets may name. Those of type kubernetes are offered by the agent's own cluster and by
	// the clusters of kubeconfig Secrets, those of type gcp by regions.
	Providers []Provider `yaml:"providers"`
	// KubeconfigSecrets has the agent serve the clusters of Secrets in its namespace that are labelled
	// shoal.dev/component=kubeconfig.
	KubeconfigSecrets bool `yaml:"kubeconfigSecrets,omitempty"`
	// Ceiling bounds what a hub may ask of the agent's own cluster.
	Ceiling Ceiling `yaml:"ceiling,omitempty"`
	// Probe says what proxies are probed with.
	Probe Probe `yaml:"probe"`
}

// Member says which member a cluster is.
type Member struct {
	// Name is the MemberCluster's name on the hub.
	Name string `yaml:"name"`
	// Region is where the member is, for placement and leases.
	Region string `yaml:"region,omitempty"`
	// Country is the ISO 3166 code of the country it leaves from.
	Country string `yaml:"country,omitempty"`
}

// Hub says where the hub is.
type Hub struct {
	// URL is https://host:port of the hub's listener for agents.
	URL string `yaml:"url"`
	// CAPin is "sha256:" and the hash of the public key of the hub's certificate authority.
	CAPin string `yaml:"caPin"`
}

var (
	namePattern    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	countryPattern = regexp.MustCompile(`^[A-Z]{2}$`)
)

// Read reads and checks a configuration file. Its error names every mistake with its line.
func Read(file []byte) (*Settings, error) {
	s := new(Settings)
	d, written, err := read(file, s)
	switch {
	case err != nil:
		return nil, fmt.Errorf("agent configuration: %w", err)
	case !written:
		return nil, errors.New("agent configuration: it is empty")
	}
	if s.Member != nil {
		d.checkMember(s.Member)
		d.checkCeiling("ceiling", &s.Ceiling, "this cluster")
	} else if line, ok := d.lines["ceiling"]; ok {
		d.refuseAt(line, "ceiling", "it bounds what a hub may ask of this cluster, and this cluster is no member; remove it, or write the member block")
	}
	d.checkHub(&s.Hub)
	d.checkProviders(s)
	d.checkProbe(&s.Probe, s.Ceiling.cluster)
	if err := d.err(); err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	return s, nil
}

func (d *document) checkMember(m *Member) {
	d.checkName("member.name", m.Name)
	d.checkPlace("member.region", m.Region, "member.country", m.Country)
}

func (d *document) checkName(field, name string) {
	if !namePattern.MatchString(name) {
		d.refuse(field, "%q is no name of a member; write the one that `shoalctl member join-token` was called with", name)
	}
}

func (d *document) checkPlace(regionField, region, countryField, country string) {
	if len(region) > 63 {
		d.refuse(regionField, "it has %d characters; write at most 63", len(region))
	}
	if country != "" && !countryPattern.MatchString(country) {
		d.refuse(countryField, "%q is no country; write two capital letters such as DE", country)
	}
}

func (d *document) checkHub(h *Hub) {
	if !strings.HasPrefix(h.URL, "https://") {
		d.refuse("hub.url", "%q is not the address of a hub; write https://host:port", h.URL)
	}
	if !enroll.IsPin(h.CAPin) {
		d.refuse("hub.caPin", "it pins nothing; write sha256: and 64 hexadecimal digits, as `shoalctl member join-token` prints them")
	}
}
