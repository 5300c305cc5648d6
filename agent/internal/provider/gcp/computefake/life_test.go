package computefake_test

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

// TestLife follows a machine and its operations from the insert to the end.
func TestLife(t *testing.T) {
	f := newFake(t)
	op := f.insert(zoneB, "p-1")
	self := inB + "/instances/p-1"
	steps := []struct {
		after             time.Duration
		operation, status string
		hasNAT            bool
	}{
		{0, "PENDING", "PROVISIONING", false},
		{200 * time.Millisecond, "RUNNING", "PROVISIONING", false},
		{time.Second, "RUNNING", "STAGING", false},
		{2999 * time.Millisecond, "RUNNING", "STAGING", false},
		{3 * time.Second, "DONE", "RUNNING", true},
	}
	for _, s := range steps {
		f.clock.SetTime(start.Add(s.after))
		o, i := f.must("GET", op, ""), f.must("GET", self, "")
		if o.text("status") != s.operation || i.text("status") != s.status {
			t.Errorf("after %v: %s and %s, want %s and %s", s.after, o.text("status"), i.text("status"), s.operation, s.status)
		}
		if nat := i.text("networkInterfaces", 0, "accessConfigs", 0, "natIP"); (nat != "") != s.hasNAT {
			t.Errorf("after %v: natIP %q", s.after, nat)
		}
	}
	if o := f.must("GET", op, ""); o.get("error") != nil || o.get("httpErrorStatusCode") != nil || o.get("progress") != 100.0 {
		t.Errorf("the insert: %s", o.raw)
	}

	del := inB + "/operations/" + f.must("DELETE", self, "").text("name")
	if got := f.must("GET", self, "").text("status"); got != "STOPPING" {
		t.Errorf("after the delete it is %s", got)
	}
	// A second delete is taken, and ends with the first.
	again := inB + "/operations/" + f.must("DELETE", self, "").text("name")
	f.clock.Step(4 * time.Second)
	f.refused(404, "notFound", "GET", self, "")
	for _, op := range []string{del, again} {
		if o := f.must("GET", op, ""); o.text("status") != "DONE" || o.get("error") != nil {
			t.Errorf("the delete: %s", o.raw)
		}
	}
	f.refused(404, "notFound", "DELETE", self, "")
}

// TestShapes looks at what clients read: numbers in quotes, full links, times with an offset, fingerprints.
func TestShapes(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	i := f.must("GET", inB+"/instances/p-1", "")
	const base = "https://www.googleapis.com/compute/v1/projects/" + project
	for _, tt := range []struct {
		want string
		path []any
	}{
		{"compute#instance", []any{"kind"}},
		{base + "/zones/" + zoneB, []any{"zone"}},
		{base + "/zones/" + zoneB + "/instances/p-1", []any{"selfLink"}},
		{base + "/zones/" + zoneB + "/machineTypes/e2-small", []any{"machineType"}},
		{"2026-03-01T04:00:00.000-08:00", []any{"creationTimestamp"}},
		{"2026-03-01T04:00:03.000-08:00", []any{"lastStartTimestamp"}},
		{"nic0", []any{"networkInterfaces", 0, "name"}},
		{"IPV4_ONLY", []any{"networkInterfaces", 0, "stackType"}},
		{base + "/regions/europe-west1/subnetworks/default", []any{"networkInterfaces", 0, "subnetwork"}},
		{"10.128.0.1", []any{"networkInterfaces", 0, "networkIP"}},
		{"198.18.0.1", []any{"networkInterfaces", 0, "accessConfigs", 0, "natIP"}},
		{"10", []any{"disks", 0, "diskSizeGb"}},
		{"STANDARD", []any{"scheduling", "provisioningModel"}},
		{"#cloud-config\n", []any{"metadata", "items", 0, "value"}},
	} {
		if got := i.text(tt.path...); got != tt.want {
			t.Errorf("%v is %q, want %q", tt.path, got, tt.want)
		}
	}
	id := i.text("id")
	if n, err := strconv.ParseInt(id, 10, 64); err != nil || n < 1<<53 {
		t.Errorf("id %q: a number in quotes, too large for a float64", id)
	}
	for _, path := range [][]any{{"labelFingerprint"}, {"metadata", "fingerprint"}, {"tags", "fingerprint"}, {"fingerprint"}} {
		if raw, err := base64.StdEncoding.DecodeString(i.text(path...)); err != nil || len(raw) == 0 {
			t.Errorf("%v is %q, no base64", path, i.text(path...))
		}
	}
	if i.get("disks", 0, "initializeParams") != nil {
		t.Error("initializeParams are served, which are for requests only")
	}
	o := f.Operations(project)[0]
	if o.TargetLink != i.text("selfLink") || strconv.FormatInt(int64(o.TargetID), 10) != id || o.OperationType != "insert" {
		t.Errorf("the operation is of %+v", o)
	}

	region := f.must("GET", "/projects/"+project+"/regions/europe-west1", "")
	usage := map[string]float64{}
	for k := range 20 {
		if m := region.text("quotas", k, "metric"); m != "" {
			usage[m], _ = region.get("quotas", k, "usage").(float64)
		}
	}
	want := map[string]float64{
		"CPUS": 2, "DISKS_TOTAL_GB": 0, "IN_USE_ADDRESSES": 1, "INSTANCES": 1, "PREEMPTIBLE_CPUS": 0, "SSD_TOTAL_GB": 10, "STATIC_ADDRESSES": 0,
	}
	if diff := cmp.Diff(want, usage); diff != "" {
		t.Errorf("quotas in use: %s", diff)
	}
	if z := f.must("GET", "/projects/"+project+"/zones/"+zoneC, ""); z.text("status") != "UP" || z.text("region") != base+"/regions/europe-west1" {
		t.Errorf("the zone is %s", z.raw)
	}
	if z := f.must("GET", "/projects/"+project+"/zones?filter=name%3Dus-east1-d", ""); z.text("items", 0, "name") != zoneU || z.get("items", 1) != nil {
		t.Errorf("zones: %s", z.raw)
	}
	if r := f.must("GET", "/projects/"+project+"/regions", ""); r.text("items", 1, "name") != "us-east1" {
		t.Errorf("regions: %s", r.raw)
	}
}

