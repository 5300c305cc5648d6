package computefake_test

import (
	"testing"
	"time"
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
