package report_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/internal/report"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ready() *v1alpha1.Proxy {
	return &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{
			Name: "ps-1-0", UID: "u", CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
			Labels: map[string]string{v1alpha1.LabelPlacementUID: "p-1", v1alpha1.LabelFleetUID: "f-1", "tier": "datacenter"},
		},
		Status: v1alpha1.ProxyStatus{
			Phase: v1alpha1.PhaseReady, Exits: []string{"203.0.113.9"}, Probe: v1alpha1.ProbeSummary{Class: "OK"},
			Endpoints:  []v1alpha1.Endpoint{{Network: v1alpha1.NetworkHostPort, Host: "172.30.0.4", Port: 21000}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "ProbesPass", Message: "m"}},
		},
	}
}

func want(change func(*agentv1.ProxyReport)) *agentv1.ProxyReport {
	r := &agentv1.ProxyReport{
		PlacementUid: "p-1", Name: "ps-1-0", Phase: "Ready", Ready: true, ProbeClass: "OK",
		Exits: []string{"203.0.113.9"}, CreatedAt: timestamppb.New(now.Add(-time.Hour)),
		Endpoints:  []*agentv1.Endpoint{{Network: "HostPort", Host: "172.30.0.4", Port: 21000}},
		Conditions: []*agentv1.Condition{{Type: "Ready", Status: "True", Reason: "ProbesPass", Message: "m"}},
	}
	if change != nil {
		change(r)
	}
	return r
}

func TestProxyReport(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		change  func(*v1alpha1.Proxy)
		verdict *probe.Verdict
		want    *agentv1.ProxyReport
	}{
		"NotJudgedYet": {"after a restart the status stands, without an age", nil, nil, want(nil)},
		"Judged": {
			"age and latency come from the probes", nil,
			&probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, LastOK: now.Add(-3500 * time.Millisecond), Latency: 123456 * time.Microsecond},
			want(func(r *agentv1.ProxyReport) {
				r.ReadyAge, r.Latency = durationpb.New(3*time.Second), durationpb.New(123*time.Millisecond)
			}),
		},
		"FailingNow": {
			"the latest class is told before the verdict turns", nil,
			&probe.Verdict{State: probe.StateReady, Class: probe.ClassProxyDown},
			want(func(r *agentv1.ProxyReport) { r.ProbeClass = string(probe.ClassProxyDown) }),
		},
		"ExitsBeforeTheStatus": {
			"other exits are told although the status does not have them yet", nil,
			&probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, Exits: []netip.Addr{netip.MustParseAddr("198.51.100.3"), netip.MustParseAddr("203.0.113.9")}},
			want(func(r *agentv1.ProxyReport) { r.Exits = []string{"198.51.100.3", "203.0.113.9"} }),
		},
		"ClockSteppedBack": {
			"an age is never negative", nil, &probe.Verdict{State: probe.StateReady, Class: probe.ClassOK, LastOK: now.Add(time.Minute)},
			want(func(r *agentv1.ProxyReport) { r.ReadyAge, r.Latency = durationpb.New(0), durationpb.New(0) }),
		},
		"AskedToDrain": {
			"draining is told before the condition is written",
			func(p *v1alpha1.Proxy) { p.Spec.Drain = &v1alpha1.DrainSpec{Deadline: metav1.NewTime(now)} }, nil,
			want(func(r *agentv1.ProxyReport) { r.Draining = true }),
		},
		"BeingDeleted": {
			"what is being deleted is neither ready nor to be leased",
			func(p *v1alpha1.Proxy) { p.DeletionTimestamp = &metav1.Time{Time: now} }, nil,
			want(func(r *agentv1.ProxyReport) { r.Ready, r.Draining = false, true }),
		},
		"Saturated": {
			"ready, and not to be leased",
			func(p *v1alpha1.Proxy) {
				p.Status.Conditions = append(p.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionSaturated, Status: metav1.ConditionTrue, Reason: "Saturated"})
			}, nil,
			want(func(r *agentv1.ProxyReport) {
				r.Saturated = true
				r.Conditions = append(r.Conditions, &agentv1.Condition{Type: "Saturated", Status: "True", Reason: "Saturated"})
			}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := ready()
			if c.change != nil {
				c.change(p)
			}
			var verdict probe.Verdict
			if c.verdict != nil {
				verdict = *c.verdict
			}
			got := report.ProxyReport(p, verdict, c.verdict != nil, now)
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
		})
	}
}

func TestSetReport(t *testing.T) {
	set := &v1alpha1.ProxySet{
		Spec: v1alpha1.ProxySetSpec{PlacementUID: "p-1", PlacementGeneration: 4},
		Status: v1alpha1.ProxySetStatus{
			PlacementGeneration: 3, Replicas: 5, Ready: 4, Draining: 1,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: "UnknownField", Message: "teleport"}},
		},
	}
	want := &agentv1.ProxySetReport{
		PlacementUid: "p-1", PlacementGeneration: 3, Replicas: 5, Ready: 4, Draining: 1,
		Conditions: []*agentv1.Condition{{Type: "Accepted", Status: "False", Reason: "UnknownField", Message: "teleport"}},
	}
	if diff := cmp.Diff(want, report.SetReport(set, probe.Freeze{}), protocmp.Transform()); diff != "" {
		t.Errorf("the generation that was acted on is told, not the one that was asked for (-want +got):\n%s", diff)
	}
	for reason, text := range map[probe.FreezeReason]string{
		probe.FreezeTargets: "reach no probe target", probe.FreezeProxies: "fail their probes together",
	} {
		got := report.SetReport(set, probe.Freeze{Frozen: true, Reason: reason}).GetConditions()
		if len(got) != 2 || got[1].GetType() != v1alpha1.ConditionDegraded || got[1].GetStatus() != "True" ||
			got[1].GetReason() != v1alpha1.ReasonVerdictsFrozen || !strings.Contains(got[1].GetMessage(), text) {
			t.Errorf("a member whose verdicts freeze with %s says so with %q, but reports %v", reason, text, got)
		}
	}
}
