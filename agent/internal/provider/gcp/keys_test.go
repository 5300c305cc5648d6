package gcp_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
)

func (w *world) sync() error { return w.SyncKeys(w.t.Context(), identity("")) }

func TestKeysAreKeptCurrent(t *testing.T) {
	w := newWorld(t)
	w.running(request("a"))
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	if n := w.calls("instances.setMetadata"); n != 0 {
		t.Errorf("%d writes, though nothing has changed", n)
	}
	before := w.only().Metadata.Items
	w.keys.Hub = `{"keys":["next"],"denials":["x"]}`
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(time.Minute)
	after := w.only()
	if got := item(after, "shoal-keys-hub"); got != w.keys.Hub {
		t.Errorf("the hub's keys are %s, want %s", got, w.keys.Hub)
	}
	for _, m := range before {
		if m.Key != "shoal-keys-hub" && item(after, m.Key) != m.Value {
			t.Errorf("%s has changed", m.Key)
		}
	}
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	if n := w.calls("instances.setMetadata"); n != 1 {
		t.Errorf("%d writes for one change", n)
	}
}

// An empty document would let nobody in.
func TestKeysThatAreNotKnownAreLeft(t *testing.T) {
	w := newWorld(t)
	w.running(request("a"))
	w.keys = gcp.Keys{}
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	if item(w.only(), "shoal-keys-hub") == "" || w.calls("instances.setMetadata") != 0 {
		t.Error("keys that are not known were written")
	}
}

// Somebody else's change, between our look and our write, is not lost.
func TestKeysWaitForOthersChanges(t *testing.T) {
	w := newWorld(t)
	ref := w.running(request("a"))
	w.keys.Agent = `{"keys":["next"]}`
	w.fake.Inject(computefake.Fault{Method: "instances.setMetadata", Times: 1, Status: 412, Reason: "conditionNotMet"})
	w.wantKind("SyncKeys", w.sync(), provider.KindUnavailable)

	racing := rig(w, func(c *deafCompute) {
		c.beforeSetMetadata = func() {
			i, err := w.client.GetInstance(t.Context(), zoneB, ref.Name)
			if err != nil {
				t.Fatal(err)
			}
			all := append(slices.Clone(i.Metadata), metadataItem("ssh-keys", "somebody"))
			if _, err := w.client.SetMetadata(t.Context(), zoneB, ref.Name, i.MetadataFingerprint, all); err != nil {
				t.Fatal(err)
			}
			w.clock.Step(time.Minute)
		}
	})
	w.wantKind("SyncKeys", racing.SyncKeys(t.Context(), identity("")), provider.KindUnavailable)
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(time.Minute)
	i := w.only()
	if item(i, "ssh-keys") != "somebody" || item(i, "shoal-keys-agent") != w.keys.Agent {
		t.Errorf("metadata = %+v, want both changes", i.Metadata.Items)
	}
}

func TestKeysGoToOursThatStayOnly(t *testing.T) {
	w := newWorld(t)
	r := request("b")
	r.RequestID = requestID(2)
	going, ours := w.running(request("a")), w.running(r)
	w.foreign(zoneB, "stranger", map[string]string{"shoal-managed-by": "shoal-agent", "shoal-hub-uid": "other"})
	w.fake.SetStatus(project, zoneB, going.Name, "STOPPING")
	w.keys.Hub = "next"
	if err := w.sync(); err != nil {
		t.Fatal(err)
	}
	for _, c := range w.fake.Calls() {
		if c.Method == "instances.setMetadata" && c.Resource != ours.Name {
			t.Errorf("%s was written to", c.Resource)
		}
	}
	if n := w.calls("instances.setMetadata"); n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}

func TestKeysStopAtARateLimit(t *testing.T) {
	w := newWorld(t)
	for n, uid := range []string{"a", "b", "c"} {
		r := request(uid)
		r.RequestID = requestID(n + 1)
		w.running(r)
	}
	w.keys.Hub = "next"
	w.fake.RateLimit("instances.setMetadata", 0)
	w.wantKind("SyncKeys", w.sync(), provider.KindThrottled)
	if n := w.calls("instances.setMetadata"); n != 1 {
		t.Errorf("%d calls into a rate limit", n)
	}
}

func TestKeysInAnUnreachableZoneAreNotDone(t *testing.T) {
	w := newWorld(t)
	w.running(request("a"))
	w.fake.SetUnreachable(zoneB, true)
	w.keys.Hub = "next"
	if err := w.sync(); err == nil || !strings.Contains(err.Error(), zoneB) {
		t.Errorf("SyncKeys = %v, want that zone b was not reached", err)
	}
	broken := errors.New("no config map")
	p := rig(w, func(c *deafCompute) { c.keys = func(context.Context) (gcp.Keys, error) { return gcp.Keys{}, broken } })
	if err := p.SyncKeys(t.Context(), identity("")); !errors.Is(err, broken) {
		t.Errorf("SyncKeys without keys = %v", err)
	}
	if _, err := p.Create(t.Context(), request("b")); !errors.Is(err, broken) {
		t.Errorf("Create without keys = %v", err)
	}
}