// TestFailedInsert has every way in which an insert that was taken fails: 200 first, a machine to be seen for a while,
// an operation with an error, and then nothing, so that the name is free.
func TestFailedInsert(t *testing.T) {
	tests := map[string]struct {
		arrange func(*fake)
		edits   []string
		code    string
		status  any // httpErrorStatusCode
		detail  string
	}{
		"Stockout":       {arrange: func(f *fake) { f.Stockout(zoneB, computefake.Stockout{}) }, code: "ZONE_RESOURCE_POOL_EXHAUSTED", status: 503.0},
		"StockoutSilent": {arrange: func(f *fake) { f.Stockout(zoneB, computefake.Stockout{WithoutHTTPStatus: true}) }, code: "ZONE_RESOURCE_POOL_EXHAUSTED"},
		"StockoutDetails": {
			arrange: func(f *fake) {
				f.Stockout(zoneB, computefake.Stockout{WithDetails: true, ZonesAvailable: []string{zoneC}})
			},
			code: "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", status: 503.0, detail: `"zonesAvailable":"europe-west1-c"`,
		},
		"Quota": {
			arrange: func(f *fake) { f.SetQuota(project, "europe-west1", computefake.MetricInUseAddresses, 0) },
			code:    "QUOTA_EXCEEDED", status: 403.0, detail: `"metricName":"compute.googleapis.com/in_use_addresses"`,
		},
		"QuotaOfProject": {
			arrange: func(f *fake) { f.SetQuota(project, "", computefake.MetricCPUsAllRegions, 1) },
			code:    "QUOTA_EXCEEDED", status: 403.0, detail: `"metricName":"compute.googleapis.com/cpus_all_regions"`,
		},
		"Image": {edits: []string{"family/cos-stable", "family/cos-old"}, code: "RESOURCE_NOT_FOUND", status: 404.0},
		"Planned": {
			arrange: func(f *fake) {
				f.FailInserts(computefake.InsertFailure{Zone: zoneB, Times: 1, Failure: computefake.OperationFailure{Code: "IP_SPACE_EXHAUSTED", Message: "full"}})
			},
			code: "IP_SPACE_EXHAUSTED",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			if tt.arrange != nil {
				tt.arrange(f)
			}
			op := inB + "/operations/" + f.must("POST", inB+"/instances", vm("p-1", tt.edits...)).text("name")
			if got := f.must("GET", inB+"/instances/p-1", "").text("status"); got != "PROVISIONING" {
				t.Errorf("before the failure it is %s", got)
			}
			f.clock.Step(2 * time.Second)
			o := f.must("GET", op, "")
			if o.text("status") != "DONE" || o.text("error", "errors", 0, "code") != tt.code || o.get("httpErrorStatusCode") != tt.status {
				t.Errorf("the operation is %s", o.raw)
			}
			if !strings.Contains(o.raw, tt.detail) {
				t.Errorf("details: want %s in %s", tt.detail, o.raw)
			}
			f.refused(404, "notFound", "GET", inB+"/instances/p-1", "")
			f.clock.Step(time.Hour)
			if left := f.Instances(project); len(left) != 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// TestDeletedWhileStarting fails the insert, so that nobody takes the machine for made.
func TestDeletedWhileStarting(t *testing.T) {
	f := newFake(t)
	op := f.insert(zoneB, "p-1")
	f.clock.Step(time.Second)
	f.must("DELETE", inB+"/instances/p-1", "")
	o := f.must("GET", op, "")
	if o.text("status") != "DONE" || o.get("httpErrorStatusCode") != 409.0 || o.get("error") == nil {
		t.Errorf("the insert is %s", o.raw)
	}
	f.clock.Step(time.Hour)
	f.refused(404, "notFound", "GET", inB+"/instances/p-1", "")
}

// TestStopAndStart keeps a machine and its disk, but not its address.
func TestStopAndStart(t *testing.T) {
	f := newFake(t)
	f.running(zoneB, "p-1")
	self := inB + "/instances/p-1"
	nat := func() string {
		return f.must("GET", self, "").text("networkInterfaces", 0, "accessConfigs", 0, "natIP")
	}
	first := nat()
	f.must("POST", self+"/stop", "")
	f.refused(400, "resourceNotReady", "POST", self+"/start", "")
	f.clock.Step(4 * time.Second)
	if got := f.must("GET", self, ""); got.text("status") != "TERMINATED" || nat() != "" {
		t.Errorf("stopped: %s", got.raw)
	}
	f.must("POST", self+"/start", "")
	f.clock.Step(3 * time.Second)
	if got := f.must("GET", self, "").text("status"); got != "RUNNING" || nat() == "" || nat() == first {
		t.Errorf("started: %s at %q, which was at %q", got, nat(), first)
	}
	f.must("POST", self+"/stop", "")
	f.clock.Step(4 * time.Second)
	f.must("DELETE", self, "")
	f.clock.Step(4 * time.Second)
	f.refused(404, "notFound", "GET", self, "")
}

// TestTakenBack has the machines that leave by themselves.
func TestTakenBack(t *testing.T) {
	const spot = `"provisioningModel": "SPOT", "automaticRestart": false`
	tests := map[string]struct {
		scheduling string
		preempt    bool
		leaves     time.Duration // after it ran
		gone       bool
		operation  string
	}{
		"SpotDeleted": {spot + `, "instanceTerminationAction": "DELETE"`, true, 30 * time.Second, true, "compute.instances.preempted"},
		"SpotStopped": {spot, true, 30 * time.Second, false, "compute.instances.preempted"},
		"RunOutDeleted": {
			`"automaticRestart": false, "instanceTerminationAction": "DELETE", "maxRunDuration": {"seconds": "60"}`, false, 64 * time.Second, true, "delete",
		},
		"RunOutStopped": {
			`"automaticRestart": false, "instanceTerminationAction": "STOP", "maxRunDuration": {"seconds": 60}`, false, 64 * time.Second, false, "stop",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.must("POST", inB+"/instances", vm("p-1", `"automaticRestart": false`, tt.scheduling))
			if f.Preempt(project, zoneB, "p-1") {
				t.Error("a machine that does not run was preempted")
			}
			f.clock.Step(3 * time.Second)
			if tt.preempt && !f.Preempt(project, zoneB, "p-1") {
				t.Fatal("not preempted")
			}
			f.clock.Step(tt.leaves - time.Second)
			if got := f.must("GET", inB+"/instances/p-1", "").text("status"); got != "STOPPING" {
				t.Errorf("on its way out it is %s", got)
			}
			f.clock.Step(time.Second)
			if tt.gone {
				f.refused(404, "notFound", "GET", inB+"/instances/p-1", "")
			} else if got := f.must("GET", inB+"/instances/p-1", "").text("status"); got != "TERMINATED" {
				t.Errorf("after it is %s", got)
			}
			ops := f.must("GET", inB+"/operations?filter=operationType%3D%22"+tt.operation+"%22", "")
			if o := ops.get("items", 0); o == nil || ops.text("items", 0, "status") != "DONE" || ops.text("items", 0, "user") != "system" {
				t.Errorf("operations: %s", ops.raw)
			}
		})
	}
}
