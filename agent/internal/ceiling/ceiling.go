package ceiling

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Violation is one way in which a request is above the ceiling.
type Violation struct {
	// Rule is the rule that refuses.
	Rule Rule
	// Message says what was asked, and what the hub's user or the member's owner can do.
	Message string
}

// findings collects violations, so that a person reads all of them at once.
type findings struct{ list []Violation }

func (f *findings) refuse(rule Rule, format string, args ...any) {
	f.list = append(f.list, Violation{Rule: rule, Message: fmt.Sprintf(format, args...)})
}

// Check compares a Proxy's spec with the policy, beside what the member hosts already. The result is empty where the request is within the ceiling, and names every rule it breaks otherwise.
func Check(p Policy, spec v1alpha1.ProxySpec, ahead Ahead) []Violation {
	f := &findings{}
	if spec.Mode != v1alpha1.ModeExternal && !slices.Contains(p.Providers, spec.Provider) {
		f.refuse(RuleProviders, "provider %q is not in this member's provider file; it offers %s", spec.Provider, list(p.Providers))
	}
	checkEndpoint(p, spec, f)
	checkCounts(p, spec, ahead, f)
	checkMachine(p, spec.CloudInit, f)
	checkNodes(p, spec.Placement, f)
	checkPorts(p, "egress.ports", spec.Egress.Ports, f)
	checkPorts(p, "egress.connectPorts", spec.Egress.ConnectPorts, f)
	for _, s := range spec.Egress.AllowedCIDRs {
		checkCIDR(p, s, f)
	}
	return f.list
}

// list writes a list for people, the first few of it where it is long.
func list[T any](items []T) string {
	const most = 12
	if len(items) == 0 {
		return "none"
	}
	words := make([]string, 0, most+1)
	for i, item := range items {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(items)-most))
			break
		}
		words = append(words, fmt.Sprint(item))
	}
	return strings.Join(words, ", ")
}
