package gcp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
)

func (w *world) failInsert(f computefake.OperationFailure) {
	w.fake.FailInserts(computefake.InsertFailure{Failure: f})
}

// Every code that Compute Engine is known to fail an operation with, with and without an HTTP status beside it.
func TestWhyAnOperationFailed(t *testing.T) {
	for code, want := range map[string]struct {
		kind  provider.Kind
		scope string
	}{
		"ZONE_RESOURCE_POOL_EXHAUSTED":              {provider.KindCapacityExhausted, "zone " + zoneB},
		"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": {provider.KindCapacityExhausted, "zone " + zoneB},
		"insufficientCapacity":                      {provider.KindCapacityExhausted, "zone " + zoneB},
		"UNSUPPORTED_OPERATION":                     {provider.KindCapacityExhausted, "zone " + zoneB},
		"IP_SPACE_EXHAUSTED_WITH_DETAILS":           {provider.KindCapacityExhausted, "region europe-west1 addresses of the subnetwork"},
		"QUOTA_EXCEEDED":                            {provider.KindQuotaExceeded, "region europe-west1"},
		"RATE_LIMIT_EXCEEDED":                       {provider.KindThrottled, "project " + project},
		"CONCURRENT_OPERATIONS_QUOTA_EXCEEDED":      {provider.KindThrottled, "project " + project},
		"RESOURCE_OPERATION_RATE_EXCEEDED":          {provider.KindThrottled, ""},
		"RESOURCE_NOT_READY":                        {provider.KindUnavailable, ""},
		"RESOURCE_NOT_FOUND":                        {provider.KindInvalidSpec, ""},
		"INVALID_USAGE":                             {provider.KindInvalidSpec, ""},
		"PERMISSIONS_ERROR":                         {provider.KindUnauthorized, ""},
		"NEVER_HEARD_OF":                            {provider.KindUnavailable, ""},
	} {
		for _, status := range []int{0, http.StatusForbidden} {
			w := newWorld(t)
			w.failInsert(computefake.OperationFailure{Code: code, Message: "it did not work", HTTPStatus: status})
			ref := w.created(request("a"))
			w.want(ref, provider.StatePending)
			w.clock.Step(time.Minute)
			i := w.want(ref, provider.StateRefused)
			if got, scope := provider.KindOf(i.Failure), provider.ScopeOf(i.Failure); got != want.kind || scope != want.scope || i.Zone != zoneB {
				t.Errorf("%s (%d): %s in %q, want %s in %q", code, status, got, scope, want.kind, want.scope)
			}
		}
	}
}

func TestQuotaNamesItsMetricAndWhatItIsOf(t *testing.T) {
	for metric, want := range map[string]string{
		computefake.MetricInUseAddresses: "region europe-west1 IN_USE_ADDRESSES",
		computefake.MetricCPUsAllRegions: "project " + project + " CPUS_ALL_REGIONS",
	} {
		w := newWorld(t)
		in := region
		if metric == computefake.MetricCPUsAllRegions {
			in = ""
		}
		w.fake.SetQuota(project, in, metric, 0)
		ref := w.created(request("a"))
		w.clock.Step(time.Minute)
		i := w.want(ref, provider.StateRefused)
		if provider.KindOf(i.Failure) != provider.KindQuotaExceeded || provider.ScopeOf(i.Failure) != want {
			t.Errorf("%s: %v in %q, want %q", metric, i.Failure, provider.ScopeOf(i.Failure), want)
		}
	}
	w := newWorld(t)
	w.fake.SetQuota(project, region, computefake.MetricInUseAddresses, 0)
	w.fake.RefuseQuotaAtOnce(true)
	_, err := w.Create(t.Context(), request("a"))
	w.wantKind("Create", err, provider.KindQuotaExceeded)
	if got := provider.ScopeOf(err); got != "region europe-west1" {
		t.Errorf("scope %q, want the region's", got)
	}
}

func TestCallsThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		reason string
		kind   provider.Kind
		scope  string
	}{
		"RateLimit":      {403, "rateLimitExceeded", provider.KindThrottled, "project " + project},
		"UserRateLimit":  {403, "userRateLimitExceeded", provider.KindThrottled, "project " + project},
		"TooMany":        {429, "", provider.KindThrottled, "project " + project},
		"Forbidden":      {403, "forbidden", provider.KindUnauthorized, ""},
		"NotEnabled":     {403, "accessNotConfigured", provider.KindUnauthorized, ""},
		"NoLogin":        {401, "authError", provider.KindUnauthorized, ""},
		"Invalid":        {400, "invalid", provider.KindInvalidSpec, ""},
		"NotReady":       {400, "resourceNotReady", provider.KindUnavailable, ""},
		"OfSomething":    {404, "notFound", provider.KindInvalidSpec, ""},
		"Broken":         {500, "backendError", provider.KindUnavailable, ""},
		"UnknownRefusal": {403, "somethingNew", provider.KindUnavailable, ""},
	} {
		w := newWorld(t)
		w.fake.Inject(computefake.Fault{Method: "instances.insert", Status: c.status, Reason: c.reason})
		_, err := w.Create(t.Context(), request("a"))
		if provider.KindOf(err) != c.kind || provider.ScopeOf(err) != c.scope {
			t.Errorf("%s: %s in %q (%v), want %s in %q", name, provider.KindOf(err), provider.ScopeOf(err), err, c.kind, c.scope)
		}
	}
}

