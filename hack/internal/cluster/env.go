package cluster

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
)

// Variable is an environment variable for scripts.
type Variable struct{ Name, Value string }

// Env returns what a script needs to work with the group: programs, kubeconfig, engine, addresses and ranges.
func (g *Group) Env(dir cache.Dir, path string) []Variable {
	bin := filepath.Join(groupDir(dir, g.Prefix), "bin")
	members := 0
	for _, c := range g.Clusters {
		if c.Role == "member" {
			members++
		}
	}
	vars := []Variable{
		{"KUBECONFIG", Kubeconfig(dir, g.Prefix)},
		{"KUBECACHEDIR", kubectlCache(dir, g.Prefix)},
		{"SHOAL_PREFIX", g.Prefix},
		{"SHOAL_BIN", bin},
		{"SHOAL_DOCKER", filepath.Join(bin, "docker")},
		{"SHOAL_NETWORK", g.Network.Name},
		{"SHOAL_NETWORK_SUBNET", g.Network.Subnet.String()},
		{"SHOAL_NETWORK_GATEWAY", g.Network.Gateway.String()},
		{"SHOAL_MEMBERS", fmt.Sprint(members)},
	}
	if g.DockerHost != "" {
		vars = append(vars, Variable{"DOCKER_HOST", g.DockerHost})
	}
	// Once is enough, however often the lines are evaluated.
	if !strings.HasPrefix(path, bin+":") {
		vars = append(vars, Variable{"PATH", bin + ":" + path})
	}
	for _, c := range g.Clusters {
		var names, ips []string
		for _, node := range c.Nodes {
			names = append(names, node.Name)
			ips = append(ips, node.IP.String())
		}
		name := c.variable()
		vars = append(vars,
			Variable{name + "_CLUSTER", c.Name},
			Variable{name + "_CONTEXT", c.Context()},
			Variable{name + "_NODES", strings.Join(names, " ")},
			Variable{name + "_NODE_IPS", strings.Join(ips, " ")},
			Variable{name + "_POD_SUBNET", c.Pods.String()},
			Variable{name + "_SERVICE_SUBNET", c.Services.String()},
		)
		if len(ips) > 0 {
			vars = append(vars, Variable{name + "_NODE_IP", ips[0]})
		}
	}
	return vars
}

// Shell writes variables as lines for a shell to evaluate.
func Shell(vars []Variable) string {
	var b strings.Builder
	for _, v := range vars {
		fmt.Fprintf(&b, "export %s='%s'\n", v.Name, strings.ReplaceAll(v.Value, "'", `'\''`))
	}
	return b.String()
}
