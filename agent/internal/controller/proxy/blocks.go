package proxy

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

const (
	// probeEvery is how often a request is let through in a scope that was blocked, while none of them has come to anything.
	probeEvery = 2 * time.Minute
	// proven is how many instances must run after a block for it to be over.
	proven = 6
)

// place is an entry of the provider file as one member offers it.
type place struct{ cluster, entry string }

// Block is what keeps requests of one scope waiting.
type Block struct {
	// Cluster is the name that the member is engaged under, and Entry the entry of the provider file.
	Cluster, Entry string
	// Scope is the provider's own word for what it holds for.
	Scope string
	// Reason is the condition's: QuotaExceeded, CapacityExhausted, Throttled.
	Reason string
	// Message is what the provider said.
	Message string
	// Until is when a request is let through again. From then on until the block is over it is in the past.
	Until time.Time
}

// blocks is what providers have refused, by what it holds for: a zone without room, a region without quota. Requests of
// one scope wait together and those of any other go on. When a block ends, one request is let through; each that comes
// to a running instance lets two more through, so that what became free is found without a herd.
//
// It is memory only: the setbacks in the Proxies' status bring it back after a restart.
type blocks struct {
	mu   sync.Mutex
	held map[place]map[string]*block
}

type block struct {
	Block
	// wait is the length of the last block.
	wait time.Duration
	// refused is when the last request was refused.
	refused time.Time
	// tokens are how many requests may be made now; granted is when the last one was let through.
	tokens  int
	granted time.Time
	// over says that the block has ended. It is kept so that no older setback brings it back.
	over bool
	// counted are the attempts that have come to a running instance since.
	counted map[string]bool
}

func newBlocks() *blocks { return &blocks{held: map[place]map[string]*block{}} }

// covers says whether a request in a zone is one of the scope. What names no zone holds for all of them.
func (b *block) covers(zone string) bool {
	only, ok := provider.ZoneOf(b.Scope)
	return !ok || only == zone
}

// standing gives a block that stands against a request in a zone, the one that ends last.
func (b *blocks) standing(now time.Time, p place, zone string) (worst Block, blocked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, have := range b.held[p] {
		if !have.over && have.covers(zone) && have.Until.After(now) && (!blocked || have.Until.After(worst.Until)) {
			worst, blocked = have.Block, true
		}
	}
	return worst, blocked
}

// ask takes a place among the requests that are let through in a zone, or gives the block that stands against it.
// Forced, it is let through whatever stands: somebody says that things have changed.
func (b *blocks) ask(now time.Time, p place, zone string, forced bool) (against Block, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var through []*block
	for _, have := range b.held[p] {
		switch {
		case have.over || !have.covers(zone):
		case forced:
			through = append(through, have)
		case have.Until.After(now):
			return have.Block, false
		case have.tokens == 0 && now.Sub(have.granted) < probeEvery:
			return have.Block, false
		default:
			through = append(through, have)
		}
	}
	for _, have := range through {
		have.tokens, have.granted = max(have.tokens-1, 0), now
	}
	return Block{}, true
}

// refuse blocks a scope, and gives until when. Requests that were under way together and are refused together count once;
// one that was let through to see and is refused makes the next block longer.
func (b *blocks) refuse(now time.Time, p place, scope, reason string, err error) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.held[p][scope]
	switch {
	case have == nil:
		have = &block{Block: Block{Cluster: p.cluster, Entry: p.entry, Scope: scope}, wait: paces[reason].first}
		if b.held[p] == nil {
			b.held[p] = map[string]*block{}
		}
		b.held[p][scope] = have
	case !have.over && have.Until.After(now) && have.Reason == reason:
		have.refused = now
		return have.Until
	case have.over || have.Reason != reason:
		have.wait = paces[reason].first
	default:
		have.wait = min(2*have.wait, paces[reason].most)
	}
	have.Reason, have.Message, have.over = reason, err.Error(), false
	have.refused, have.tokens, have.granted, have.counted = now, 0, time.Time{}, map[string]bool{}
	have.Until = now.Add(max(have.wait, provider.RetryAfter(err)))
	return have.Until
}

// restore brings back a block that a Proxy's status tells of, where nothing newer is known.
func (b *blocks) restore(now time.Time, p place, s *v1alpha1.Setback) {
	if s == nil || s.Scope == "" || !s.RetryAt.After(now) {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if have := b.held[p][s.Scope]; have != nil && !have.refused.Before(s.Time.Time) {
		return
	}
	if b.held[p] == nil {
		b.held[p] = map[string]*block{}
	}
	b.held[p][s.Scope] = &block{
		Block: Block{Cluster: p.cluster, Entry: p.entry, Scope: s.Scope, Reason: s.Reason, Message: s.Message, Until: s.RetryAt.Time},
		wait:  s.RetryAt.Sub(s.Time.Time), refused: s.Time.Time, counted: map[string]bool{},
	}
}

// worked notes that an attempt that was accepted at a time has come to something in a zone. It counts once, and only if it
// was accepted after the last refusal; for a provider that wanted fewer requests, one that it took is enough.
func (b *blocks) worked(p place, zone, attempt string, accepted time.Time, running bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, have := range b.held[p] {
		if have.over || !have.covers(zone) || accepted.Before(have.refused.Truncate(time.Second)) || have.counted[attempt] || (!running && have.Reason != v1alpha1.ReasonThrottled) {
			continue
		}
		have.counted[attempt] = true
		have.tokens += 2
		have.over = len(have.counted) >= proven || have.Reason == v1alpha1.ReasonThrottled
	}
}

// all gives the blocks, in a steady order.
func (b *blocks) all() []Block {
	b.mu.Lock()
	defer b.mu.Unlock()
	var found []Block
	for _, scopes := range b.held {
		for _, have := range scopes {
			if !have.over {
				found = append(found, have.Block)
			}
		}
	}
	slices.SortFunc(found, func(x, y Block) int {
		return cmp.Or(cmp.Compare(x.Cluster, y.Cluster), cmp.Compare(x.Entry, y.Entry), cmp.Compare(x.Scope, y.Scope))
	})
	return found
}

// Blocks gives what keeps requests waiting now, for metrics.
func (r *Reconciler) Blocks() []Block { return r.blocks.all() }
