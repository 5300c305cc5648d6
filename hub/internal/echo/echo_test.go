package echo_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/hub/internal/echo"
)

func TestAnswers(t *testing.T) {
	tests := map[string]struct {
		reason string
		method string
		target string
		peer   string
		header http.Header
		status int
		remote string
	}{
		"IPv4":           {"the usual case", "GET", "/", "203.0.113.9:4711", nil, 200, "203.0.113.9"},
		"IPv6":           {"no brackets, no port", "GET", "/", "[2001:db8::9]:4711", nil, 200, "2001:db8::9"},
		"Mapped":         {"targets see IPv4", "GET", "/", "[::ffff:203.0.113.9]:4711", nil, 200, "203.0.113.9"},
		"Zone":           {"a zone is local to this host", "GET", "/", "[fe80::1%eth0]:4711", nil, 200, "fe80::1"},
		"Query":          {"a cache buster does no harm", "GET", "/?x=1", "203.0.113.9:1", nil, 200, "203.0.113.9"},
		"ForwardedFor":   {"anybody can write headers", "GET", "/", "203.0.113.9:1", http.Header{"X-Forwarded-For": {"198.51.100.1"}}, 200, "203.0.113.9"},
		"Forwarded":      {"anybody can write headers", "GET", "/", "203.0.113.9:1", http.Header{"Forwarded": {"for=198.51.100.1"}}, 200, "203.0.113.9"},
		"OtherPath":      {"there is nothing else", "GET", "/healthz", "203.0.113.9:1", nil, 404, ""},
		"Post":           {"there is nothing to write", "POST", "/", "203.0.113.9:1", nil, 405, ""},
		"Head":           {"an answer without its body is useless", "HEAD", "/", "203.0.113.9:1", nil, 405, ""},
		"PostElsewhere":  {"the path decides first", "POST", "/x", "203.0.113.9:1", nil, 404, ""},
		"WithoutAddress": {"a socket that is not TCP", "GET", "/", "@", nil, 500, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.target, nil)
			r.RemoteAddr = test.peer
			for key, values := range test.header {
				r.Header[key] = values
			}
			w := httptest.NewRecorder()
			echo.Handler().ServeHTTP(w, r)
			if w.Code != test.status {
				t.Fatalf("status = %d, want %d: %s", w.Code, test.status, test.reason)
			}
			if test.status == 405 && w.Header().Get("Allow") != "GET" {
				t.Errorf("Allow = %q, want GET", w.Header().Get("Allow"))
			}
			if test.remote == "" {
				return
			}
			var got map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatalf("%q: %v", w.Body, err)
			}
			if diff := cmp.Diff(map[string]string{"remote": test.remote}, got); diff != "" {
				t.Errorf("%s: %s", test.reason, diff)
			}
			if got := w.Header().Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type = %q", got)
			}
		})
	}
}

// TestOverTLS drives the real server: keep-alive must hold, because a probe that reconnects costs a handshake, and
// HTTP/2 must not be negotiated.
func TestOverTLS(t *testing.T) {
	borrowed := httptest.NewUnstartedServer(nil) // for its listener and certificate
	borrowed.StartTLS()
	config := &tls.Config{Certificates: borrowed.TLS.Certificates}
	client := borrowed.Client()
	borrowed.Close()

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := echo.NewServer(config)
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(listener, "", "") }()
	defer func() {
		_ = server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("ServeTLS: %v", err)
		}
	}()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true
	for i := range 3 {
		var reused bool
		trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { reused = info.Reused }}
		request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://"+listener.Addr().String()+"/", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if strings.TrimSpace(string(body)) != `{"remote":"127.0.0.1"}` || response.ProtoMajor != 1 {
			t.Errorf("got %s over %s", body, response.Proto)
		}
		if i > 0 && !reused {
			t.Errorf("request %d did not reuse the connection", i)
		}
	}
}