// A poll that fails was once taken for a failure, and a second machine was made in another zone.
func TestAnOperationThatCannotBeReadHasNotFailed(t *testing.T) {
	w := newWorld(t)
	w.fake.Stockout(zoneB, computefake.Stockout{})
	ref := w.created(request("a"))
	w.clock.Step(time.Minute)
	remove := w.fake.FailPolls(0)
	i, err := w.Get(t.Context(), ref)
	if provider.KindOf(err) != provider.KindUnavailable {
		t.Fatalf("Get = %+v, %v; want that nothing is known", i, err)
	}
	remove()
	w.want(ref, provider.StateRefused)
}

func TestOperationThatGoesOnIsPending(t *testing.T) {
	w := newWorld(t)
	ref := w.created(request("a"))
	// Asked for, and not to be seen yet.
	w.fake.FlakeGets(ref.Name, 1)
	i := w.want(ref, provider.StatePending)
	if i.Name != ref.Name || i.Zone != zoneB {
		t.Errorf("instance = %+v", i)
	}
	// Done in the meantime: a look that missed it is not believed.
	w.clock.Step(3 * time.Second)
	w.fake.FlakeGets(ref.Name, 1)
	w.want(ref, provider.StateRunning)
}

func TestAbsentMeansAbsent(t *testing.T) {
	w := newWorld(t)
	ref := w.running(request("a"))
	if !w.fake.Vanish(project, zoneB, ref.Name) {
		t.Fatal("nothing has vanished")
	}
	// Removed by hand: the operation that made it was a success.
	w.wantGone(ref)
	// And after Compute Engine has forgotten the operation.
	w.fake.CollectOperations()
	w.wantGone(ref)
	w.wantGone(provider.Ref{Name: ref.Name, Zone: zoneB})
	w.wantGone(provider.Ref{Name: ref.Name})
}

// The machine is there, and nobody was told.
func TestLostReplyMakesNoSecondMachine(t *testing.T) {
	w := newWorld(t)
	w.fake.LoseReplies("instances.insert", 1)
	r := request("a")
	_, err := w.Create(t.Context(), r)
	w.wantKind("Create", err, provider.KindUnavailable)
	receipt, err := w.Create(t.Context(), r)
	if err != nil || receipt.Operation == "" {
		t.Fatalf("Create again = %+v, %v; want the first operation", receipt, err)
	}
	w.want(provider.Ref{Name: r.Name, Zone: zoneB, Operation: receipt.Operation}, provider.StatePending)
	if i := w.only(); i.Name != r.Name {
		t.Errorf("the instance is %s", i.Name)
	}
}

// The same attempt tells the same failure, another attempt is another request.
func TestSameAttemptIsTheSameOperation(t *testing.T) {
	w := newWorld(t)
	w.failInsert(computefake.OperationFailure{Code: "QUOTA_EXCEEDED"})
	r := request("a")
	first := w.created(r)
	w.clock.Step(time.Minute)
	if again := w.created(r); again != first {
		t.Errorf("the same request is operation %s, then %s", first.Operation, again.Operation)
	}
	w.want(first, provider.StateRefused)
	r.RequestID = requestID(2)
	if other := w.created(r); other.Operation == first.Operation {
		t.Error("another attempt is the same operation")
	}
}

func TestDeletedWhileItIsMade(t *testing.T) {
	w := newWorld(t)
	ref := w.created(request("a"))
	w.wantKind("Delete", w.Delete(t.Context(), ref, identity("a"), provider.DeleteOptions{}), "")
	w.clock.Step(time.Minute)
	i, err := w.Get(t.Context(), ref)
	switch {
	case provider.IsNotFound(err):
	case err != nil || i.State != provider.StateRefused || provider.IsPermanent(i.Failure):
		t.Errorf("Get = %+v, %v; want it gone, or refused for now", i, err)
	}
	if n := len(w.fake.Instances(project)); n != 0 {
		t.Errorf("%d instances are left", n)
	}
}

func TestMachineOfTheSameProxyIsAdopted(t *testing.T) {
	w := newWorld(t)
	r := request("a")
	w.created(r)
	r.RequestID = requestID(2)
	receipt, err := w.Create(t.Context(), r)
	if err != nil || receipt.Operation != "" {
		t.Errorf("Create of what is there = %+v, %v; want it adopted, without an operation", receipt, err)
	}
	w.only()
	// On its way out it is no machine to adopt.
	w.fake.SetStatus(project, zoneB, r.Name, "STOPPING")
	r.RequestID = requestID(3)
	_, err = w.Create(t.Context(), r)
	w.wantKind("Create of what is leaving", err, provider.KindUnavailable)
}

func TestLabelsThatCannotBeAreNeverSent(t *testing.T) {
	w := newWorld(t)
	r := request("a")
	r.Identity.HubUID = `x" OR labels.a="b`
	_, err := w.Create(t.Context(), r)
	w.wantKind("Create", err, provider.KindInvalidSpec)
	if _, err = w.List(t.Context(), r.Identity); err == nil {
		t.Error("List with a label that cannot be: no error")
	}
	if n := len(w.fake.Calls()); n != 0 {
		t.Errorf("%d calls were made", n)
	}
}

func TestZoneOfTheRefIsLookedAtAlone(t *testing.T) {
	w := newWorld(t, inZones(zoneB, zoneC), with(func(s *gcp.Settings) { s.Spot = false }))
	ref := w.running(request("a"))
	w.fake.SetUnreachable(zoneC, true)
	w.want(ref, provider.StateRunning)
	// Without a zone, all must have said that it is not there.
	_, err := w.Get(t.Context(), provider.Ref{Name: "shoal-other"})
	w.wantKind("Get in zones of which one is silent", err, provider.KindUnavailable)
}
