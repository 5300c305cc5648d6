package computefake_test

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

// names gives the names in one scope of an aggregated page, or in a plain page.
func names(a answer, scope ...any) (out []string) {
	for k := 0; ; k++ {
		name := a.text(append(slices.Clone(scope), k, "name")...)
		if name == "" {
			return out
		}
		out = append(out, name)
	}
}

// TestPages lists 501 machines of three zones completely, in pages, each once.
func TestPages(t *testing.T) {
	f := newFake(t)
	zones := []string{zoneB, zoneC, zoneU}
	for k := range 501 {
		f.insert(zones[k%3], fmt.Sprintf("p-%03d", k))
	}
	for _, size := range []int{0, 100, 500, 7} {
		seen, token, pages := map[string]int{}, "", 0
		for {
			q := url.Values{"filter": {`(labels.shoal-managed-by="shoal-agent") (labels.shoal-hub-uid=hub-1)`}}
			if size > 0 {
				q.Set("maxResults", fmt.Sprint(size))
			}
			if token != "" {
				q.Set("pageToken", token)
			}
			a := f.must("GET", "/projects/"+project+"/aggregated/instances?"+q.Encode(), "")
			onPage := 0
			for _, z := range zones {
				found := names(a, "items", "zones/"+z, "instances")
				onPage += len(found)
				for _, n := range found {
					seen[n]++
				}
				if warned := a.text("items", "zones/"+z, "warning", "code"); (warned == "NO_RESULTS_ON_PAGE") != (len(found) == 0) {
					t.Errorf("zone %s with %d results: warning %q", z, len(found), warned)
				}
			}
			pages++
			token = a.text("nextPageToken")
			if limit := size; limit == 0 && onPage > 500 || limit > 0 && onPage > limit {
				t.Errorf("%d on a page of %d", onPage, size)
			}
			if token == "" {
				break
			}
		}
		if len(seen) != 501 || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
			t.Errorf("maxResults %d: %d different names in %d pages", size, len(seen), pages)
		}
		if size == 0 && pages != 2 {
			t.Errorf("%d pages by default, want 2", pages)
		}
	}
	// A token is of its own list only.
	a := f.must("GET", inB+"/instances?maxResults=1", "")
	f.refused(400, "invalid", "GET", inB+"/instances?maxResults=1&filter=name%3Dp-000&pageToken="+a.text("nextPageToken"), "")
	if a := f.must("GET", inB+"/instances?maxResults=2&orderBy=name", ""); !slices.Equal(names(a, "items"), []string{"p-000", "p-003"}) {
		t.Errorf("by name: %v", names(a, "items"))
	}
}

// TestNewestFirst pages in the other order.
func TestNewestFirst(t *testing.T) {
	f := newFake(t)
	for _, n := range []string{"p-b", "p-a", "p-c"} {
		f.insert(zoneB, n)
		f.clock.Step(time.Second)
	}
	a := f.must("GET", inB+"/instances?maxResults=2&orderBy=creationTimestamp+desc", "")
	b := f.must("GET", inB+"/instances?maxResults=2&orderBy=creationTimestamp+desc&pageToken="+a.text("nextPageToken"), "")
	if got := append(names(a, "items"), names(b, "items")...); !slices.Equal(got, []string{"p-c", "p-a", "p-b"}) {
		t.Errorf("newest first: %v", got)
	}
}

// TestUnreachableZone must never read as an empty zone.
func TestUnreachableZone(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	f.running(zoneC, "p-2")
	f.SetUnreachable(zoneC, true)
	aggregated := "/projects/" + project + "/aggregated/instances"
	f.refused(503, "backendError", "GET", aggregated, "")
	a := f.must("GET", aggregated+"?returnPartialSuccess=true", "")
	if a.text("unreachables", 0) != "zones/"+zoneC || a.text("warning", "code") != "UNREACHABLE" ||
		a.text("items", "zones/"+zoneC, "warning", "code") != "UNREACHABLE" {
		t.Errorf("partial: %s", a.raw)
	}
	if got := names(a, "items", "zones/"+zoneB, "instances"); !slices.Equal(got, []string{"p-1"}) {
		t.Errorf("the others: %v", got)
	}
	inC := "/projects/" + project + "/zones/" + zoneC
	f.refused(503, "backendError", "GET", inC+"/instances", "")
	f.refused(503, "backendError", "GET", inC+"/instances/p-2", "")
	f.refused(503, "backendError", "POST", inC+"/instances", vmIn(zoneC, "p-3"))
	if a := f.must("GET", inC+"/instances?returnPartialSuccess=true", ""); a.text("unreachables", 0) != "zones/"+zoneC || a.get("items") != nil {
		t.Errorf("its own list: %s", a.raw)
	}
	f.SetUnreachable(zoneC, false)
	if got := f.must("GET", inC+"/instances/p-2", "").text("status"); got != "RUNNING" {
		t.Errorf("it is %s again", got)
	}

	always := newFake(t, func(o *computefake.Options) { o.AlwaysPartial = true })
	always.SetUnreachable(zoneC, true)
	if a := always.must("GET", aggregated, ""); a.text("warning", "code") != "UNREACHABLE" {
		t.Errorf("always partial: %s", a.raw)
	}
}

// TestListLag hides new machines from lists, and from nothing else.
func TestListLag(t *testing.T) {
	f := newFake(t)
	f.SetListLag(5 * time.Second)
	f.running(zoneB, "p-1")
	list := func() []string { return names(f.must("GET", inB+"/instances", ""), "items") }
	if got := list(); got != nil {
		t.Errorf("after 3 s: %v", got)
	}
	f.clock.Step(2 * time.Second)
	if got := list(); !slices.Equal(got, []string{"p-1"}) {
		t.Errorf("after 5 s: %v", got)
	}
}

// TestFiltersLists sends filters over the wire; what they mean is the table test's.
func TestFiltersLists(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	f.insert(zoneC, "p-2")
	f.must("POST", "/projects/other-project/zones/"+zoneB+"/instances", vm("p-3"))
	for filter, want := range map[string][]string{
		``:                           {"p-1", "p-2"},
		`name=p-1`:                   {"p-1"},
		`status!="RUNNING"`:          {"p-2"},
		`labels.shoal-hub-uid:*`:     {"p-1", "p-2"},
		`labels.shoal-hub-uid=hub-2`: nil,
		`(labels.shoal-hub-uid=hub-1) (name="p-2")`:   {"p-2"},
		`(name=p-1) OR (name=p-2)`:                    {"p-1", "p-2"},
		`((name=p-1) OR (name=p-2)) (status=RUNNING)`: {"p-1"},
	} {
		a := f.must("GET", "/projects/"+project+"/aggregated/instances?filter="+url.QueryEscape(filter), "")
		got := append(names(a, "items", "zones/"+zoneB, "instances"), names(a, "items", "zones/"+zoneC, "instances")...)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", filter, diff)
		}
	}
}
