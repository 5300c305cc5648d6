package readme_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// withToken sends the crawler's token with every request to the hub.
type withToken struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+os.Getenv("SHOAL_TOKEN"))
	return t.next.RoundTrip(req)
}

// The README's crawler, with what it leaves out. It is compiled and not run: it needs a hub.
func Example() {
	ctx := context.Background()
	bundle, err := os.ReadFile(os.Getenv("SHOAL_CA"))
	if err != nil {
		panic(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(bundle)
	hub := &http.Client{Transport: withToken{next: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
	}}}

	leases := leasev1connect.NewLeaseServiceClient(connect.NewClient(connecthttp.NewTransport(hub, os.Getenv("SHOAL"))))
	granted, err := leases.Acquire(ctx, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"})
	if err != nil {
		panic(err)
	}
	proxy, err := url.Parse(granted.GetLeases()[0].GetProxyUrl())
	if err != nil {
		panic(err)
	}
	crawler := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	page, err := crawler.Get("https://example.com/")
	if err != nil {
		panic(err)
	}
	defer page.Body.Close()
	fmt.Println(page.Status)
}
