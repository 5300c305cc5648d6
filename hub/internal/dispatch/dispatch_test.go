package dispatch

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func item(uid string, generation int64) Item {
	return Item{UID: uid, Generation: generation, Hash: uid + "-hash", Spec: []byte("{}")}
}

func desired(d *Dispatcher, member string) (uids, tombstones []string, ready bool) {
	items, tombstones, ready := d.Desired(member)
	for _, i := range items {
		uids = append(uids, i.UID)
	}
	return uids, tombstones, ready
}

func signalled(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestWatchSignalsWhatChanges(t *testing.T) {
	d := New()
	d.Set("east", item("a", 1))
	watch, cancel := d.Watch("east")
	if !signalled(watch) {
		t.Fatal("a new watch must say: look")
	}
	steps := []struct {
		name string
		do   func()
		want bool
	}{
		{"nothing", func() {}, false},
		{"the same again", func() { d.Set("east", item("a", 1)) }, false},
		{"another member", func() { d.Set("west", item("b", 1)) }, false},
		{"a new generation", func() { d.Set("east", item("a", 2)) }, true},
		{"two changes are one signal", func() { d.Set("east", item("c", 1)); d.Set("east", item("c", 2)) }, true},
		{"and no more", func() {}, false},
		{"an ack", func() { d.Acked("east", "a", 2, "a-hash", "") }, false},
		{"a removal", func() { d.Remove("east", "a") }, true},
		{"the same removal", func() { d.Remove("east", "a") }, false},
		{"readiness", d.MarkReady, true},
		{"readiness again", d.MarkReady, false},
		{"after the end", func() { cancel(); d.Set("east", item("z", 1)) }, false},
	}
	for _, step := range steps {
		step.do()
		if have := signalled(watch); have != step.want {
			t.Fatalf("%s: signalled %v, want %v", step.name, have, step.want)
		}
	}
}

func TestTombstones(t *testing.T) {
	d := New()
	d.Set("east", item("a", 1))
	d.Acked("east", "a", 1, "a-hash", "")
	d.Remove("east", "a")
	d.Remove("east", "never-set") // a member may have what this hub never knew
	d.Set("east", item("a", 2))   // too late: a UID does not come back
	uids, tombstones, _ := desired(d, "east")
	if len(uids) != 0 || cmp.Diff([]string{"a", "never-set"}, tombstones) != "" {
		t.Fatalf("desired %v, tombstones %v", uids, tombstones)
	}
	if _, ok := d.Ack("east", "a"); ok || d.Gone("east", "a") {
		t.Fatal("what is removed is neither acked nor gone yet")
	}
	d.TombstoneAcked("east", "a")
	d.Forget("east", "never-set")
	if _, tombstones, _ = desired(d, "east"); !d.Gone("east", "a") || cmp.Diff([]string{"never-set"}, tombstones) != "" {
		t.Fatalf("gone %v, tombstones %v", d.Gone("east", "a"), tombstones)
	}
	d.Forget("east", "a")
	d.TombstoneAcked("east", "never-set")
	if len(d.members) != 0 {
		t.Errorf("something is kept for nobody: %+v", d.members)
	}
}

func TestAcksBecomeEvents(t *testing.T) {
	d := New()
	d.Set("east", item("a", 1))
	d.Acked("east", "unknown", 1, "x", "")
	d.Acked("nowhere", "a", 1, "x", "")
	if signalled(d.Events()) {
		t.Fatal("acks of what nobody wants are no events")
	}
	d.Acked("east", "a", 1, "a-hash", "no such provider")
	d.Acked("east", "a", 1, "a-hash", "no such provider")
	if !signalled(d.Events()) || signalled(d.Events()) {
		t.Fatal("want one signal")
	}
	if diff := cmp.Diff([]Ref{{"east", "a"}}, d.Changed()); diff != "" {
		t.Error(diff)
	}
	d.Acked("east", "a", 1, "a-hash", "no such provider")
	if signalled(d.Events()) || len(d.Changed()) != 0 {
		t.Error("an ack that says the same is no event")
	}
	ack, ok := d.Ack("east", "a")
	if diff := cmp.Diff(Ack{1, "a-hash", "no such provider"}, ack); diff != "" || !ok {
		t.Error(diff)
	}
}

// TestConverges runs random histories against a member that reads, loses and repeats: once it has read and acked all,
// it has what was last set, and nothing is kept that nobody needs.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := New()
		d.MarkReady()
		wanted, has := map[string]int64{}, map[string]int64{}
		removed := map[string]bool{}
		pull := func() {
			items, tombstones, _ := d.Desired("m")
			for _, i := range items {
				has[i.UID] = i.Generation
				d.Acked("m", i.UID, i.Generation, i.Hash, "")
			}
			for _, uid := range tombstones {
				delete(has, uid)
				d.TombstoneAcked("m", uid)
			}
		}
		uid := rapid.StringMatching("[a-d]")
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				u := uid.Draw(t, "uid")
				if removed[u] {
					return
				}
				wanted[u]++
				d.Set("m", item(u, wanted[u]))
			},
			"remove": func(t *rapid.T) {
				u := uid.Draw(t, "uid")
				d.Remove("m", u)
				delete(wanted, u)
				removed[u] = true
			},
			"pull": func(*rapid.T) { pull() },
		})
		pull()
		if diff := cmp.Diff(wanted, has); diff != "" {
			t.Fatal(diff)
		}
		for u := range removed {
			if !d.Gone("m", u) {
				t.Fatalf("%s is not gone", u)
			}
			d.Forget("m", u)
		}
		if m := d.members["m"]; m != nil && len(m.items)+len(m.acks)+len(m.removed) != 2*len(wanted) {
			t.Fatalf("kept: %+v", m)
		}
	})
}

// TestCredentials checks that an item's hash tells of credentials that come with it, and never what they are; and that
// printing them does not show them.
func TestCredentials(t *testing.T) {
	bare, err := NewItem("a", 1, map[string]int{"x": 1})
	if err != nil {
		t.Fatal(err)
	}
	one := bare.With([]Credentials{{"k1", "fish", "hush"}, {"k2", "crab", "shush"}})
	if again := bare.With([]Credentials{{"k2", "crab", "other"}, {"k1", "fish", "words"}}); again.Hash != one.Hash {
		t.Error("the hash speaks of more than the keys, or of their order")
	}
	if other := bare.With([]Credentials{{"k3", "fish", "hush"}}); other.Hash == one.Hash || other.Hash == bare.Hash || one.Hash == bare.Hash {
		t.Error("other keys, the same hash")
	}
	if bare.With(nil).Hash != bare.Hash || len(bare.Credentials) != 0 {
		t.Error("an item changed")
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("sent", "credentials", one.Credentials[0], "item", one)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v %s", one, one, one.Credentials, one.Credentials[0]), log.String()} {
		if strings.Contains(text, "hush") || strings.Contains(text, "fish") {
			t.Errorf("printed: %s", text)
		}
	}
}

func TestCanonical(t *testing.T) {
	type part struct {
		B int64          `json:"b"`
		A map[string]int `json:"a"`
	}
	text, err := Canonical(part{B: 1<<62 + 1, A: map[string]int{"y": 1, "x": 2}})
	if err != nil || string(text) != `{"a":{"x":2,"y":1},"b":4611686018427387905}` {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := NewItem("a", 1, func() {}); err == nil || !strings.Contains(err.Error(), "func()") {
		t.Errorf("want an error that names the type, got %v", err)
	}
}
