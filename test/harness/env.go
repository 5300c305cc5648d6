package harness

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Namespace is where hub and agents are installed.
const Namespace = "shoal-system"

// Env is the environment that hack/e2e has set up.
type Env struct {
	// Hub and Members are the clusters. The order of members is that of hack/deploy: east, west.
	Hub     *Cluster
	Members []*Member
	// LeaseURL is the lease API, CAFile the certificate to trust it by.
	LeaseURL, CAFile string
	// AgentsURL is where agents register and hold their sessions.
	AgentsURL string
	// Echo is the hub's echo listener, which probes ask for the address they come from.
	Echo netip.AddrPort
	// Region is the member that is a region of Google Cloud, whose agent is the first member's, and Compute what it has.
	Region  string
	Compute Compute
	// Target is a web server on the clusters' network that answers with what it saw.
	Target netip.Addr

	ctl []string
}

// Member is a member cluster under the name that the hub knows it by.
type Member struct {
	*Cluster
	Name string
}

// memberNames are given by hack/deploy to the first members, in this order.
var memberNames = []string{"east", "west", "north", "south"}

// FromEnv reads the environment and connects to the clusters. The error names every variable that is missing.
func FromEnv() (*Env, error) {
	v := variables{}
	e := &Env{
		LeaseURL: v.text("SHOAL"),
		CAFile:   v.text("SHOAL_CA"),
		ctl:      strings.Fields(v.text("SHOAL_CTL")),
		Target:   v.addr("SHOAL_TARGET_IP"),
		Region:   v.text("SHOAL_REGION"),
		Compute:  Compute{Endpoint: v.text("SHOAL_COMPUTE_ENDPOINT"), Project: v.text("SHOAL_COMPUTE_PROJECT")},
	}
	members := v.count("SHOAL_MEMBERS")
	v.text("KUBECONFIG")
	hub := v.cluster("SHOAL_HUB")
	var joined []*Member
	for i := range members {
		name := fmt.Sprintf("member-%d", i+1)
		if i < len(memberNames) {
			name = memberNames[i]
		}
		joined = append(joined, &Member{Name: name, Cluster: v.cluster(fmt.Sprintf("SHOAL_MEMBER_%d", i+1))})
	}
	if len(v.problems) > 0 {
		return nil, fmt.Errorf("run `make e2e`, which sets the environment up: %s", strings.Join(v.problems, "; "))
	}
	// As hack/deploy exposes them: a node port, and port 443 of the hub's node.
	e.AgentsURL = fmt.Sprintf("https://%s:30443", hub.NodeIPs[0])
	e.Echo = netip.AddrPortFrom(hub.NodeIPs[0], 443)
	e.Hub, e.Members = hub, joined
	errs := []error{hub.connect()}
	for _, m := range joined {
		errs = append(errs, m.connect())
	}
	return e, errors.Join(errs...)
}

// Member returns a member by its name, or nil if there is none.
func (e *Env) Member(name string) *Member {
	for _, m := range e.Members {
		if m.Name == name {
			return m
		}
	}
	return nil
}

// variables collects what is wrong with the environment.
type variables struct{ problems []string }

func (v *variables) text(name string) string {
	value := os.Getenv(name)
	if value == "" {
		v.problems = append(v.problems, name+" is not set")
	}
	return value
}

func (v *variables) count(name string) int {
	n, err := strconv.Atoi(v.text(name))
	if err != nil || n < 2 {
		v.problems = append(v.problems, name+" must be 2 or more")
		return 0
	}
	return n
}

func (v *variables) addr(name string) netip.Addr {
	addr, err := netip.ParseAddr(v.text(name))
	if err != nil {
		v.problems = append(v.problems, name+" must be an address")
	}
	return addr
}

func (v *variables) prefix(name string) netip.Prefix {
	prefix, err := netip.ParsePrefix(v.text(name))
	if err != nil {
		v.problems = append(v.problems, name+" must be a range")
	}
	return prefix
}

func (v *variables) cluster(prefix string) *Cluster {
	c := &Cluster{
		Context:  v.text(prefix + "_CONTEXT"),
		Nodes:    strings.Fields(v.text(prefix + "_NODES")),
		Pods:     v.prefix(prefix + "_POD_SUBNET"),
		Services: v.prefix(prefix + "_SERVICE_SUBNET"),
	}
	for text := range strings.FieldsSeq(v.text(prefix + "_NODE_IPS")) {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			v.problems = append(v.problems, prefix+"_NODE_IPS must be addresses")
			continue
		}
		c.NodeIPs = append(c.NodeIPs, addr)
	}
	if len(c.NodeIPs) == 0 {
		v.problems = append(v.problems, prefix+"_NODE_IPS has no address")
	}
	return c
}
