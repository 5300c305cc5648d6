package computeclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

// Each of these tests is about one way in which the Compute Engine client does something else than it seems to.

// The client's own Wait and Poll take this for a success.
func TestOperationThatFailsWithoutStatusHasFailed(t *testing.T) {
	a := serve(t, always(200, `{"name":"operation-1","status":"DONE","error":{"errors":[{"code":"ZONE_RESOURCE_POOL_EXHAUSTED","message":"no room"}]}}`))
	o, err := a.client(t).ZoneOperation(t.Context(), zone, "operation-1")
	if err != nil {
		t.Fatal(err)
	}
	if !o.Failed() || len(o.Failures) != 1 || o.Failures[0].Code != "ZONE_RESOURCE_POOL_EXHAUSTED" {
		t.Errorf("operation = %+v, want it failed with its code", o)
	}
}

// Poll makes an error of it that has neither code nor reason.
func TestOperationThatFailsWithStatusKeepsItsCode(t *testing.T) {
	a := serve(t, always(200, `{"name":"operation-1","status":"DONE","httpErrorStatusCode":403,"httpErrorMessage":"FORBIDDEN",
		"error":{"errors":[{"code":"QUOTA_EXCEEDED","message":"Quota exceeded","errorDetails":[{"quotaInfo":
		{"metricName":"compute.googleapis.com/in_use_addresses","limitName":"IN-USE-ADDRESSES-per-project-region","limit":8,"dimensions":{"region":"europe-west1"}}}]}]}}`))
	o, err := a.client(t).ZoneOperation(t.Context(), zone, "operation-1")
	if err != nil {
		t.Fatal(err)
	}
	want := computeclient.Quota{Metric: "compute.googleapis.com/in_use_addresses", Limit: "IN-USE-ADDRESSES-per-project-region", Region: "europe-west1", Max: 8}
	if !o.Failed() || o.HTTPStatus != 403 || len(o.Failures) != 1 || o.Failures[0].Code != "QUOTA_EXCEEDED" || o.Failures[0].Quota == nil || *o.Failures[0].Quota != want {
		t.Errorf("operation = %+v, want it failed with code and quota", o)
	}
}

func TestOperationWithAStatusAloneHasFailed(t *testing.T) {
	a := serve(t, always(200, `{"name":"operation-1","status":"DONE","httpErrorStatusCode":409,"httpErrorMessage":"CONFLICT"}`))
	if o, err := a.client(t).ZoneOperation(t.Context(), zone, "operation-1"); err != nil || !o.Failed() || o.HTTPStatus != 409 {
		t.Errorf("operation = %+v (%v), want it failed with 409", o, err)
	}
}

func TestOperationOfAnUnknownStatusGoesOn(t *testing.T) {
	a := serve(t, always(200, `{"name":"operation-1","status":"PAUSED_BY_COMET"}`))
	if o, err := a.client(t).ZoneOperation(t.Context(), zone, "operation-1"); err == nil && (o.Done || o.Failed()) {
		t.Errorf("operation = %+v, want it neither done nor failed", o)
	}
}

// APIError.Reason is empty for REST, and the gRPC code is PermissionDenied for all three.
func TestReasonTellsRefusalFromRateLimit(t *testing.T) {
	for _, reason := range []string{"forbidden", "rateLimitExceeded", "quotaExceeded"} {
		a := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "7")
			answer(w, http.StatusForbidden, failure(403, reason))
		})
		_, err := a.client(t).DeleteInstance(t.Context(), zone, "one", false)
		var got *computeclient.Error
		if !errors.As(err, &got) || got.Status != 403 || got.Reason != reason || got.RetryAfter != 7*time.Second {
			t.Errorf("%s: error = %#v, want status, reason and when to come back", reason, err)
		}
	}
}

// The iterator makes its requests without a context.
func TestListEndsWithItsContext(t *testing.T) {
	arrived, done := make(chan struct{}), make(chan struct{})
	a := serve(t, func(http.ResponseWriter, *http.Request) {
		close(arrived)
		<-done
	})
	defer close(done)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-arrived
		cancel()
	}()
	// With the iterator as it is, the timeout would end it, and another error.
	_, err := a.client(t, timeout(3*time.Second)).ListInstances(ctx, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want the context's", err)
	}
}

