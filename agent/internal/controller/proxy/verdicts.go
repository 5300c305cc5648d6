package proxy

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Verdicts asks for a pass over a Proxy whose verdict has changed. It is a source of the controller, and is safe for
// concurrent use; a verdict that comes before the controller has started is kept.
type Verdicts struct {
	mu      sync.Mutex
	queue   workqueue.TypedRateLimitingInterface[mcreconcile.Request]
	waiting map[mcreconcile.Request]struct{}
}

// NewVerdicts makes a source without verdicts.
func NewVerdicts() *Verdicts { return &Verdicts{waiting: map[mcreconcile.Request]struct{}{}} }

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

// Changed asks for a pass over the Proxy of that name, in the home cluster.
func (v *Verdicts) Changed(proxy types.NamespacedName) {
	request := mcreconcile.Request{Request: reconcile.Request{NamespacedName: proxy}}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.queue == nil {
		v.waiting[request] = struct{}{}
		return
	}
	v.queue.Add(request)
}
