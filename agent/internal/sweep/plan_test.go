package sweep_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/sweep"
	"github.com/shoal-dev/shoal/agent/provider"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ours = provider.Identity{HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}
)

func instance(id, proxyUID string, change ...func(*provider.Instance)) provider.Instance {
	i := provider.Instance{Name: id, ProviderID: "p/" + id, State: provider.StateRunning, Identity: ours, CreatedAt: now.Add(-24 * time.Hour)}
	i.Identity.ProxyUID = proxyUID
	for _, f := range change {
		f(&i)
	}
	return i
}

func complete(instances ...provider.Instance) []sweep.Seen {
	return []sweep.Seen{{Entry: "e", Listing: provider.Listing{Instances: instances, Complete: true}}}
}

func owners(uids ...string) map[string]struct{} {
	m := map[string]struct{}{}
	for _, u := range uids {
		m[u] = struct{}{}
	}
	return m
}

func since(ago time.Duration, ids ...string) sweep.Memory {
	m := sweep.Memory{}
	for _, id := range ids {
		m["p/"+id] = sweep.Mark{Since: now.Add(-ago)}
	}
	return m
}

func deleted(p sweep.Plan) []string {
	var ids []string
	for _, o := range p.Delete {
		ids = append(ids, o.Instance.Name)
	}
	return ids
}

