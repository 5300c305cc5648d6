package harness

import (
	"context"
	"fmt"
	"net/http"
)

// Seen is what the target saw of a request, as it answers.
type Seen struct {
	RemoteIP string      `json:"remoteIP"`
	Method   string      `json:"method"`
	Host     string      `json:"host"`
	Path     string      `json:"path"`
	TLS      bool        `json:"tls"`
	Header   http.Header `json:"header"`
}

// Fetch fetches a page of the target through a proxy URL, exactly as given, and returns what the target saw. With
// https it goes through CONNECT, and the target's certificate is nobody's.
func (e *Env) Fetch(ctx context.Context, proxyURL, scheme, path string) (Seen, error) {
	reply, err := Curl(ctx, "--insecure", "--proxy", proxyURL, fmt.Sprintf("%s://%s%s", scheme, e.Target, path))
	if err != nil {
		return Seen{}, err
	}
	if reply.Status != http.StatusOK {
		return Seen{}, fmt.Errorf("GET %s://%s%s through the proxy: %s", scheme, e.Target, path, reply)
	}
	var seen Seen
	err = reply.JSON(&seen)
	return seen, err
}
