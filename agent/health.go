package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// health answers /healthz and /readyz for as long as the agent runs, also while its first start waits for the hub or for
// a person: an agent that waits is alive, and is not ready.
type health struct {
	server *http.Server
	ready  atomic.Pointer[func(context.Context) error]
}

// noAddress is what is written for a listener that is not wanted.
const noAddress = "0"

// serveHealth begins to answer. Until setReady is called, the answer is that the agent waits to be enrolled.
func serveHealth(address string) (*health, error) {
	h := &health{}
	h.setReady(func(context.Context) error { return errors.New("the agent waits for the hub to register it") })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := (*h.ready.Load())(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	h.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	if address == noAddress || address == "" {
		return h, nil
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--health-address: %w", err)
	}
	go func() { _ = h.server.Serve(listener) }()
	return h, nil
}

func (h *health) setReady(f func(context.Context) error) { h.ready.Store(&f) }

func (h *health) close() { _ = h.server.Close() }
