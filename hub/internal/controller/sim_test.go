package controller

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/inventory"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

// sim is a member: it does what dispatch wants of it, when it is cranked, and reports to the inventory. It picks no
// victims and keeps what it has through a restart of the hub.
type sim struct {
	t        *testing.T
	name     string
	epoch    uint64
	made     int
	sets     map[string]*v1alpha1.ProxySetSpec
	secrets  map[string]string    // "user:password" by key, as last sent
	proxies  map[string]*simProxy // by uid
	hub      *hub
	silent   bool // not heard, and hears nothing
	unready  bool // new proxies do not become ready
	frozen   bool // judges no proxy unhealthy
	history  []string
	provider []string
}

type simProxy struct {
	uid, name, placement string
	endpoint             string // of someone else's proxy
	ready                bool
	created              time.Time
}

// connect begins a session with the hub, and reports all there is.
func (m *sim) connect(h *hub) {
	m.hub, m.silent = h, false
	m.epoch++
	now := h.clock.Now()
	h.inventory.Connected(m.name, inventory.Session{
		Epoch: m.epoch, Instance: m.name, Version: "v0.0.0-test", Providers: m.provider, Networks: []string{"PodIP"},
	}, now)
	m.report()
	h.inventory.Resynced(m.name, now)
}

// work does what is wanted, once.
func (m *sim) work() {
	if m.silent || m.hub == nil {
		return
	}
	h := m.hub
	now := h.clock.Now()
	h.inventory.Heard(m.name, now)
	items, tombstones, ready := h.dispatcher.Desired(m.name)
	if !ready {
		return
	}
	for _, item := range items {
		spec := &v1alpha1.ProxySetSpec{}
		if err := json.Unmarshal(item.Spec, spec); err != nil {
			m.t.Fatal(err)
		}
		m.sets[item.UID] = spec
		for _, c := range item.Credentials {
			if m.secrets == nil {
				m.secrets = map[string]string{}
			}
			m.secrets[c.Key] = c.Username + ":" + c.Password
		}
		h.dispatcher.Acked(m.name, item.UID, item.Generation, item.Hash, "")
	}
	for _, uid := range tombstones {
		for _, p := range m.of(uid) {
			m.drop(p)
		}
		delete(m.sets, uid)
		h.inventory.Gone(m.name, uid, now)
		h.dispatcher.TombstoneAcked(m.name, uid)
	}
	for uid, spec := range m.sets {
		m.converge(uid, spec, now)
	}
	m.report()
}

func (m *sim) of(placement string) []*simProxy {
	var list []*simProxy
	for _, uid := range slices.Sorted(maps.Keys(m.proxies)) {
		if p := m.proxies[uid]; p.placement == placement {
			list = append(list, p)
		}
	}
	return list
}

func (m *sim) drop(p *simProxy) {
	delete(m.proxies, p.uid)
	m.history = append(m.history, p.uid)
	m.hub.inventory.Gone(m.name, p.uid, m.hub.clock.Now())
}

// converge makes what is missing and removes what is due. New proxies become ready at the next crank.
func (m *sim) converge(uid string, spec *v1alpha1.ProxySetSpec, now time.Time) {
	drain := map[string]time.Time{}
	for _, d := range spec.Drain {
		drain[d.Name] = d.Deadline.Time
	}
	if spec.External != nil {
		m.convergeOutside(uid, spec, drain, now)
		return
	}
	kept := 0
	for _, p := range m.of(uid) {
		deadline, drains := drain[p.name]
		switch {
		case !drains:
			kept++
			p.ready = p.ready || !m.unready
		case !deadline.After(now):
			m.drop(p)
		}
	}
	for ; kept < int(spec.Replicas); kept++ {
		m.made++
		p := &simProxy{
			uid: fmt.Sprintf("%s-uid-%03d", m.name, m.made), name: fmt.Sprintf("px-%03d", m.made),
			placement: uid, created: now,
		}
		m.proxies[p.uid] = p
	}
}

// convergeOutside has one proxy for each endpoint, and removes none but those in drain.
func (m *sim) convergeOutside(uid string, spec *v1alpha1.ProxySetSpec, drain map[string]time.Time, now time.Time) {
	have := map[string]bool{}
	for _, p := range m.of(uid) {
		have[p.name] = true
		deadline, drains := drain[p.name]
		switch {
		case !drains:
			p.ready = p.ready || !m.unready
		case !deadline.After(now):
			m.drop(p)
		}
	}
	for _, e := range spec.External.Endpoints {
		name := "ps-" + uid[:8] + "-" + e.Name
		if _, drains := drain[name]; have[name] || drains {
			continue
		}
		m.made++
		p := &simProxy{uid: fmt.Sprintf("%s-uid-%03d", m.name, m.made), name: name, placement: uid, created: now, endpoint: e.Host}
		m.proxies[p.uid] = p
	}
}

// probed are the hosts of someone else's proxies that the member probes, sorted.
func (m *sim) probed() []string {
	hosts := []string{}
	for _, p := range m.proxies {
		if p.endpoint != "" {
			hosts = append(hosts, p.endpoint)
		}
	}
	slices.Sort(hosts)
	return hosts
}

// report tells everything.
func (m *sim) report() {
	now := m.hub.clock.Now()
	for _, uid := range slices.Sorted(maps.Keys(m.proxies)) {
		p := m.proxies[uid]
		spec := m.sets[p.placement]
		draining := slices.ContainsFunc(spec.Drain, func(d v1alpha1.Drain) bool { return d.Name == p.name })
		r := &agentv1.ProxyReport{
			PlacementUid: p.placement, Name: p.name, Phase: string(v1alpha1.PhaseProvisioning), Draining: draining,
			CreatedAt: timestamppb.New(p.created),
		}
		if p.ready {
			r.Phase, r.Ready, r.ReadyAge = string(v1alpha1.PhaseReady), true, durationpb.New(time.Second)
			r.Endpoints = []*agentv1.Endpoint{{Network: "PodIP", Host: "10.0.0.1", Port: 3128}}
			r.Exits = []string{"192.0.2." + fmt.Sprint(len(m.name))}
		}
		m.hub.inventory.ObserveProxy(m.name, uid, r, now)
	}
	for uid, spec := range m.sets {
		var report agentv1.ProxySetReport
		report.PlacementUid, report.PlacementGeneration = uid, spec.PlacementGeneration
		for _, p := range m.of(uid) {
			if slices.ContainsFunc(spec.Drain, func(d v1alpha1.Drain) bool { return d.Name == p.name }) {
				report.Draining++
				continue
			}
			report.Replicas++
			if p.ready {
				report.Ready++
			}
		}
		if m.frozen {
			report.Conditions = []*agentv1.Condition{{
				Type: v1alpha1.ConditionDegraded, Status: "True", Reason: v1alpha1.ReasonVerdictsFrozen, Message: "no target is reached",
			}}
		}
		m.hub.inventory.ObserveProxySet(m.name, uid, &report, now)
	}
}

// count tells how many proxies the member runs.
func (m *sim) count() int { return len(m.proxies) }
