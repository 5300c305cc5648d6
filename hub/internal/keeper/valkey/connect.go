package valkey

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
)

// connect opens a TCP connection, with TLS if that is wanted, or a socket if the address is a path.
func connect(ctx context.Context, server Server, address string, dialer *net.Dialer) (net.Conn, error) {
	switch {
	case strings.HasPrefix(address, "/"):
		return dialer.DialContext(ctx, "unix", address)
	case server.TLS != nil:
		return (&tls.Dialer{NetDialer: dialer, Config: server.TLS}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}