func TestDecide(t *testing.T) {
	identity := func(f func(*provider.Identity)) func(*provider.Instance) {
		return func(i *provider.Instance) { f(&i.Identity) }
	}
	for name, c := range map[string]struct {
		reason   string
		identity provider.Identity
		seen     []sweep.Seen
		owners   map[string]struct{}
		memory   sweep.Memory
		want     []string
		memoryOf []string
	}{
		"Due":        {"nobody owns it, and its grace is over", ours, complete(instance("a", "gone")), nil, since(sweep.Grace, "a"), []string{"a"}, []string{"p/a"}},
		"FirstSeen":  {"its owner may be on its way", ours, complete(instance("a", "gone")), nil, nil, nil, []string{"p/a"}},
		"InGrace":    {"a second too early", ours, complete(instance("a", "gone")), nil, since(sweep.Grace-time.Second, "a"), nil, []string{"p/a"}},
		"Owned":      {"a Proxy has it", ours, complete(instance("a", "uid")), owners("uid"), since(time.Hour, "a"), nil, nil},
		"Young":      {"a clock runs apart: it cannot be that young and seen for that long", ours, complete(instance("a", "gone", func(i *provider.Instance) { i.CreatedAt = now.Add(-time.Minute) })), nil, since(time.Hour, "a"), nil, []string{"p/a"}},
		"Ageless":    {"a provider that does not say the age", ours, complete(instance("a", "gone", func(i *provider.Instance) { i.CreatedAt = time.Time{} })), nil, since(time.Hour, "a"), []string{"a"}, []string{"p/a"}},
		"OtherHub":   {"two hubs in one project", ours, complete(instance("a", "gone", identity(func(i *provider.Identity) { i.HubUID = "hub2" }))), nil, since(time.Hour, "a"), nil, nil},
		"OtherAgent": {"two agents in one cluster", ours, complete(instance("a", "gone", identity(func(i *provider.Identity) { i.MemberUID = "member2" }))), nil, since(time.Hour, "a"), nil, nil},
		"OtherHome":  {"an agent of the same name elsewhere", ours, complete(instance("a", "gone", identity(func(i *provider.Identity) { i.HomeClusterUID = "home2" }))), nil, since(time.Hour, "a"), nil, nil},
		"NoHub":      {"a label was lost", ours, complete(instance("a", "gone", identity(func(i *provider.Identity) { i.HubUID = "" }))), nil, since(time.Hour, "a"), nil, nil},
		"NoProxy":    {"it never was a proxy's", ours, complete(instance("a", "")), nil, since(time.Hour, "a"), nil, nil},
		"NotKnown":   {"not registered yet", provider.Identity{HomeClusterUID: "home"}, complete(instance("a", "gone", identity(func(i *provider.Identity) { i.HubUID, i.MemberUID = "", "" }))), nil, since(time.Hour, "a"), nil, nil},
		"Incomplete": {"nothing is concluded, and nothing is forgotten", ours, []sweep.Seen{{Entry: "e", Listing: provider.Listing{Instances: []provider.Instance{instance("a", "gone")}}}}, nil, since(time.Hour, "a", "unseen"), nil, []string{"p/a", "p/unseen"}},
		"OneOfTwo": {
			"one entry does not answer: what the other has is swept", ours,
			append(complete(instance("a", "gone")), sweep.Seen{Entry: "f"}), nil, since(time.Hour, "a", "b"),
			[]string{"a"},
			[]string{"p/a", "p/b"},
		},
		"SeenTwice": {
			"two entries of one project see the same", ours,
			append(complete(instance("a", "gone")), complete(instance("a", "gone"))...), nil, since(time.Hour, "a"),
			[]string{"a"},
			[]string{"p/a"},
		},
		"Gone":     {"it is forgotten, and its name begins anew", ours, complete(), nil, since(time.Hour, "a"), nil, nil},
		"Stopping": {"it goes already: asking again only costs calls", ours, complete(instance("a", "gone", func(i *provider.Instance) { i.State = provider.StateStopping })), nil, since(time.Hour, "a"), nil, []string{"p/a"}},
		"Failed":   {"it costs a disk at least", ours, complete(instance("a", "gone", func(i *provider.Instance) { i.State = provider.StateFailed })), nil, since(time.Hour, "a"), []string{"a"}, []string{"p/a"}},
		"Unknown":  {"a status that nobody knows counts as existing", ours, complete(instance("a", "gone", func(i *provider.Instance) { i.State = provider.StateUnknown })), nil, since(time.Hour, "a"), []string{"a"}, []string{"p/a"}},
		"NoID":     {"what has no ID cannot be remembered", ours, complete(instance("a", "gone", func(i *provider.Instance) { i.ProviderID = "" })), nil, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := sweep.Decide(sweep.Input{Now: now, Identity: c.identity, Seen: c.seen, Owners: c.owners, Memory: c.memory})
			if diff := cmp.Diff(c.want, deleted(p)); diff != "" {
				t.Errorf("%s: deleted (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(owners(c.memoryOf...), keys(p.Memory)); diff != "" {
				t.Errorf("%s: remembered (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func keys(m sweep.Memory) map[string]struct{} {
	k := map[string]struct{}{}
	for id := range m {
		k[id] = struct{}{}
	}
	return k
}

// A namespace that was wiped makes orphans of everything: that is held for an hour, and then done in portions.
func TestMostAreHeld(t *testing.T) {
	many := func(orphans, owned int) ([]sweep.Seen, map[string]struct{}, sweep.Memory) {
		var all []provider.Instance
		memory := sweep.Memory{}
		for i := range orphans {
			all = append(all, instance(fmt.Sprintf("o%02d", i), "gone"))
			memory[all[i].ProviderID] = sweep.Mark{Since: now.Add(-sweep.Grace)}
		}
		for i := range owned {
			all = append(all, instance(fmt.Sprintf("w%02d", i), "uid"))
		}
		return complete(all...), owners("uid"), memory
	}
	for _, c := range []struct {
		reason         string
		orphans, owned int
		deleted, held  int
	}{
		{"a handful is never taken for the loss of all", sweep.Handful, 0, sweep.Handful, 0},
		{"more than that, and all of them", sweep.Handful + 1, 0, 0, sweep.Handful + 1},
		{"just over half", 7, 6, 0, 7},
		{"exactly half", 7, 7, 7, 0},
		{"many among more, in portions", 50, 60, sweep.Most, 0},
	} {
		seen, who, memory := many(c.orphans, c.owned)
		p := sweep.Decide(sweep.Input{Now: now, Identity: ours, Seen: seen, Owners: who, Memory: memory})
		if len(p.Delete) != c.deleted || p.Held != c.held || p.Orphans != c.orphans || p.Instances != c.orphans+c.owned {
			t.Errorf("%s: deletes %d and holds %d of %d among %d, want %d and %d", c.reason, len(p.Delete), p.Held, p.Orphans, p.Instances, c.deleted, c.held)
		}
		later := now.Add(sweep.HeldGrace - sweep.Grace)
		p = sweep.Decide(sweep.Input{Now: later, Identity: ours, Seen: seen, Owners: who, Memory: memory})
		if want := min(c.orphans, sweep.Most); len(p.Delete) != want || p.Held != 0 {
			t.Errorf("%s: after an hour it deletes %d, want %d", c.reason, len(p.Delete), want)
		}
	}
}

func TestWhatCannotBeDeletedKeepsNothingWaiting(t *testing.T) {
	var all []provider.Instance
	memory := sweep.Memory{}
	for i := range 2 * sweep.Most {
		all = append(all, instance(fmt.Sprintf("o%02d", i), "gone"))
		mark := sweep.Mark{Since: now.Add(-2 * time.Hour)}
		if i < sweep.Most {
			mark = sweep.Mark{Since: now.Add(-3 * time.Hour), Tried: now.Add(-time.Minute)}
		}
		memory[all[i].ProviderID] = mark
	}
	p := sweep.Decide(sweep.Input{Now: now, Identity: ours, Seen: complete(all...), Memory: memory})
	for _, o := range p.Delete {
		if !o.Tried.IsZero() {
			t.Errorf("%s is tried again before all others were", o.Instance.Name)
		}
	}
	if len(p.Delete) != sweep.Most {
		t.Errorf("%d are deleted, want %d", len(p.Delete), sweep.Most)
	}
}

// history is what a model remembers of an instance: since when every complete list that had it found it without an owner.
type history struct {
	orphanSince time.Time
	orphan      bool
}

// Whatever happens, what is deleted is ours, has no owner, is on a complete list, and has been so for long enough.
func TestNeverDeletesWhatIsOwned(t *testing.T) {
	identities := []provider.Identity{ours, ours, ours, {HubUID: "hub2", MemberUID: "member", HomeClusterUID: "home"}, {HubUID: "hub", MemberUID: "member2", HomeClusterUID: "home"}, {HubUID: "hub", MemberUID: "member", HomeClusterUID: "home2"}, {}}
	rapid.Check(t, func(t *rapid.T) {
		at := now
		var memory sweep.Memory
		var there []provider.Instance
		entryOf := map[string]int{}
		model := map[string]*history{}
		who := map[string]struct{}{}
		uids := []string{"", "u1", "u2", "u3", "u4", "u5", "u6", "u7", "u8"}
		for range rapid.IntRange(1, 40).Draw(t, "passes") {
			at = at.Add(rapid.SampledFrom([]time.Duration{0, time.Second, 2 * time.Minute, 9 * time.Minute, time.Hour}).Draw(t, "after"))
			for range rapid.IntRange(0, 3).Draw(t, "new") {
				i := instance(fmt.Sprintf("i%d", len(entryOf)), rapid.SampledFrom(uids).Draw(t, "uid"))
				uid := i.Identity.ProxyUID
				i.Identity = rapid.SampledFrom(identities).Draw(t, "identity")
				i.Identity.ProxyUID = uid
				i.CreatedAt = at
				there = append(there, i)
				entryOf[i.ProviderID] = rapid.IntRange(0, 1).Draw(t, "entry")
			}
			for _, u := range uids[1:] {
				switch rapid.IntRange(0, 5).Draw(t, "owner") {
				case 0:
					delete(who, u)
				case 1:
					who[u] = struct{}{}
				}
			}
			seen := []sweep.Seen{{Entry: "0"}, {Entry: "1"}}
			for e := range seen {
				seen[e].Listing.Complete = rapid.IntRange(0, 4).Draw(t, "complete") > 0
			}
			for _, i := range there {
				e := entryOf[i.ProviderID]
				if seen[e].Listing.Complete || rapid.Bool().Draw(t, "seen") {
					seen[e].Listing.Instances = append(seen[e].Listing.Instances, i)
				}
				h := model[i.ProviderID]
				if h == nil {
					h = &history{}
					model[i.ProviderID] = h
				}
				if _, has := who[i.Identity.ProxyUID]; has {
					h.orphan = h.orphan && !seen[e].Listing.Complete
				} else if seen[e].Listing.Complete && !h.orphan {
					h.orphan, h.orphanSince = true, at
				}
			}
			p := sweep.Decide(sweep.Input{Now: at, Identity: ours, Seen: seen, Owners: who, Memory: memory})
			memory = p.Memory
			if len(p.Delete) > sweep.Most {
				t.Fatalf("%d deletions in one pass", len(p.Delete))
			}
			gone := map[string]bool{}
			for _, o := range p.Delete {
				i, h := o.Instance, model[o.Instance.ProviderID]
				_, has := who[i.Identity.ProxyUID]
				same := i.Identity
				same.ProxyUID = ""
				switch {
				case has:
					t.Fatalf("%s has an owner", i.Name)
				case same != ours || i.Identity.ProxyUID == "":
					t.Fatalf("%s is not ours: %+v", i.Name, i.Identity)
				case !seen[entryOf[i.ProviderID]].Listing.Complete:
					t.Fatalf("%s is on a list that is not complete", i.Name)
				case !h.orphan || at.Sub(h.orphanSince) < sweep.Grace:
					t.Fatalf("%s has been an orphan since %v only, at %v", i.Name, h.orphanSince, at)
				case at.Sub(i.CreatedAt) < sweep.Grace:
					t.Fatalf("%s is younger than its grace", i.Name)
				}
				gone[i.ProviderID] = true
			}
			var left []provider.Instance
			for _, i := range there {
				if !gone[i.ProviderID] || rapid.IntRange(0, 3).Draw(t, "stays") == 0 {
					left = append(left, i)
				}
			}
			there = left
		}
		// In the end everything is seen again and again: every orphan of ours goes, and nothing else.
		for range 200 {
			at = at.Add(sweep.Interval)
			p := sweep.Decide(sweep.Input{Now: at, Identity: ours, Seen: complete(there...), Owners: who, Memory: memory})
			memory = p.Memory
			gone := map[string]bool{}
			for _, o := range p.Delete {
				gone[o.Instance.ProviderID] = true
			}
			var left []provider.Instance
			for _, i := range there {
				if !gone[i.ProviderID] {
					left = append(left, i)
				}
			}
			there = left
		}
		for _, i := range there {
			same := i.Identity
			same.ProxyUID = ""
			if _, has := who[i.Identity.ProxyUID]; !has && same == ours && i.Identity.ProxyUID != "" {
				t.Fatalf("%s leaks", i.Name)
			}
		}
		if len(memory) != 0 {
			t.Fatalf("%d marks are kept of nothing", len(memory))
		}
	})
}
