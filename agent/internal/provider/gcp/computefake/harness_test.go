package computefake_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

const (
	project = "crawl-test"
	zoneB   = "europe-west1-b"
	zoneC   = "europe-west1-c"
	zoneU   = "us-east1-d"
	inB     = "/projects/" + project + "/zones/" + zoneB
)

// start is when every test begins.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fake is a server under test and its clock.
type fake struct {
	*computefake.Server
	t     *testing.T
	clock *clocktesting.FakeClock
	url   string
	token string
}

func newFake(t *testing.T, change ...func(*computefake.Options)) *fake {
	t.Helper()
	clock := clocktesting.NewFakeClock(start)
	o := computefake.Options{Clock: clock, Projects: []string{project, "other-project"}, Zones: []string{zoneB, zoneC, zoneU}}
	for _, c := range change {
		c(&o)
	}
	s, err := computefake.New(o)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &fake{Server: s, t: t, clock: clock, url: h.URL}
}

// answer is what came back.
type answer struct {
	code int
	raw  string
	body map[string]any
}

// get reads a value by a path of keys and indices.
func (a answer) get(path ...any) any {
	var at any = a.body
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, _ := at.(map[string]any)
			at = m[p]
		case int:
			l, _ := at.([]any)
			if p >= len(l) {
				return nil
			}
			at = l[p]
		}
	}
	return at
}

func (a answer) text(path ...any) string { s, _ := a.get(path...).(string); return s }

// reason is the one that Google's clients branch on.
func (a answer) reason() string { return a.text("error", "errors", 0, "reason") }

func (f *fake) try(ctx context.Context, method, path, body string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.url+"/compute/v1"+path, bytes.NewBufferString(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("X-Goog-Api-Client", "gl-go/1.26")
	r.Header.Set("X-Goog-Request-Params", "project="+project)
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: resp.StatusCode, raw: string(text)}
	if err := json.Unmarshal(text, &a.body); err != nil {
		f.t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return a, nil
}

func (f *fake) call(method, path, body string) answer {
	f.t.Helper()
	a, err := f.try(f.t.Context(), method, path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	return a
}

// must calls and expects success.
func (f *fake) must(method, path, body string) answer {
	f.t.Helper()
	a := f.call(method, path, body)
	if a.code != http.StatusOK {
		f.t.Fatalf("%s %s: %s", method, path, a.raw)
	}
	return a
}

// refused calls and expects an error.
func (f *fake) refused(code int, reason, method, path, body string) answer {
	f.t.Helper()
	a := f.call(method, path, body)
	if a.code != code || a.reason() != reason || a.get("error", "code") != float64(code) {
		f.t.Fatalf("%s %s: want %d %s, got %d: %s", method, path, code, reason, a.code, a.raw)
	}
	return a
}

// vm is a body to insert; edits replace text in it.
func vm(name string, edits ...string) string {
	return strings.NewReplacer(append([]string{"NAME", name}, edits...)...).Replace(`{
		"name": "NAME",
		"machineType": "zones/europe-west1-b/machineTypes/e2-small",
		"labels": {"shoal-managed-by": "shoal-agent", "shoal-hub-uid": "hub-1"},
		"disks": [{"boot": true, "autoDelete": true, "initializeParams": {
			"diskSizeGb": "10", "sourceImage": "projects/cos-cloud/global/images/family/cos-stable",
			"diskType": "zones/europe-west1-b/diskTypes/pd-balanced"}}],
		"networkInterfaces": [{"network": "global/networks/default",
			"accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT", "networkTier": "PREMIUM"}]}],
		"metadata": {"items": [{"key": "user-data", "value": "#cloud-config\n"}]},
		"tags": {"items": ["crawl-proxy"]},
		"scheduling": {"automaticRestart": false}
	}`)
}

// vmIn is the same in another zone.
func vmIn(zone, name string, edits ...string) string {
	return strings.ReplaceAll(vm(name, edits...), zoneB, zone)
}

// insert inserts and gives the operation's path.
func (f *fake) insert(zone, name string) string {
	f.t.Helper()
	a := f.must("POST", "/projects/"+project+"/zones/"+zone+"/instances", vmIn(zone, name))
	return "/projects/" + project + "/zones/" + zone + "/operations/" + a.text("name")
}

// running inserts and waits until it runs.
func (f *fake) running(zone, name string) {
	f.t.Helper()
	f.insert(zone, name)
	f.clock.Step(3 * time.Second)
	if got := f.must("GET", "/projects/"+project+"/zones/"+zone+"/instances/"+name, "").text("status"); got != "RUNNING" {
		f.t.Fatalf("%s is %s", name, got)
	}
}
