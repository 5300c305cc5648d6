package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
)

// maxMessage bounds a message of the hub; the greatest is a spec.
const maxMessage = 8 << 20

// Dialer makes clients that each have a connection of their own, so that an attempt never inherits one that is dead
// without knowing it. Its Dial is for [Options.Dial]; it is not safe for concurrent use.
type Dialer struct {
	url  string
	tls  func() *tls.Config
	last *http.Transport
}

// NewDialer returns a dialer for the hub at an https URL. tls is asked for each connection. It is an error if the URL
// is not one to dial.
func NewDialer(hubURL string, tls func() *tls.Config) (*Dialer, error) {
	u, err := url.Parse(hubURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("hub URL: %w", err)
	case u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("hub URL %q: write https://HOST:PORT", hubURL)
	case tls == nil:
		return nil, errors.New("uplink: NewDialer needs a TLS configuration")
	}
	return &Dialer{url: hubURL, tls: tls}, nil
}

// Dial returns a client. It does not connect: the first call does. The connection of the client before is closed as
// soon as nothing uses it.
func (d *Dialer) Dial(context.Context) (agentv1connect.AgentServiceClient, error) {
	if d.last != nil {
		d.last.CloseIdleConnections()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	d.last = &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:     d.tls(),
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     time.Minute,
		Protocols:           protocols,
		// A connection over which nothing comes and whose other end does not answer a ping is closed. The session's
		// heartbeats prove more: that the hub itself is alive, and not only what stands before it.
		HTTP2: &http.HTTP2Config{
			SendPingTimeout:  10 * time.Second,
			PingTimeout:      10 * time.Second,
			WriteByteTimeout: 30 * time.Second,
		},
	}
	transport := connecthttp.NewTransport(&http.Client{Transport: d.last}, d.url, connecthttp.WithReadMaxBytes(maxMessage))
	return agentv1connect.NewAgentServiceClient(connect.NewClient(transport)), nil
}
