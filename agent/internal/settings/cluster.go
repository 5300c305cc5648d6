package settings

import "errors"

// Cluster is another cluster than the agent's own that is a member, as its kubeconfig Secret describes it.
type Cluster struct {
	// Member is the MemberCluster's name on the hub.
	Member string `yaml:"member"`
	// Region and Country are where the cluster is.
	Region  string `yaml:"region,omitempty"`
	Country string `yaml:"country,omitempty"`
	// Namespace is where the agent keeps its objects there; unset means that of the kubeconfig's context, else the name of
	// the agent's own.
	Namespace string `yaml:"namespace,omitempty"`
	// Ceiling bounds what a hub may ask of the cluster.
	Ceiling `yaml:",inline"`
}

// ReadCluster reads and checks the description of a cluster, for an agent with these settings. Its error names every
// mistake with its line.
func ReadCluster(text []byte, s *Settings) (*Cluster, error) {
	c := new(Cluster)
	d, written, err := read(text, c)
	switch {
	case err != nil:
		return nil, err
	case !written:
		return nil, errors.New("it is empty")
	}
	d.checkName("member", c.Member)
	if s.Member != nil && c.Member == s.Member.Name {
		d.refuse("member", "%q is the agent's own cluster, by its configuration file; choose another", c.Member)
	}
	d.checkPlace("region", c.Region, "country", c.Country)
	if c.Namespace != "" && !namePattern.MatchString(c.Namespace) {
		d.refuse("namespace", "%q is no name of a namespace", c.Namespace)
	}
	d.checkCeiling("", &c.Ceiling, "that cluster")
	for i, target := range s.Probe.targets {
		if own, inside := within(target, c.cluster); inside {
			d.refuse("clusterCIDRs", "%s has probe.targets[%d], %s, so no proxy would ever become Ready; narrow it", own, i, target)
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return c, nil
}
