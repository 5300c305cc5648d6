package computeclient_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

func specWith(key, value string) computeclient.InstanceSpec {
	spec := instanceSpec()
	spec.Metadata = []computeclient.Item{{Key: key, Value: value}}
	return spec
}

func TestOneLineForEachCall(t *testing.T) {
	a := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/gone") {
			answer(w, http.StatusNotFound, failure(404, "notFound"))
			return
		}
		answer(w, 200, `{"name":"one","status":"RUNNING"}`)
	})
	l := &log{}
	c := a.client(t, l.take(1))
	c.GetInstance(t.Context(), zone, "one")
	c.GetInstance(t.Context(), zone, "gone")
	c.ListInstances(t.Context(), nil)
	if len(l.lines) != 3 {
		t.Fatalf("%d lines for 3 calls:\n%s", len(l.lines), l.text())
	}
	for i, want := range []string{`"method"="instances.get" "target"="europe-west1-b/one" "outcome"="ok" "duration"=`, `"outcome"="404 notFound"`, `"method"="instances.aggregatedList"`} {
		if !strings.Contains(l.lines[i], want) {
			t.Errorf("line %d = %s, want %s in it", i+1, l.lines[i], want)
		}
	}
}

func TestBodiesAreLoggedAtTheirLevelOnly(t *testing.T) {
	for verbosity, want := range map[int]bool{computeclient.WireLevel - 1: false, computeclient.WireLevel: true} {
		l := &log{}
		a := serve(t, always(200, `{"name":"operation-1","status":"RUNNING","id":"9007199254740993"}`))
		if _, err := a.client(t, l.take(verbosity)).InsertInstance(t.Context(), zone, "", specWith("colour", "teal")); err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"teal", "9007199254740993"} {
			if got := strings.Contains(l.text(), part); got != want {
				t.Errorf("at V(%d) %s is logged: %v, want %v:\n%s", verbosity, part, got, want, l.text())
			}
		}
	}
}

func TestLongStringsAreElided(t *testing.T) {
	long := strings.Repeat("long", 257)
	for _, full := range []bool{false, true} {
		l := &log{}
		a := serve(t, always(200, `{"name":"operation-1","status":"RUNNING"}`))
		c := a.client(t, l.take(computeclient.WireLevel), func(o *computeclient.Options) { o.WireLogFullPayloads = full })
		if _, err := c.InsertInstance(t.Context(), zone, "", specWith("colour", long)); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(l.text(), long); got != full {
			t.Errorf("full payloads %v: the long string is logged: %v", full, got)
		}
		if !full && !strings.Contains(l.text(), "(1028 bytes, sha256 ") {
			t.Errorf("no word of how long it was:\n%s", l.text())
		}
	}
}

// What a machine is booted with may be from a Secret.
func TestBootItemsAreNeverLogged(t *testing.T) {
	for _, key := range []string{"user-data", "startup-script"} {
		l := &log{}
		a := serve(t, func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if r.Method == http.MethodPost && !strings.Contains(string(body), "hunter2") {
				t.Error("what was sent is not what was asked for")
			}
			answer(w, 200, `{"name":"one","status":"RUNNING","metadata":{"items":[{"key":"`+key+`","value":"hunter2"}]}}`)
		})
		c := a.client(t, l.take(10), func(o *computeclient.Options) { o.WireLogFullPayloads = true })
		if _, err := c.InsertInstance(t.Context(), zone, "", specWith(key, "password: hunter2")); err != nil {
			t.Fatal(err)
		}
		if _, err := c.GetInstance(t.Context(), zone, "one"); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(l.text(), "hunter2") {
			t.Errorf("%s is logged:\n%s", key, l.text())
		}
	}
}

// A body that is no JSON is of somebody in between, and may be anything.
func TestBodiesOfOthersAreNotLogged(t *testing.T) {
	l := &log{}
	a := serve(t, always(502, `<html>hunter2</html>`))
	if _, err := a.client(t, l.take(10)).DeleteInstance(t.Context(), zone, "one", true); computeclient.StatusOf(err) != 502 {
		t.Fatalf("error = %v, want 502", err)
	}
	if got := l.text(); strings.Contains(got, `"body"="<html>`) {
		t.Errorf("the body is logged:\n%s", got)
	}
}
