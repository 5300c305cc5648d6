package proxy

import (
	"context"
	"sync"

	"k8s.io/client-go/util/workqueue"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

// Verdicts asks for a pass over a Proxy whose verdict has changed. It is a source of the controller, and is safe for
// concurrent use; a verdict that comes before the controller has started is kept.
type Verdicts struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	names   map[probe.UID]mcreconcile.Request
	waiting map[mcreconcile.Request]struct{}
}

// NewVerdicts makes a source without verdicts.
func NewVerdicts() *Verdicts {
	return &Verdicts{names: map[probe.UID]mcreconcile.Request{}, waiting: map[mcreconcile.Request]struct{}{}}
}

// Start begins to deliver. The controller calls it.
func (v *Verdicts) Start(_ context.Context, queue workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.queue = queue
	for request := range v.waiting {
		queue.Add(request)
	}
	clear(v.waiting)
	return nil
}

// Changed asks for a pass over the Proxy. One that is not probed any more is left alone.
func (v *Verdicts) Changed(uid probe.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	request, ok := v.names[uid]
	switch {
	case !ok:
	case v.queue == nil:
		v.waiting[request] = struct{}{}
	default:
		v.queue.Add(request)
	}
}

// track remembers which request a probed Proxy is.
func (v *Verdicts) track(uid probe.UID, request mcreconcile.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.names[uid] = request
}

func (v *Verdicts) forget(uid probe.UID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.names, uid)
}
