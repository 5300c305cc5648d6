// Package echo tells a caller from which address it comes. Agents probe their proxies against it: what it answers is
// the proxy's exit, so it believes nothing but the connection, and whoever exposes it must keep the source address.
package echo

import (
	"crypto/tls"
	"net/http"
	"net/netip"
	"time"
)

// Handler answers GET / with {"remote":"203.0.113.9"}, the peer's address, and everything else with 404 or 405. It
// reads no header and no body, logs nothing, and is safe for concurrent use.
func Handler() http.Handler { return http.HandlerFunc(serve) }

// NewServer returns a server for [Handler], to be started with ServeTLS(listener, "", ""). It speaks HTTP/1.1 with
// keep-alive only: probes are single requests, and one protocol is less to go wrong on the way through a proxy.
func NewServer(config *tls.Config) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           Handler(),
		TLSConfig:         config,
		Protocols:         protocols,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      10 * time.Second,
		// Longer than the usual pause between two probes, so that they can keep their connection.
		IdleTimeout:    90 * time.Second,
		MaxHeaderBytes: 8 << 10,
	}
}

func serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/" {
		http.Error(w, "not found; GET / answers with your address", http.StatusNotFound)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "method not allowed; GET / answers with your address", http.StatusMethodNotAllowed)
		return
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		// Only a listener that is not TCP has such peers.
		http.Error(w, "the peer has no IP address", http.StatusInternalServerError)
		return
	}
	// A dual-stack listener shows IPv4 peers as IPv6; targets see IPv4. A zone means nothing to anybody else.
	remote := peer.Addr().Unmap().WithZone("").String()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	// An address has no character that JSON would escape. A failed write is the peer's loss.
	_, _ = w.Write([]byte(`{"remote":"` + remote + `"}` + "\n"))
}
