package computefake_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

const (
	firstID  = "6f0c6d2e-3f3d-5d6f-8a35-0f4f4a6d0001"
	secondID = "6f0c6d2e-3f3d-5d6f-8a35-0f4f4a6d0002"
)

// TestRequestID answers the same ID with the same operation, whatever became of it.
func TestRequestID(t *testing.T) {
	f := newFake(t)
	f.Stockout(zoneB, computefake.Stockout{})
	path := inB + "/instances?requestId="
	first := f.must("POST", path+firstID, vm("p-1")).text("name")
	if got := f.must("POST", path+firstID, vm("p-1")).text("name"); got != first {
		t.Errorf("at once: %s, not %s", got, first)
	}
	f.clock.Step(10 * time.Minute)
	f.Restock(zoneB)
	again := f.must("POST", path+firstID, vm("p-1"))
	if again.text("name") != first || again.text("status") != "DONE" || again.get("error") == nil {
		t.Errorf("after it failed: %s", again.raw)
	}
	f.refused(404, "notFound", "GET", inB+"/instances/p-1", "")
	second := f.must("POST", path+secondID, vm("p-1"))
	if second.text("name") == first {
		t.Error("another ID is answered with the first operation")
	}
	f.refused(409, "alreadyExists", "POST", inB+"/instances?requestId="+"6f0c6d2e-3f3d-5d6f-8a35-0f4f4a6d0003", vm("p-1"))
	f.refused(400, "invalid", "DELETE", inB+"/instances/p-1?requestId="+secondID, "")
	// IDs are of a zone, and are forgotten.
	f.must("POST", "/projects/"+project+"/zones/"+zoneC+"/instances?requestId="+firstID, vmIn(zoneC, "p-1"))
	f.clock.Step(time.Hour)
	f.refused(409, "alreadyExists", "POST", path+secondID, vm("p-1"))
	if n := len(f.Instances(project)); n != 2 {
		t.Errorf("%d machines", n)
	}
}

// TestAnswersGoWrong has the faults in which the world is right and the answer is not.
func TestAnswersGoWrong(t *testing.T) {
	f := newFake(t)
	op, self := f.insert(zoneB, "p-1"), inB+"/instances/p-1"
	f.FailPolls(2)
	f.FlakeGets("p-1", 1)
	f.refused(503, "backendError", "GET", op, "")
	f.refused(503, "backendError", "GET", op, "")
	f.must("GET", op, "")
	f.refused(404, "notFound", "GET", self, "")
	f.must("GET", self, "")

	limit := f.RateLimit("", 3)
	a := f.refused(403, "rateLimitExceeded", "DELETE", self, "")
	if a.text("error", "errors", 0, "domain") != "usageLimits" {
		t.Errorf("its shape: %s", a.raw)
	}
	f.refused(403, "rateLimitExceeded", "GET", self, "")
	limit()
	if got := f.must("GET", self, "").text("status"); got != "PROVISIONING" {
		t.Errorf("a refused delete was done: %s", got)
	}

	f.SetStatus(project, zoneB, "p-1", "CONTEMPLATING")
	if got := f.must("GET", self, "").text("status"); got != "CONTEMPLATING" {
		t.Errorf("status %s", got)
	}
	f.SetStatus(project, zoneB, "p-1", "")

	f.clock.Step(3 * time.Second)
	f.CollectOperations()
	f.refused(404, "notFound", "GET", op, "")
	if got := f.must("GET", inB+"/operations", ""); got.get("items") != nil {
		t.Errorf("collected operations are listed: %s", got.raw)
	}
	if !f.Vanish(project, zoneB, "p-1") || f.Vanish(project, zoneB, "p-1") {
		t.Error("it vanishes once")
	}
	f.refused(404, "notFound", "GET", self, "")
}

// TestLostReply does the work and tells nobody.
func TestLostReply(t *testing.T) {
	f := newFake(t)
	f.LoseReplies("instances.insert", 1)
	if a, err := f.try(t.Context(), "POST", inB+"/instances", vm("p-1")); err == nil {
		t.Fatalf("answered: %s", a.raw)
	}
	f.must("GET", inB+"/instances/p-1", "")
	calls := f.Calls()
	if calls[0].Method != "instances.insert" || calls[0].Status != 0 {
		t.Errorf("noted %+v", calls[0])
	}
	f.ResetCalls()
	if len(f.Calls()) != 0 {
		t.Error("calls are left")
	}
}