func TestEveryCallHasATimeout(t *testing.T) {
	done := make(chan struct{})
	a := serve(t, func(http.ResponseWriter, *http.Request) { <-done })
	defer close(done)
	c := a.client(t, timeout(30*time.Millisecond))
	for name, call := range map[string]func() error{
		"list":    func() error { _, err := c.ListInstances(context.Background(), nil); return err },
		"get":     func() error { _, err := c.GetInstance(context.Background(), zone, "one"); return err },
		"insert":  func() error { _, err := c.InsertInstance(context.Background(), zone, "", instanceSpec()); return err },
		"address": func() error { _, err := c.ListAddresses(context.Background(), "europe-west1"); return err },
	} {
		if err := call(); err == nil || computeclient.StatusOf(err) != 0 {
			t.Errorf("%s: error = %v, want that no answer came", name, err)
		}
	}
}

// The default options of a list are not applied in its iterator.
func TestListIsRetried(t *testing.T) {
	calls := 0
	a := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls < 3 {
			answer(w, http.StatusServiceUnavailable, failure(503, "backendError"))
			return
		}
		answer(w, 200, `{"items":{"zones/europe-west1-b":{"instances":[{"name":"one","zone":"https://x/zones/europe-west1-b"}]}}}`)
	})
	l, err := a.client(t).ListInstances(t.Context(), nil)
	if err != nil || len(l.Instances) != 1 || l.Instances[0].Zone != zone {
		t.Errorf("list = %+v, %v; want the instance, after two failures", l, err)
	}
}

// A read is retried by default until its context ends, a write never.
func TestRetriesEnd(t *testing.T) {
	a := serve(t, always(http.StatusServiceUnavailable, failure(503, "backendError")))
	c := a.client(t)
	if _, err := c.GetInstance(t.Context(), zone, "one"); computeclient.StatusOf(err) != 503 {
		t.Errorf("get: %v, want 503", err)
	}
	if got := len(a.requests()); got != 3 {
		t.Errorf("get made %d calls, want 3", got)
	}
	if _, err := c.InsertInstance(t.Context(), zone, "", instanceSpec()); computeclient.StatusOf(err) != 503 {
		t.Errorf("insert: %v, want 503", err)
	}
	if got := len(a.requests()); got != 4 {
		t.Errorf("insert made %d calls, want 1", got-3)
	}
}

// The request has no field for it any more. The iterator keeps the last page's answer only, and passes over a page
// without scopes.
func TestEveryPageIsAskedAndLookedAtForWhatIsMissing(t *testing.T) {
	pages := []string{
		`{"items":{},"unreachables":["zones/europe-west1-c"],"warning":{"code":"UNREACHABLE"},"nextPageToken":"2"}`,
		`{"items":{"zones/europe-west1-b":{"instances":[{"name":"one"}]},"zones/us-east1-b":{"warning":{"code":"NO_RESULTS_ON_PAGE"}}},"nextPageToken":"3"}`,
		`{"items":{"zones/europe-west1-d":{"warning":{"code":"UNREACHABLE"}}},"nextPageToken":"4"}`,
		`{"items":{"zones/europe-west1-b":{"instances":[{"name":"two"}]}}}`,
	}
	at := 0
	a := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, pages[at])
		at++
	})
	l, err := a.client(t).ListInstances(t.Context(), map[string]string{"b": "2", "a": "1"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"zones/europe-west1-c", "zones/europe-west1-d"}; !slices.Equal(l.Unreachable, want) || len(l.Instances) != 2 {
		t.Errorf("list = %+v, want two instances, and %v unreachable", l, want)
	}
	for i, r := range a.requests() {
		q := r.URL.Query()
		if q.Get("returnPartialSuccess") != "true" || q.Get("filter") != `(labels.a="1") (labels.b="2")` || q.Get("maxResults") != "500" {
			t.Errorf("page %d was asked for with %v", i+1, q)
		}
	}
}

func TestAMissingPartWithoutNameIsMissing(t *testing.T) {
	a := serve(t, always(200, `{"items":{},"warning":{"code":"UNREACHABLE"}}`))
	if l, err := a.client(t).ListInstances(t.Context(), nil); err != nil || len(l.Unreachable) != 1 {
		t.Errorf("list = %+v (%v), want one part unreachable", l, err)
	}
	if _, err := a.client(t).ListAddresses(t.Context(), "europe-west1"); err == nil {
		t.Error("addresses: no error, though a part is missing")
	}
}

