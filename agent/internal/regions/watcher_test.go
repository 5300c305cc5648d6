package regions

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/settings"
)

// roster takes note of members.
type roster struct {
	mu  sync.Mutex
	all []string
}

func (r *roster) Set(name string, c engage.Candidate) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, "set "+name)
	if c.Source == "" {
		r.all = append(r.all, "without a source")
	}
	return nil
}

func (r *roster) Remove(name, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, "remove "+name)
}

func (r *roster) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

func TestFileIsFollowed(t *testing.T) {
	s, err := settings.Read([]byte(`
hub: {url: "https://198.51.100.7:8443", caPin: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
providers: [{name: machines, type: gcp, gcp: {project: my-project, proxyImage: x}}]
probe: {targets: ["198.51.100.7:443"]}
`))
	if err != nil {
		t.Fatal(err)
	}
	a := "- {member: a, region: us-east1, zones: [us-east1-b], clusterCIDRs: [10.0.0.0/8]}\n"
	b := "- {member: b, region: us-west1, zones: [us-west1-b], clusterCIDRs: [10.0.0.0/8]}\n"
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var text string
		var fail error
		put := func(next string, err error) {
			mu.Lock()
			text, fail = next, err
			mu.Unlock()
			time.Sleep(2 * lookEvery)
			synctest.Wait()
		}
		members, log := &roster{}, &strings.Builder{}
		w, err := New(Options{
			File: "regions.yaml", Settings: s, Members: members, Clock: clock.RealClock{}, Logger: slog.New(slog.NewTextHandler(log, nil)),
			Candidate: func(settings.Region) engage.Candidate { return engage.Candidate{} },
			Read: func(string) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				return []byte(text), fail
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		text = "- {member: x}"
		if _, err := w.Load(); err == nil || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("a bad file at the start: %v", err)
		}
		text = a
		if found, err := w.Load(); err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		go func() { _ = w.Run(t.Context()) }()
		for _, step := range []struct {
			what string
			text string
			err  error
			want []string
		}{
			{"nothing has changed", a, nil, []string{"set a"}},
			{"only the order, and a comment", "# new\n" + a, nil, nil},
			{"one more", b + a, nil, []string{"set b"}},
			{"one changes", b + strings.Replace(a, "10.0.0.0/8", "10.1.0.0/16", 1), nil, []string{"set a"}},
			{"a bad version", b + "- {member: b}\n", nil, nil},
			{"the file cannot be read", "", errors.New("gone"), nil},
			{"a good one, without the first", b, nil, []string{"remove a"}},
			{"an empty one", "", nil, []string{"remove b"}},
		} {
			put(step.text, step.err)
			if diff := cmp.Diff(step.want, members.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", step.what, diff)
			}
			if wrong := w.Err() != nil; wrong != (step.err != nil || strings.Contains(step.what, "bad")) {
				t.Errorf("%s: Err() = %v", step.what, w.Err())
			}
		}
		// Each bad version is told once, though it was looked at twice.
		if n := strings.Count(log.String(), "cannot be used"); n != 2 {
			t.Errorf("%d lines of bad versions, want 2:\n%s", n, log)
		}
	})
}
