package hub

import (
	"context"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// A hub that stands by does all that does not need the office: its caches follow the API server, its listeners are open,
// and whoever calls is told to come back. So what is left to do after an election is to read the journal.

// startedCache is a cache that runs before the manager which uses it does.
type startedCache struct{ cache.Cache }

// Start waits, as the cache runs already.
func (startedCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// warm starts the caches, and asks for all that a hub reads: asked for by the first call, it would make that call wait.
func (h *hub) warm(ctx context.Context) error {
	h.stages.start(ctx, "caches", h.cache.Start)
	for _, kind := range []client.Object{&corev1.Secret{}, &v1alpha1.ProxyFleet{}, &v1alpha1.ProxyPlacement{}, &v1alpha1.MemberCluster{}} {
		if _, err := h.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return err
		}
	}
	return h.awaitCaches(ctx)
}

// awaitCaches waits until the caches hold what was asked for.
func (h *hub) awaitCaches(ctx context.Context) error {
	synced := make(chan struct{})
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		if h.cache.WaitForCacheSync(waiting) {
			close(synced)
		}
	}()
	return h.stages.await(ctx, synced)
}

// elsewhere serves the handler, and ends the connection while another hub may be at work: whoever comes back is to be led
// to that one.
func (h *hub) elsewhere(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.ready.Load() {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
}

// gate is a handler that comes later.
type gate struct{ behind atomic.Pointer[service] }

type service struct {
	handler  http.Handler
	shutdown func(context.Context) error
}

// open lets callers in.
func (g *gate) open(handler http.Handler, shutdown func(context.Context) error) {
	g.behind.Store(&service{handler, shutdown})
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s := g.behind.Load(); s != nil {
		s.handler.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Connection", "close")
	w.Header().Set("Retry-After", "1")
	http.Error(w, "this hub stands by or is starting; come back", http.StatusServiceUnavailable)
}

func (g *gate) shutdown(ctx context.Context) error {
	if s := g.behind.Load(); s != nil {
		return s.shutdown(ctx)
	}
	return nil
}
