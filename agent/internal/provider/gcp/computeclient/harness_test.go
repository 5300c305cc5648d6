package computeclient_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

const (
	project = "crawl-project"
	zone    = "europe-west1-b"
)

// api answers by hand, so that a test can send what the fake, being right, never does.
type api struct {
	*httptest.Server
	mu   sync.Mutex
	seen []*http.Request
}

func serve(t *testing.T, answer http.HandlerFunc) *api {
	t.Helper()
	a := &api{}
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, r)
		a.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// requests are those that have arrived.
func (a *api) requests() []*http.Request {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*http.Request(nil), a.seen...)
}

func (a *api) client(t *testing.T, change ...func(*computeclient.Options)) *computeclient.Client {
	t.Helper()
	o := computeclient.Options{Project: project, Endpoint: a.URL, UserAgent: "shoal-agent/test"}
	for _, c := range change {
		c(&o)
	}
	client, err := computeclient.New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

// always answers the same.
func always(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, status, body) }
}

func failure(status int, reason string) string {
	return fmt.Sprintf(`{"error":{"code":%d,"message":"it failed","errors":[{"message":"it failed","domain":"global","reason":%q}]}}`, status, reason)
}

// log collects lines at the highest level.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) take(verbosity int) func(*computeclient.Options) {
	return func(o *computeclient.Options) {
		o.Logger = funcr.New(func(prefix, args string) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.lines = append(l.lines, prefix+" "+args)
		}, funcr.Options{Verbosity: verbosity})
	}
}

func (l *log) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

func timeout(d time.Duration) func(*computeclient.Options) {
	return func(o *computeclient.Options) { o.Timeout = d }
}