// TestHang answers never, and does nothing.
func TestHang(t *testing.T) {
	f := newFake(t)
	remove := f.Inject(computefake.Fault{Method: "instances.insert", Location: zoneB, Hang: true})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := f.try(ctx, "POST", inB+"/instances", vm("p-1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	f.insert(zoneC, "p-2")
	remove()
	f.insert(zoneB, "p-1")
}

// TestLatency waits by the fake's clock.
func TestLatency(t *testing.T) {
	f := newFake(t)
	f.Inject(computefake.Fault{Method: "instances.list", Skip: 1, Times: 1, Latency: time.Minute})
	f.must("GET", inB+"/instances", "")
	answered := make(chan answer)
	go func() { answered <- f.call("GET", inB+"/instances", "") }()
	waitForTimer(t, f)
	select {
	case a := <-answered:
		t.Fatalf("answered early: %s", a.raw)
	default:
	}
	f.clock.Step(time.Minute)
	if a := <-answered; a.code != 200 {
		t.Errorf("answered %s", a.raw)
	}
}

// waitForTimer returns once the fake waits on its clock.
func waitForTimer(t *testing.T, f *fake) {
	t.Helper()
	for !f.clock.HasWaiters() {
		if t.Context().Err() != nil {
			t.Fatal("nobody waits")
		}
		time.Sleep(time.Millisecond)
	}
}

// TestWait holds the answer back until the operation is done.
func TestWait(t *testing.T) {
	f := newFake(t)
	op := f.insert(zoneB, "p-1")
	answered := make(chan answer)
	go func() { answered <- f.call("POST", op+"/wait", "") }()
	for _, step := range []time.Duration{200 * time.Millisecond, 800 * time.Millisecond, 2 * time.Second} {
		waitForTimer(t, f)
		f.clock.Step(step)
	}
	if a := <-answered; a.text("status") != "DONE" {
		t.Errorf("answered %s", a.raw)
	}
}

// TestQuota counts what is used and gives it back.
func TestQuota(t *testing.T) {
	f := newFake(t)
	f.SetQuota(project, "europe-west1", computefake.MetricInUseAddresses, 1)
	f.RefuseQuotaAtOnce(true)
	f.running(zoneB, "p-1")
	inC := "/projects/" + project + "/zones/" + zoneC + "/instances"
	a := f.refused(403, "quotaExceeded", "POST", inC, vmIn(zoneC, "p-2"))
	if want := "Quota 'IN_USE_ADDRESSES' exceeded.  Limit: 1.0 in region europe-west1."; a.text("error", "message") != want {
		t.Errorf("it says %s", a.raw)
	}
	f.running(zoneU, "p-3") // another region
	f.must("DELETE", inB+"/instances/p-1", "")
	f.clock.Step(4 * time.Second)
	f.running(zoneC, "p-2")
}

// TestMetadata replaces metadata under a fingerprint; of two changes at once one fails.
func TestMetadata(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	self := inB + "/instances/p-1"
	mark := f.must("GET", self, "").text("metadata", "fingerprint")
	set := func(value string) string {
		a := f.must("POST", self+"/setMetadata", `{"fingerprint": "`+mark+`", "items": [{"key": "k", "value": "`+value+`"}]}`)
		return inB + "/operations/" + a.text("name")
	}
	one, two := set("one"), set("two")
	f.clock.Step(500 * time.Millisecond)
	if o := f.must("GET", one, ""); o.text("status") != "DONE" || o.get("error") != nil {
		t.Errorf("the first: %s", o.raw)
	}
	if o := f.must("GET", two, ""); o.get("httpErrorStatusCode") != 412.0 || o.get("error") == nil {
		t.Errorf("the second: %s", o.raw)
	}
	i := f.must("GET", self, "")
	if i.text("metadata", "items", 0, "value") != "one" || i.text("metadata", "fingerprint") == mark {
		t.Errorf("now %s", i.raw)
	}

	mark = i.text("labelFingerprint")
	f.must("POST", self+"/setLabels", `{"labelFingerprint": "`+mark+`", "labels": {"a": "b"}}`)
	f.refused(400, "invalid", "POST", self+"/setLabels", `{"labelFingerprint": "`+mark+`", "labels": {"A": "b"}}`)
	f.clock.Step(500 * time.Millisecond)
	if diff := cmp.Diff(map[string]string{"a": "b"}, f.Instances(project)[0].Labels); diff != "" {
		t.Error(diff)
	}
	f.refused(412, "conditionNotMet", "POST", self+"/setLabels", `{"labelFingerprint": "`+mark+`", "labels": {}}`)
}

// TestAddresses reserves an address, uses it and gives it back.
func TestAddresses(t *testing.T) {
	f := newFake(t)
	f.SetQuota(project, "europe-west1", computefake.MetricStaticAddresses, 1)
	region := "/projects/" + project + "/regions/europe-west1"
	op := f.must("POST", region+"/addresses", `{"name": "exit-1"}`).text("name")
	f.clock.Step(500 * time.Millisecond)
	if o := f.must("GET", region+"/operations/"+op, ""); o.text("status") != "DONE" || o.text("region") == "" {
		t.Errorf("the operation: %s", o.raw)
	}
	f.refused(403, "quotaExceeded", "POST", region+"/addresses", `{"name": "exit-2"}`)
	f.refused(409, "alreadyExists", "POST", region+"/addresses", `{"name": "exit-1"}`)
	f.refused(400, "invalid", "POST", region+"/addresses", `{"name": "exit-2", "addressType": "INTERNAL"}`)
	self := region + "/addresses/exit-1"
	addr := f.must("GET", self, "").text("address")
	withAddress := func(name string) string { return vm(name, `"type": "ONE_TO_ONE_NAT"`, `"natIP": "`+addr+`"`) }
	f.must("POST", inB+"/instances", withAddress("p-1"))
	f.clock.Step(3 * time.Second)
	if got := f.must("GET", inB+"/instances/p-1", "").text("networkInterfaces", 0, "accessConfigs", 0, "natIP"); got != addr {
		t.Errorf("it leaves by %s, not %s", got, addr)
	}
	if a := f.must("GET", self, ""); a.text("status") != "IN_USE" || a.text("users", 0) == "" {
		t.Errorf("in use: %s", a.raw)
	}
	f.refused(400, "resourceInUseByAnotherResource", "POST", inB+"/instances", withAddress("p-2"))
	f.refused(400, "resourceInUseByAnotherResource", "DELETE", self, "")
	agg := f.must("GET", "/projects/"+project+"/aggregated/addresses?filter=status%3DIN_USE", "")
	if agg.text("items", "regions/europe-west1", "addresses", 0, "name") != "exit-1" || agg.text("items", "global", "warning", "code") != "NO_RESULTS_ON_PAGE" {
		t.Errorf("aggregated: %s", agg.raw)
	}
	f.must("DELETE", inB+"/instances/p-1", "")
	f.clock.Step(4 * time.Second)
	if a := f.must("GET", self, ""); a.text("status") != "RESERVED" || a.get("users") != nil {
		t.Errorf("free: %s", a.raw)
	}
	f.must("DELETE", self, "")
	f.refused(404, "notFound", "GET", self, "")
	if a := f.must("GET", region+"/addresses", ""); a.get("items") != nil {
		t.Errorf("left: %s", a.raw)
	}
}

// TestAccessConfig changes the external address of a machine that runs.
func TestAccessConfig(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	self := inB + "/instances/p-1"
	const add, remove = "/addAccessConfig?networkInterface=nic0", "/deleteAccessConfig?networkInterface=nic0&accessConfig=External+NAT"
	first := f.must("GET", self, "").text("networkInterfaces", 0, "accessConfigs", 0, "natIP")
	f.refused(400, "badRequest", "POST", self+add, `{"name": "External NAT"}`)
	f.must("POST", self+remove, "")
	if i := f.must("GET", self, ""); i.get("networkInterfaces", 0, "accessConfigs") != nil {
		t.Errorf("left: %s", i.raw)
	}
	f.must("POST", self+add, `{"name": "External NAT", "type": "ONE_TO_ONE_NAT"}`)
	f.clock.Step(500 * time.Millisecond)
	if got := f.must("GET", self, "").text("networkInterfaces", 0, "accessConfigs", 0, "natIP"); got == "" || got == first {
		t.Errorf("it leaves by %q, and left by %q", got, first)
	}
}

// TestIPv6 gives an address of the second family where the subnetwork has one.
func TestIPv6(t *testing.T) {
	f := newFake(t, func(o *computefake.Options) { o.DualStackSubnetworks = []string{"dual"} })
	f.must("POST", inB+"/instances", vm("p-1", `"network": "global/networks/default"`, `"subnetwork": "regions/europe-west1/subnetworks/dual",
		"stackType": "IPV4_IPV6", "ipv6AccessConfigs": [{"type": "DIRECT_IPV6", "networkTier": "PREMIUM"}]`))
	f.clock.Step(3 * time.Second)
	i := f.must("GET", inB+"/instances/p-1", "")
	if i.text("networkInterfaces", 0, "ipv6AccessConfigs", 0, "externalIpv6") == "" || i.text("networkInterfaces", 0, "stackType") != "IPV4_IPV6" {
		t.Errorf("it is %s", i.raw)
	}
}
