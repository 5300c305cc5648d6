package gcp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// attributes is a metadata server: it holds a request until its item is another than the caller has.
type attributes struct {
	mu      sync.Mutex
	items   map[string]string
	changed chan struct{}
	asked   []*http.Request
}

func (a *attributes) set(key, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if value == "" {
		delete(a.items, key)
	} else {
		a.items[key] = value
	}
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *attributes) look(key string) (value string, ok bool, changed chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	value, ok = a.items[key]
	return value, ok, a.changed
}

// ServeHTTP answers as Google's does, with an etag of each value.
func (a *attributes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	a.asked = append(a.asked, r)
	a.mu.Unlock()
	key := filepath.Base(r.URL.Path)
	for {
		value, ok, changed := a.look(key)
		etag := fmt.Sprintf("%x", value)
		switch {
		case r.Header.Get("Metadata-Flavor") != "Google":
			w.WriteHeader(http.StatusForbidden)
			return
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			return
		case r.URL.Query().Get("last_etag") != etag:
			w.Header()["ETag"] = []string{etag}
			fmt.Fprint(w, value)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// The script that machines run, against a metadata server.
func TestKeysFollowTheMetadata(t *testing.T) {
	for _, tool := range []string{"sh", "curl", "cmp"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("there is no %s here", tool)
		}
	}
	server := &attributes{items: map[string]string{}, changed: make(chan struct{})}
	server.set("shoal-keys-hub", `{"keys":["one"]}`)
	h := httptest.NewServer(server)
	defer h.Close()
	dir := t.TempDir()
	keys := filepath.Join(dir, "keys")
	if err := os.Mkdir(keys, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(keys, "hub.json")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	script := exec.CommandContext(ctx, "sh", "recipe/watch-keys.sh", "shoal-keys-hub", file)
	script.Env = append(os.Environ(), "SHOAL_METADATA="+h.URL)
	if err := script.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		script.Process.Kill()
		h.CloseClientConnections()
		script.Wait()
	}()
	holds := func(want string) {
		t.Helper()
		for {
			got, err := os.ReadFile(file)
			if err == nil && string(got) == want {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("the file holds %q (%v), want %q", got, err, want)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	holds(`{"keys":["one"]}`)
	server.set("shoal-keys-hub", `{"keys":["two"]}`)
	holds(`{"keys":["two"]}`)
	if entries, err := os.ReadDir(keys); err != nil || len(entries) != 1 {
		t.Errorf("the proxy sees %v, %v; want the file alone", entries, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v; the proxy could not read it", info.Mode(), err)
	}
	// An item that is gone leaves the last keys, and the script waits for it.
	server.set("shoal-keys-hub", "")
	server.mu.Lock()
	asked := len(server.asked)
	server.mu.Unlock()
	if asked > 5 {
		t.Errorf("%d requests for two values: it asks without a pause", asked)
	}
	holds(`{"keys":["two"]}`)
}
