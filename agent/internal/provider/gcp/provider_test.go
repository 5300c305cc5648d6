package gcp_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/providertest"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func TestConformance(t *testing.T) {
	for name, change := range map[string]func(*gcp.Settings){
		"Ephemeral": func(*gcp.Settings) {},
		"Static":    func(s *gcp.Settings) { s.Address = gcp.AddressStatic },
		"Spot":      func(s *gcp.Settings) { s.Spot = true },
		"Internal":  func(s *gcp.Settings) { s.Endpoint, s.Address = gcp.ExposureInternal, gcp.AddressNone },
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) providertest.Subject {
				return subject(newWorld(t, inZones(zoneB, zoneC, zoneD), with(change), failAtOnce))
			})
		})
	}
}

func failAtOnce(s *setup) { s.fake.Timing.Fail = -1 }

// subject is a world as the suite wants it.
func subject(w *world) providertest.Subject {
	place := func(name string) string {
		for _, i := range w.fake.Instances(project) {
			if i.Name == name {
				return path.Base(i.Zone)
			}
		}
		w.t.Fatalf("there is no instance %s", name)
		return ""
	}
	s := providertest.Subject{
		Provider: w.Provider, Network: v1alpha1.NetworkVM,
		Owner: func(_ *testing.T, name string) (provider.Owner, provider.Identity) {
			return provider.Owner{Namespace: namespace, Name: name, UID: "uid-" + name}, identity("uid-" + name)
		},
		Start:     func(*testing.T, string) { w.clock.Step(3 * time.Second) },
		Finish:    func(*testing.T, string) { w.clock.Step(time.Minute) },
		Foreign:   func(_ *testing.T, zone, name string) { w.foreign(zone, name, map[string]string{"app": "bank"}) },
		Fail:      func(_ *testing.T, name string) { w.fake.SetStatus(project, place(name), name, "TERMINATED") },
		LoseReply: func(*testing.T) { w.fake.LoseReplies("instances.insert", 1) },
		Dark: func(_ *testing.T, zones ...string) {
			for _, zone := range []string{zoneB, zoneC, zoneD} {
				w.fake.SetUnreachable(zone, slices.Contains(zones, zone))
			}
		},
	}
	if w.settings.Spot {
		s.Preempt = func(_ *testing.T, name string) { w.fake.Preempt(project, place(name), name) }
	}
	if w.settings.Address != gcp.AddressStatic {
		// The address that is left then is listed, as it must be, and the suite would take it for an instance.
		s.Vanish = func(_ *testing.T, name string) { w.fake.Vanish(project, place(name), name) }
		s.Refuse = func(_ *testing.T, kind provider.Kind) {
			code := map[provider.Kind]string{provider.KindQuotaExceeded: "QUOTA_EXCEEDED", provider.KindCapacityExhausted: "ZONE_RESOURCE_POOL_EXHAUSTED"}[kind]
			w.fake.FailInserts(computefake.InsertFailure{Times: 1, Failure: computefake.OperationFailure{Code: code}})
		}
	}
	return s
}

