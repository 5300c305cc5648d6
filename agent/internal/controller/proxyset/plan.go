package proxyset

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// createMost bounds how many proxies one pass makes of one set: a hub that asks for two billion must not keep the others
// waiting, nor have as many names made up.
const createMost = 200

const (
	// createPause is between two passes that make proxies of one set.
	createPause = time.Second
	// recheck is how soon it is looked again whether the ceiling has room: others may have gone.
	recheck = time.Minute
)

// plan is what one pass does to a set's proxies. It never picks a victim: what goes is what the hub lists in drain.
type plan struct {
	// create are the names of proxies to make.
	create []string
	// drain are the proxies to mark, with their deadline.
	drain []marked
	// remove are the proxies whose deadline has passed, and those whose instance was taken back and is gone.
	remove []*v1alpha1.Proxy
	// update are proxies of someone else's whose endpoint or health check is written differently now.
	update []change
	// next is when the next deadline passes; zero for none.
	next time.Time
	// missing is how many more proxies are wanted than there are, refused how many of them the owner's ceiling has no room
	// for, and refusal says so.
	missing, refused int
	refusal          string
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
		case !draining && isPreempted(proxy):
			// Its provider has decided, not the hub: it counts as gone, and makes room for another at once.
			if proxy.DeletionTimestamp == nil && isEmpty(proxy) {
				p.remove = append(p.remove, proxy)
			}
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
	if set.Spec.External != nil {
		p.decideExternal(set, proxies, taken)
		return p
	}
	wanted := int(set.Spec.Replicas)
	p.surplus, p.missing = max(0, kept-wanted), max(0, wanted-kept)
	for ordinal := 0; len(p.create) < min(p.missing, createMost); ordinal++ {
		if name := proxyName(set.Name, ordinal); !taken[name] {
			p.create = append(p.create, name)
		}
	}
	return p
}

// limit keeps a plan within the room that the owner's ceiling leaves a member that has some proxies.
func (p *plan) limit(policy ceiling.Policy, have int) {
	room := policy.Room(have)
	p.create = p.create[:min(len(p.create), room)]
	if p.refused = max(0, p.missing-room); p.refused > 0 {
		v := policy.Full(p.refused)
		p.refusal = fmt.Sprintf("%s: %s", v.Rule, v.Message)
	}
}

// again is when the next pass is due that no event asks for; 0 for none.
func (p *plan) again(now time.Time) time.Duration {
	var after time.Duration
	soonest := func(d time.Duration) {
		if after == 0 || d < after {
			after = d
		}
	}
	if !p.next.IsZero() {
		soonest(max(p.next.Sub(now), time.Millisecond))
	}
	if p.refused > 0 {
		soonest(recheck)
	}
	if len(p.create) < p.missing-p.refused {
		soonest(createPause)
	}
	return after
}

// isPreempted says whether the provider takes the proxy's instance back.
func isPreempted(proxy *v1alpha1.Proxy) bool {
	c := meta.FindStatusCondition(proxy.Status.Conditions, v1alpha1.ConditionDraining)
	return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonPreempted
}

// isEmpty says whether nothing is left of the proxy's instance.
func isEmpty(proxy *v1alpha1.Proxy) bool {
	return proxy.Status.Attempt == nil || proxy.Status.Attempt.State == v1alpha1.AttemptEnded
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
