package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/shoal-dev/shoal/hack/internal/cache"
)

// Group is what is known of a prefix's clusters.
type Group struct {
	Prefix string `json:"prefix"`
	// PrivateEngine is true where the clusters run on the engine that this program starts and stops.
	PrivateEngine bool `json:"privateEngine"`
	// DockerHost is the engine's address; empty means the Docker client's default.
	DockerHost string `json:"dockerHost"`
	// NodeImage is what the nodes run.
	NodeImage string  `json:"nodeImage"`
	Network   Network `json:"network"`
	// Clusters are the hub and then the members in order.
	Clusters []*Cluster `json:"clusters"`
}

// Network is the container network that all nodes of a group share.
type Network struct {
	Name    string       `json:"name"`
	Bridge  string       `json:"bridge"`
	Subnet  netip.Prefix `json:"subnet"`
	Gateway netip.Addr   `json:"gateway"`
}

// Cluster is one kind cluster.
type Cluster struct {
	// Name is kind's name for it; kubectl's context is "kind-" before it.
	Name string `json:"name"`
	// Role is "hub" or "member".
	Role string `json:"role"`
	// Number is 1 for the first member and 0 for the hub.
	Number   int          `json:"number"`
	Pods     netip.Prefix `json:"podSubnet"`
	Services netip.Prefix `json:"serviceSubnet"`
	// Nodes are the nodes in kind's order, the control plane first; known once the cluster is complete.
	Nodes []Node `json:"nodes"`
	// Want is how many nodes it is to have.
	Want int `json:"want"`
	// Complete is set when all steps of making it are done.
	Complete bool `json:"complete"`
}

// Node is one node of a cluster.
type Node struct {
	// Name is the name of the container and of the Kubernetes node.
	Name string     `json:"name"`
	IP   netip.Addr `json:"ip"`
	// Pods is the range that the cluster gave the node.
	Pods netip.Prefix `json:"podSubnet"`
}

// Context is the cluster's context in the group's kubeconfig.
func (c *Cluster) Context() string { return "kind-" + c.Name }

// variable is how the cluster is called in environment variables.
func (c *Cluster) variable() string {
	if c.Role == "hub" {
		return "SHOAL_HUB"
	}
	return "SHOAL_MEMBER_" + strconv.Itoa(c.Number)
}

// groupDir is where a group's files are.
func groupDir(dir cache.Dir, prefix string) string { return dir.Path("clusters", prefix) }

func stateFile(dir cache.Dir, prefix string) string {
	return filepath.Join(groupDir(dir, prefix), "group.json")
}

// Kubeconfig is the path of the group's kubeconfig.
func Kubeconfig(dir cache.Dir, prefix string) string {
	return filepath.Join(groupDir(dir, prefix), "kubeconfig")
}

// kubectlCache is where kubectl keeps what a cluster serves, in place of ~/.kube/cache.
func kubectlCache(dir cache.Dir, prefix string) string {
	return filepath.Join(groupDir(dir, prefix), "kubectl")
}

// Load returns a group, or nil where there is none.
func Load(dir cache.Dir, prefix string) (*Group, error) {
	content, err := os.ReadFile(stateFile(dir, prefix))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	group := &Group{}
	if err := json.Unmarshal(content, group); err != nil {
		return nil, fmt.Errorf("%s: %w; remove the file to start over", stateFile(dir, prefix), err)
	}
	return group, nil
}

// Existing returns a group whose clusters were all completed; anything else is an error that says what to do.
func Existing(dir cache.Dir, prefix string) (*Group, error) {
	group, err := Load(dir, prefix)
	if err != nil {
		return nil, err
	}
	if group == nil {
		return nil, fmt.Errorf("there are no clusters of prefix %q; make them with: hack/clusters.sh up --prefix %s", prefix, prefix)
	}
	for _, c := range group.Clusters {
		if !c.Complete {
			return nil, fmt.Errorf("%s was not completed; finish it with: hack/clusters.sh up --prefix %s", c.Name, prefix)
		}
	}
	return group, nil
}

// Groups returns all groups there are.
func Groups(dir cache.Dir) ([]*Group, error) {
	paths, err := filepath.Glob(stateFile(dir, "*"))
	if err != nil {
		return nil, err
	}
	var groups []*Group
	for _, path := range paths {
		group, err := Load(dir, filepath.Base(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		groups = append(groups, group)
	}
	return groups, nil
}

func (g *Group) save(dir cache.Dir) error {
	content, err := json.MarshalIndent(g, "", "  ")
	if err != nil {
		return err
	}
	return cache.WriteFile(stateFile(dir, g.Prefix), append(content, '\n'), 0o644)
}
