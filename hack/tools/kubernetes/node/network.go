package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// writeCNI puts pods on a bridge in the node's own range. The bridge plug-in's own masquerading stays off: it would
// hide a pod's address from pods of other nodes too. See router.masquerade.
func writeCNI(path, podCIDR string) error {
	type object = map[string]any
	config := object{
		"cniVersion": "0.4.0",
		"name":       "pods",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
				"ipam": object{
					"type":   "host-local",
					"ranges": [][]object{{{"subnet": podCIDR}}},
					"routes": []object{{"dst": "0.0.0.0/0"}},
				},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}},
		},
	}
	content, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// The runtime watches the directory: it must never see half a file.
	tmp := path + ".tmp"
	if err := os.WriteFile(tmp, append(content, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// routeProtocol marks the routes that are ours to remove. 0 to 4 are the kernel's, and routing daemons register theirs
// below 200.
const routeProtocol = 212

// router keeps one route per other node, and the masquerading.
type router struct {
	name string
	// masqueraded is the rule set that is in force.
	masqueraded string
}

func (r *router) sync(lister corelisters.NodeLister) error {
	nodes, err := lister.List(labels.Everything())
	if err != nil {
		return err
	}
	return errors.Join(r.routes(nodes), r.masquerade(nodes))
}

func (r *router) routes(nodes []*corev1.Node) error {
	var errs []error
	wanted := make(map[string]bool)
	for _, node := range nodes {
		gateway := internalIP(node)
		_, pods, err := net.ParseCIDR(node.Spec.PodCIDR)
		if node.Name == r.name || gateway == nil || err != nil {
			continue // our own range is on the bridge; the others will be announced when they are complete
		}
		wanted[pods.String()+" via "+gateway.String()] = true
		if err := netlink.RouteReplace(&netlink.Route{Dst: pods, Gw: gateway, Protocol: routeProtocol}); err != nil {
			errs = append(errs, fmt.Errorf("route to %s via %s: %w", pods, gateway, err))
		}
	}
	ours, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for _, route := range ours {
		if route.Dst == nil || wanted[route.Dst.String()+" via "+route.Gw.String()] {
			continue
		}
		if err := netlink.RouteDel(&route); err != nil {
			errs = append(errs, fmt.Errorf("removing the route to %s: %w", route.Dst, err))
		}
	}
	return errors.Join(errs...)
}

// masquerade makes pods leave the cluster by their node's address and keeps their own towards any pod of the cluster.
func (r *router) masquerade(nodes []*corev1.Node) error {
	var own string
	var all []string
	for _, node := range nodes {
		if node.Spec.PodCIDR == "" {
			continue
		}
		all = append(all, node.Spec.PodCIDR)
		if node.Name == r.name {
			own = node.Spec.PodCIDR
		}
	}
	if own == "" {
		return nil
	}
	slices.Sort(all)
	// Declared, flushed and filled in one transaction, so that it is right at any moment and whatever was there.
	rules := fmt.Sprintf(`table ip shoal-node
flush table ip shoal-node
table ip shoal-node {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr %s ip daddr != { %s } masquerade
	}
}
`, own, strings.Join(all, ", "))
	if rules == r.masqueraded {
		return nil
	}
	cmd := exec.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, bytes.TrimSpace(out))
	}
	r.masqueraded = rules
	return nil
}

func internalIP(node *corev1.Node) net.IP {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			if ip := net.ParseIP(address.Address).To4(); ip != nil {
				return ip
			}
		}
	}
	return nil
}