// The client refuses "." and ".." alone.
func TestBadNamesAreNeverSent(t *testing.T) {
	a := serve(t, always(200, `{}`))
	c := a.client(t)
	for _, bad := range []string{"", "..", "../x", "a/b", "A", "a?x=1", "a%2f", "-a", "a-", "a b", strings.Repeat("a", 64)} {
		spec := instanceSpec()
		spec.Name = bad
		for name, call := range map[string]func() error{
			"get":         func() error { _, err := c.GetInstance(t.Context(), zone, bad); return err },
			"zone":        func() error { _, err := c.GetInstance(t.Context(), bad, "one"); return err },
			"delete":      func() error { _, err := c.DeleteInstance(t.Context(), zone, bad, true); return err },
			"insert":      func() error { _, err := c.InsertInstance(t.Context(), zone, "", spec); return err },
			"setMetadata": func() error { _, err := c.SetMetadata(t.Context(), zone, bad, "", nil); return err },
			"address":     func() error { _, err := c.GetAddress(t.Context(), "europe-west1", bad); return err },
			"region":      func() error { _, err := c.ListAddresses(t.Context(), bad); return err },
		} {
			var wrong *computeclient.NameError
			if err := call(); !errors.As(err, &wrong) {
				t.Errorf("%s %q: %v, want a NameError", name, bad, err)
			}
		}
	}
	for _, labels := range []map[string]string{{"a": `x" OR labels.b="y`}, {"A": "x"}, {`a="x") (labels.b`: "y"}} {
		var wrong *computeclient.NameError
		if _, err := c.ListInstances(t.Context(), labels); !errors.As(err, &wrong) {
			t.Errorf("labels %v: %v, want a NameError", labels, err)
		}
	}
	if _, err := computeclient.New(t.Context(), computeclient.Options{Project: "../other", UserAgent: "x", Endpoint: a.URL}); err == nil {
		t.Error("a project of another path is accepted")
	}
	if sent := a.requests(); len(sent) != 0 {
		t.Errorf("%d requests were sent, the first %s", len(sent), sent[0].URL)
	}
}

// The user agent of an option is lost with a given HTTP client, and so would be an endpoint of one service only.
func TestAllCallsSayWhoCallsAndGoToTheEndpoint(t *testing.T) {
	a := serve(t, always(200, `{"name":"one","status":"DONE"}`))
	c := a.client(t)
	var errs []error
	each := func(err error) { errs = append(errs, err) }
	_, err := c.GetInstance(t.Context(), zone, "one")
	each(err)
	_, err = c.ZoneOperation(t.Context(), zone, "operation-1")
	each(err)
	_, err = c.ListInstances(t.Context(), nil)
	each(err)
	_, err = c.GetAddress(t.Context(), "europe-west1", "one")
	each(err)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, r := range a.requests() {
		paths = append(paths, r.URL.Path)
		if got := r.UserAgent(); got != "shoal-agent/test" {
			t.Errorf("%s: user agent %q", r.URL.Path, got)
		}
	}
	const base = "/compute/v1/projects/" + project
	want := []string{base + "/zones/" + zone + "/instances/one", base + "/zones/" + zone + "/operations/operation-1", base + "/aggregated/instances", base + "/regions/europe-west1/addresses/one"}
	if !slices.Equal(paths, want) {
		t.Errorf("paths = %v, want %v", paths, want)
	}
}

// Fields of version 1 are strings, and other values than are known today pass.
func TestUnknownStatusPasses(t *testing.T) {
	a := serve(t, always(200, fmt.Sprintf(`{"id":"18446744073709551615","name":"one","zone":"https://x/projects/p/zones/%s","status":"FROZEN","novelty":{"a":1},
		"creationTimestamp":"2026-03-01T04:00:00.000-08:00","scheduling":{"provisioningModel":"SPOT"},
		"networkInterfaces":[{"networkIP":"10.0.0.2","accessConfigs":[{"natIP":"198.18.0.1"}]}],
		"metadata":{"fingerprint":"abc=","items":[{"key":"k","value":"v"}]}}`, zone)))
	i, err := a.client(t).GetInstance(t.Context(), zone, "one")
	if err != nil {
		t.Fatal(err)
	}
	if i.Status != "FROZEN" || i.Zone != zone || !i.Spot || i.ID != 1<<64-1 || i.InternalIP != "10.0.0.2" || i.ExternalIP != "198.18.0.1" ||
		!i.CreatedAt.Equal(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) || i.MetadataFingerprint != "abc=" || len(i.Metadata) != 1 {
		t.Errorf("instance = %+v", i)
	}
}

func instanceSpec() computeclient.InstanceSpec {
	return computeclient.InstanceSpec{
		Name: "one", MachineType: "e2-small", Image: "projects/cos-cloud/global/images/family/cos-stable", DiskGB: 10,
		Network: "global/networks/default", NetworkTier: "PREMIUM", External: true,
	}
}
