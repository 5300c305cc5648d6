package proxyset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// plan is what one pass does to a set's proxies. It never picks a victim: what goes is what the hub lists in drain.
type plan struct {
	// create are the names of proxies to make.
	create []string
	// drain are the proxies to mark, with their deadline.
	drain []marked
	// remove are the proxies whose deadline has passed.
	remove []*v1alpha1.Proxy
	// next is when the next deadline passes; zero for none.
	next time.Time
	// surplus is how many proxies there are beyond what is wanted and listed. The hub decides which go.
	surplus int
}

// marked is a proxy to mark as draining.
type marked struct {
	proxy    *v1alpha1.Proxy
	deadline time.Time
}

// decide compares a set with its proxies.
//
// Names are "<set>-<ordinal>". A name in drain stays taken until its proxy is gone, so that the hub's list always means
// the proxy it meant; new proxies take the lowest ordinals that are neither in use nor listed.
func decide(set *v1alpha1.ProxySet, proxies []*v1alpha1.Proxy, now time.Time) plan {
	var p plan
	listed := make(map[string]time.Time, len(set.Spec.Drain))
	for _, d := range set.Spec.Drain {
		listed[d.Name] = d.Deadline.Time
	}
	taken := make(map[string]bool, len(proxies)+len(listed))
	for name := range listed {
		taken[name] = true
	}
	kept := 0
	for _, proxy := range slices.SortedFunc(slices.Values(proxies), byOrdinal) {
		taken[proxy.Name] = true
		deadline, draining := listed[proxy.Name]
		if !draining && proxy.Spec.Drain != nil {
			// Draining is one-way. A hub that no longer lists the proxy has seen it gone, or lost its own memory; either
			// way the deadline that is written here stands.
			deadline, draining = proxy.Spec.Drain.Deadline.Time, true
		}
		switch {
		case !draining:
			if proxy.DeletionTimestamp == nil {
				kept++
			}
		case proxy.DeletionTimestamp != nil:
		case !deadline.After(now):
			p.remove = append(p.remove, proxy)
		default:
			if p.next.IsZero() || deadline.Before(p.next) {
				p.next = deadline
			}
		}
		if draining && proxy.DeletionTimestamp == nil && (proxy.Spec.Drain == nil || !proxy.Spec.Drain.Deadline.Time.Equal(deadline)) {
			p.drain = append(p.drain, marked{proxy: proxy, deadline: deadline})
		}
	}
	wanted := int(set.Spec.Replicas)
	p.surplus = max(0, kept-wanted)
	for ordinal := 0; kept+len(p.create) < wanted; ordinal++ {
		if name := proxyName(set.Name, ordinal); !taken[name] {
			p.create = append(p.create, name)
		}
	}
	return p
}

// proxyName is the name of a set's proxy.
func proxyName(set string, ordinal int) string { return fmt.Sprintf("%s-%d", set, ordinal) }

// byOrdinal puts set-2 before set-10.
func byOrdinal(a, b *v1alpha1.Proxy) int {
	return cmp.Or(cmp.Compare(ordinalOf(a.Name), ordinalOf(b.Name)), cmp.Compare(a.Name, b.Name))
}

func ordinalOf(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}