func TestMachineIsWhatWasAskedFor(t *testing.T) {
	day := 24 * time.Hour
	w := newWorld(t, with(func(s *gcp.Settings) {
		s.Spot, s.MaxRunDuration, s.DiskGB, s.NetworkTier = true, &day, 20, gcp.TierStandard
		s.Tags, s.Labels, s.MachineType, s.Subnetwork = []string{"one", "two"}, map[string]string{"team": "crawl"}, "e2-micro", "default"
	}))
	w.created(request("a"))
	i := w.only()
	if i.Shielded == nil || !i.Shielded.EnableSecureBoot || !i.Shielded.EnableVtpm || !i.Shielded.EnableIntegrityMonitoring {
		t.Errorf("it is not shielded: %+v", i.Shielded)
	}
	if len(i.ServiceAccounts) != 0 {
		t.Errorf("it has a service account: %+v", i.ServiceAccounts)
	}
	s := i.Scheduling
	if s.ProvisioningModel != "SPOT" || s.InstanceTerminationAction != "DELETE" || s.MaxRunDuration == nil || s.MaxRunDuration.Seconds != 86400 {
		t.Errorf("scheduling = %+v, want Spot, and gone by itself after a day", s)
	}
	if !slices.Equal(i.Tags.Items, []string{"one", "two"}) || !strings.HasSuffix(i.MachineType, "/e2-micro") || i.Disks[0].DiskSizeGB != 20 || !i.Disks[0].AutoDelete {
		t.Errorf("tags %v, machine type %s, disk %+v", i.Tags.Items, i.MachineType, i.Disks[0])
	}
	if a := i.NetworkInterfaces[0].AccessConfigs; len(a) != 1 || a[0].NetworkTier != "STANDARD" {
		t.Errorf("access = %+v, want one of tier STANDARD", a)
	}
	for key, want := range map[string]string{
		"shoal-managed-by": "shoal-agent", "shoal-proxy-uid": "a", "shoal-hub-uid": "hub", "shoal-member-uid": "member",
		"shoal-home-uid": "home", "shoal-spec-hash": "0123456789abcdef", "team": "crawl",
	} {
		if i.Labels[key] != want {
			t.Errorf("label %s = %q, want %q", key, i.Labels[key], want)
		}
	}
}

func TestMachineWithoutBoundNeverEndsByItself(t *testing.T) {
	none := time.Duration(0)
	w := newWorld(t, with(func(s *gcp.Settings) { s.MaxRunDuration = &none }))
	w.created(request("a"))
	if s := w.only().Scheduling; s.MaxRunDuration != nil || s.InstanceTerminationAction != "" || s.AutomaticRestart == nil || !*s.AutomaticRestart {
		t.Errorf("scheduling = %+v, want no end", s)
	}
}

func TestStates(t *testing.T) {
	w := newWorld(t)
	ref := w.running(request("a"))
	for status, want := range map[string]provider.State{
		"PENDING": provider.StatePending, "PROVISIONING": provider.StatePending, "STAGING": provider.StatePending, "RUNNING": provider.StateRunning,
		"PENDING_STOP": provider.StateStopping, "STOPPING": provider.StateStopping, "DEPROVISIONING": provider.StateStopping,
		"STOPPED": provider.StateFailed, "TERMINATED": provider.StateFailed, "SUSPENDED": provider.StateFailed,
		"SUSPENDING": provider.StateUnknown, "REPAIRING": provider.StateUnknown, "FROZEN_SOLID": provider.StateUnknown,
	} {
		w.fake.SetStatus(project, zoneB, ref.Name, status)
		i, err := w.Get(t.Context(), ref)
		if err != nil || i.State != want || i.Preempted || (want == provider.StateRunning) != (len(i.Endpoints) == 1) {
			t.Errorf("%s = %+v, %v; want %s", status, i, err, want)
		}
	}
}

func TestProviderIDNeedsNothingBesideIt(t *testing.T) {
	w := newWorld(t)
	ref := w.running(request("a"))
	i := w.want(ref, provider.StateRunning)
	if want := project + "/" + zoneB + "/" + ref.Name; i.ProviderID != want || i.Zone != zoneB {
		t.Errorf("provider ID %q in zone %q, want %q", i.ProviderID, i.Zone, want)
	}
}

func TestPreemptionIsSeen(t *testing.T) {
	w := newWorld(t, with(func(s *gcp.Settings) { s.Spot = true }))
	ref := w.running(request("a"))
	if w.want(ref, provider.StateRunning).Preempted {
		t.Error("it is preempted while it runs")
	}
	if !w.fake.Preempt(project, zoneB, ref.Name) {
		t.Fatal("nothing to preempt")
	}
	if i := w.want(ref, provider.StateStopping); !i.Preempted || len(i.Endpoints) != 0 {
		t.Errorf("instance = %+v, want it preempted", i)
	}
	w.clock.Step(time.Minute)
	w.wantGone(ref)
}

