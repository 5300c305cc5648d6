package agentapi

import (
	"context"
	"net/http"
	"time"
)

// ConfigureServer sets what sessions need of an HTTP server, and leaves addresses, handler and TLS certificates alone.
//
// A session is one request that lasts for most of an hour, so there must be no ReadTimeout and no WriteTimeout: they
// bound the whole request. A connection over which nothing comes, and whose other end does not answer a ping, is closed
// after some 20 s; the heartbeats of the session, which prove more than a live connection, take no longer than 15 s.
func ConfigureServer(server *http.Server) {
	server.ReadTimeout, server.WriteTimeout = 0, 0
	server.ReadHeaderTimeout = 10 * time.Second
	server.IdleTimeout = 2 * time.Minute
	server.MaxHeaderBytes = 16 << 10
	// Register and Renew work over HTTP/1.1 as well, a session does not.
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	server.HTTP2 = &http.HTTP2Config{
		SendPingTimeout:      10 * time.Second,
		PingTimeout:          10 * time.Second,
		WriteByteTimeout:     30 * time.Second,
		MaxConcurrentStreams: 32,
	}
}

// control can end the writes of a call from outside. Its reads end when the handler returns. (A read deadline would end
// them earlier, but has net/http reset the stream when more arrives, so that the peer does not learn why the session
// has ended.)
type control struct{ *http.ResponseController }

type controlKey struct{}

// withControl lets handlers find the control of their call.
func withControl(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := control{http.NewResponseController(w)}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), controlKey{}, c)))
	})
}

// controlOf returns the control of a call; false if it did not come by HTTP.
func controlOf(ctx context.Context) (control, bool) {
	c, ok := ctx.Value(controlKey{}).(control)
	return c, ok
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// abort makes writes of the response return by resetting the stream: the peer will not learn why.
func (c control) abort() { _ = c.SetWriteDeadline(past) }
