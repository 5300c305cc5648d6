package computefake_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

// successors are the states in which a machine may be seen next; an empty one means that it is gone. Time may pass
// unseen, so that every state that is on the way is among them.
var successors = map[string][]string{
	"":             {"PROVISIONING"},
	"PROVISIONING": {"STAGING", "RUNNING", "STOPPING", ""},
	"STAGING":      {"RUNNING", "STOPPING", ""},
	"RUNNING":      {"STOPPING", "TERMINATED", ""},
	"STOPPING":     {"TERMINATED", ""},
	"TERMINATED":   {"PROVISIONING", "STOPPING", ""},
}

// TestModel does anything to a few machines and looks at what must hold all the time.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFake(t)
		seen := map[string]string{} // by ID
		done := map[computefake.Int64]computefake.Operation{}
		zones, machines := []string{zoneB, zoneC}, []string{"p-1", "p-2", "p-3"}
		draw := func(from []string, label string) string { return rapid.SampledFrom(from).Draw(rt, label) }
		at := func() (zone, name, path string) {
			zone, name = draw(zones, "zone"), draw(machines, "name")
			return zone, name, "/projects/" + project + "/zones/" + zone + "/instances"
		}
		verb := func(method, suffix string) func(*rapid.T) {
			return func(*rapid.T) {
				_, name, path := at()
				f.call(method, path+"/"+name+suffix, "")
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"insert": func(*rapid.T) {
				zone, name, path := at()
				scheduling := draw([]string{
					`"automaticRestart": true`, `"provisioningModel": "SPOT"`, `"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"`,
					`"instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": "30"}`,
				}, "scheduling")
				existed := f.call("GET", path+"/"+name, "").code == 200
				a := f.call("POST", path, vmIn(zone, name, `"automaticRestart": false`, scheduling))
				if (a.code == 409) != existed || !existed && a.code != 200 {
					rt.Fatalf("insert beside an existing one (%v): %s", existed, a.raw)
				}
			},
			"delete":  verb("DELETE", ""),
			"stop":    verb("POST", "/stop"),
			"start":   verb("POST", "/start"),
			"preempt": func(*rapid.T) { zone, name, _ := at(); f.Preempt(project, zone, name) },
			"vanish":  func(*rapid.T) { zone, name, _ := at(); f.Vanish(project, zone, name) },
			"stockout": func(*rapid.T) {
				if zone := draw(zones, "zone"); rapid.Bool().Draw(rt, "out") {
					f.Stockout(zone, computefake.Stockout{})
				} else {
					f.Restock(zone)
				}
			},
			"wait": func(*rapid.T) {
				f.clock.Step(time.Duration(rapid.IntRange(50, 6000).Draw(rt, "ms")) * time.Millisecond)
			},
			"": func(*rapid.T) { look(rt, f, seen, done) },
		})

		// In the end everything settles, and can be removed without a trace.
		for _, i := range f.Instances(project) {
			f.call("DELETE", i.SelfLink[len("https://www.googleapis.com/compute/v1"):], "")
		}
		f.clock.Step(time.Hour)
		if left := f.Instances(project); len(left) != 0 {
			rt.Fatalf("left: %v", left)
		}
		for _, o := range f.Operations(project) {
			if o.Status != "DONE" {
				rt.Fatalf("for ever under way: %+v", o)
			}
		}
		region := f.must("GET", "/projects/"+project+"/regions/europe-west1", "")
		for k := 0; region.get("quotas", k) != nil; k++ {
			if region.get("quotas", k, "usage") != 0.0 {
				rt.Fatalf("in use for ever: %v", region.get("quotas", k))
			}
		}
	})
}

// look checks what must always hold.
func look(rt *rapid.T, f *fake, seen map[string]string, done map[computefake.Int64]computefake.Operation) {
	all := f.Instances(project)
	now, addresses := map[string]string{}, map[string]bool{}
	var listed []string
	for _, i := range all {
		now[fmt.Sprint(i.ID)] = i.Status
		listed = append(listed, i.Name)
		nat := i.NetworkInterfaces[0].AccessConfigs[0].NatIP
		switch {
		case nat == "" && i.Status == "RUNNING", nat != "" && slices.Contains([]string{"PROVISIONING", "STAGING", "TERMINATED"}, i.Status):
			rt.Fatalf("%s is %s with the address %q", i.Name, i.Status, nat)
		case nat != "" && addresses[nat]:
			rt.Fatalf("two machines at %s", nat)
		}
		addresses[nat] = true
	}
	for id, status := range now {
		if was := seen[id]; was != status && !slices.Contains(successors[was], status) {
			rt.Fatalf("%s went from %q to %s", id, was, status)
		}
	}
	for id := range seen {
		if now[id] == "" {
			delete(seen, id)
		}
	}
	for id, status := range now {
		seen[id] = status
	}
	a := f.must("GET", "/projects/"+project+"/aggregated/instances", "")
	var got []string
	for _, z := range []string{zoneB, zoneC} {
		got = append(got, names(a, "items", "zones/"+z, "instances")...)
	}
	if diff := cmp.Diff(listed, got); diff != "" {
		rt.Fatalf("the list: %s", diff)
	}
	for _, o := range f.Operations(project) {
		if was, ok := done[o.ID]; ok {
			if diff := cmp.Diff(was, o); diff != "" {
				rt.Fatalf("an operation that was done changed: %s", diff)
			}
		} else if o.Status == "DONE" {
			done[o.ID] = o
		}
	}
}