// What is stopped is billed for its disk.
func TestStoppedMachineIsDeleted(t *testing.T) {
	for _, status := range []string{"TERMINATED", "STOPPED"} {
		w := newWorld(t)
		ref := w.running(request("a"))
		w.fake.SetStatus(project, zoneB, ref.Name, status)
		w.wantKind("Delete", w.Delete(t.Context(), ref, identity("a"), provider.DeleteOptions{}), "")
		w.clock.Step(time.Minute)
		w.wantGone(ref)
	}
}

// A second request for the same end is answered with a rate limit, or with a 404 that is not true.
func TestDeletionUnderWayIsNotAskedForAgain(t *testing.T) {
	w := newWorld(t)
	ref := w.running(request("a"))
	for _, status := range []string{"STOPPING", "PENDING_STOP", "DEPROVISIONING"} {
		w.fake.SetStatus(project, zoneB, ref.Name, status)
		w.wantKind("Delete", w.Delete(t.Context(), ref, identity("a"), provider.DeleteOptions{}), "")
	}
	if n := w.calls("instances.delete"); n != 0 {
		t.Errorf("%d calls to delete what is on its way out", n)
	}
}

func TestGracefulShutdownIsSkippedOnceDrained(t *testing.T) {
	for _, drained := range []bool{false, true} {
		w := newWorld(t)
		ref := w.running(request("a"))
		w.wantKind("Delete", w.Delete(t.Context(), ref, identity("a"), provider.DeleteOptions{Drained: drained}), "")
		i := slices.IndexFunc(w.fake.Calls(), func(c computefake.Call) bool { return c.Method == "instances.delete" })
		if got := w.fake.Calls()[i].Query.Get("noGracefulShutdown") == "true"; got != drained {
			t.Errorf("drained %v: graceful shutdown is skipped: %v", drained, got)
		}
	}
}

func TestZonesAreChosenByProxyAndSettings(t *testing.T) {
	w := newWorld(t, inZones(zoneB, zoneC, zoneD))
	firsts := map[string]int{}
	for i := range 300 {
		uid := fmt.Sprintf("uid-%d", i)
		zones, err := w.Zones(v1alpha1.ProxySettings{}, uid)
		if err != nil || len(zones) != 3 || !slices.Equal(slices.Sorted(slices.Values(zones)), []string{zoneB, zoneC, zoneD}) {
			t.Fatalf("zones = %v, %v; want all three", zones, err)
		}
		if again, _ := w.Zones(v1alpha1.ProxySettings{}, uid); !slices.Equal(again, zones) {
			t.Fatalf("zones of %s = %v, then %v", uid, zones, again)
		}
		firsts[zones[0]]++
	}
	for zone, n := range firsts {
		if n < 60 || n > 140 {
			t.Errorf("zone %s comes first %d times of 300", zone, n)
		}
	}
	at := func(region, zone string) v1alpha1.ProxySettings {
		return v1alpha1.ProxySettings{Placement: &v1alpha1.InstancePlacement{Region: region, Zone: zone}}
	}
	if zones, err := w.Zones(at(region, zoneC), "x"); err != nil || !slices.Equal(zones, []string{zoneC}) {
		t.Errorf("zones = %v, %v; want the one that was asked for", zones, err)
	}
	for _, s := range []v1alpha1.ProxySettings{at("us-east1", ""), at("", elsewhere)} {
		_, err := w.Zones(s, "x")
		w.wantKind("Zones elsewhere", err, provider.KindInvalidSpec)
	}
}

func TestOptionsAreRefusedWithWhatToWrite(t *testing.T) {
	_, err := gcp.New(gcp.Options{})
	if err == nil {
		t.Error("no options: no error")
	}
	w := newWorld(t)
	_, err = gcp.New(gcp.Options{
		Compute: w.client, Settings: gcp.Settings{Project: "X"}, Region: region, Zones: []string{elsewhere, "../x"},
		Secrets: newSecrets(), Namespace: namespace, Keys: noKeys,
	})
	for _, want := range []string{"project:", "proxyImage:", `"us-east1-b" is no zone of region europe-west1; write such as europe-west1-b`, `"../x" is no zone`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s in it", err, want)
		}
	}
}
