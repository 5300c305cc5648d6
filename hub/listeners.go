package hub

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// drainTime is how long a stopping listener waits for calls that are under way.
const drainTime = 8 * time.Second

// listeners are the hub's listeners, opened before anything else so that an address in use is known at once.
type listeners struct {
	agents, leases, echo, health net.Listener
}

func openListeners(c Config) (*listeners, error) {
	l := new(listeners)
	for _, one := range []struct {
		to     *net.Listener
		listen Listen
		flag   string
	}{
		{&l.agents, c.Agents, "agents-address"},
		{&l.leases, c.Leases, "leases-address"},
		{&l.echo, c.Echo, "echo-address"},
		{&l.health, c.Health, "health-address"},
	} {
		listener, err := one.listen.open(one.flag)
		if err != nil {
			return nil, errors.Join(err, l.close())
		}
		*one.to = listener
	}
	return l, nil
}

// close closes what is open. Closing twice is no error.
func (l *listeners) close() error {
	var errs []error
	for _, listener := range []net.Listener{l.agents, l.leases, l.echo, l.health} {
		if listener == nil {
			continue
		}
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// serve returns a stage that serves until its context ends, then calls before, if it is not nil, and lets the calls
// that are under way end.
func serve(server *http.Server, listener net.Listener, log *slog.Logger, before func(context.Context) error) func(context.Context) error {
	// Strangers who fail to shake hands are no news.
	server.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelDebug)
	return func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() {
			if server.TLSConfig != nil {
				ended <- server.ServeTLS(listener, "", "")
			} else {
				ended <- server.Serve(listener)
			}
		}()
		select {
		case err := <-ended:
			return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
		case <-ctx.Done():
		}
		drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
		defer cancel()
		if before != nil {
			if err := before(drain); err != nil {
				log.WarnContext(ctx, "sessions did not end in time", "address", listener.Addr().String(), "err", err)
			}
		}
		if err := server.Shutdown(drain); err != nil {
			log.WarnContext(ctx, "calls did not end in time", "address", listener.Addr().String(), "err", err)
			_ = server.Close()
		}
		<-ended
		return nil
	}
}

// healthHandler serves what the cluster asks: alive, ready, metrics.
func healthHandler(ready func() (bool, string), measured prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status := http.StatusServiceUnavailable
		is, note := ready()
		if is {
			status = http.StatusOK
		}
		answer(w, status, note)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(prometheus.Gatherers{metrics.Registry, measured}, promhttp.HandlerOpts{}))
	return mux
}

func answer(w http.ResponseWriter, status int, text string) {
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // Whoever asked has gone if this fails.
}

// ownCertificate serves the crawlers' listener with a certificate of the owner's, and runs a stage that follows the
// files.
func ownCertificate(certFile, keyFile string) (*tls.Config, func(context.Context) error, error) {
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("use --leases-cert-file %s and --leases-key-file %s: %w", certFile, keyFile, err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: watcher.GetCertificate}, watcher.Start, nil
}
