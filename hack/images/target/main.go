// Command shoal-target is a web server that answers with what it saw of each request: what a proxy's target sees. Tests
// and demos run it beside the clusters, where the address it sees is a proxy's exit.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Set by the linker.
var version, commit = "dev", "unknown"

func main() {
	plain := flag.String("http", ":80", "address for HTTP")
	secure := flag.String("https", ":443", "address for HTTPS, with a certificate made at start")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.Printf("shoal-target %s (%s) on %s and %s", version, commit, *plain, *secure)
	if err := serve(ctx, *plain, *secure); err != nil {
		log.Fatal(err)
	}
}

// seen is the answer: one JSON object.
type seen struct {
	// RemoteIP is the client's address, a proxy's exit.
	RemoteIP   string      `json:"remoteIP"`
	RemotePort string      `json:"remotePort"`
	Method     string      `json:"method"`
	Host       string      `json:"host"`
	Path       string      `json:"path"`
	Proto      string      `json:"proto"`
	TLS        bool        `json:"tls"`
	Header     http.Header `json:"header"`
}

func answer(w http.ResponseWriter, r *http.Request) {
	s := seen{Method: r.Method, Host: r.Host, Path: r.URL.RequestURI(), Proto: r.Proto, TLS: r.TLS != nil, Header: r.Header}
	s.RemoteIP, s.RemotePort, _ = net.SplitHostPort(r.RemoteAddr)
	log.Printf("%s %s %s from %s", r.Method, r.Host, r.URL.RequestURI(), s.RemoteIP)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(s) // the client has gone
}

func serve(ctx context.Context, plain, secure string) error {
	certificate, err := selfSigned()
	if err != nil {
		return err
	}
	newServer := func(address string) *http.Server {
		return &http.Server{Addr: address, Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second}
	}
	servers := []*http.Server{newServer(plain), newServer(secure)}
	servers[1].TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	ended := make(chan error, len(servers))
	go func() { ended <- servers[0].ListenAndServe() }()
	go func() { ended <- servers[1].ListenAndServeTLS("", "") }()
	select {
	case err = <-ended:
	case <-ctx.Done():
	}
	for _, server := range servers {
		_ = server.Close()
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// selfSigned makes a certificate that clients of a test target do not check.
func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: "shoal-target"},
		DNSNames:     []string{"shoal-target", "localhost"},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
