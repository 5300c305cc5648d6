package ceiling

import (
	"maps"
	"slices"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// DefaultNodeSelectorKeys are the labels that a fleet may choose nodes by where the owner lists none: those that say where
// a node is and what it is, and none that names one node or a pool that is kept for somebody.
func DefaultNodeSelectorKeys() []string {
	return []string{"topology.kubernetes.io/region", "topology.kubernetes.io/zone", "kubernetes.io/arch"}
}

func checkNodes(p Policy, placement *v1alpha1.InstancePlacement, f *findings) {
	if placement == nil {
		return
	}
	allowed := p.NodeSelectorKeys
	if len(allowed) == 0 {
		allowed = DefaultNodeSelectorKeys()
	}
	for _, key := range slices.Sorted(maps.Keys(placement.NodeSelector)) {
		if !slices.Contains(allowed, key) {
			f.refuse(RuleNodeSelectorKeys, "placement.nodeSelector chooses by %q, and this member allows %s; leave it out, or have its owner list it", key, list(allowed))
		}
	}
}
