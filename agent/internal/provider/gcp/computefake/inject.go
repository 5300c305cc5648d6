package computefake

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is something that goes wrong with calls. Its zero fields match every call.
type Fault struct {
	// Method is the API's name of the calls, such as "instances.get"; Location their zone or region, Resource the
	// instance, operation or address.
	Method, Location, Resource string
	// Skip lets that many matching calls pass first; Times is how many it strikes then, 0 for all until it is removed.
	Skip, Times int

	// Latency is waited out first, by the fake's clock.
	Latency time.Duration
	// Hang never answers: it ends when the caller gives up. Nothing is done.
	Hang bool
	// Status and Reason are answered instead of doing the work; Message may be empty.
	Status  int
	Reason  string
	Message string
	// LoseReply does the work and cuts the connection instead of answering.
	LoseReply bool
}

func (f *Fault) message() string {
	if f.Message != "" {
		return f.Message
	}
	return fmt.Sprintf("Injected: %d %s", f.Status, f.Reason)
}

type fault struct {
	Fault
	left int // strikes; -1 for ever
}

// Inject adds a fault and returns what removes it. Of several faults that match a call, the first added strikes.
func (s *Server) Inject(f Fault) (remove func()) {
	held := &fault{Fault: f, left: -1}
	if f.Times > 0 {
		held.left = f.Times
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, held)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.faults = slices.DeleteFunc(s.faults, func(x *fault) bool { return x == held })
	}
}

// fault takes the fault that strikes a call.
func (s *Server) fault(c *call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		place := c.vars["zone"] + c.vars["region"]
		if f.left == 0 || f.Method != "" && f.Method != c.name || f.Location != "" && f.Location != place ||
			f.Resource != "" && f.Resource != c.resource() {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.left > 0 {
			f.left--
		}
		struck := f.Fault
		return &struck
	}
	return nil
}

// delay waits a fault's latency out and says whether the caller is still there.
func (s *Server) delay(ctx context.Context, f *Fault) bool {
	if f == nil || f.Latency <= 0 {
		return true
	}
	timer := s.o.Clock.NewTimer(f.Latency)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
		return true
	}
}

// FailPolls makes the next polls of operations fail with 503, as when their backend cannot be asked.
func (s *Server) FailPolls(times int) (remove func()) {
	return s.Inject(Fault{
		Method: "zoneOperations.get", Times: times, Status: http.StatusServiceUnavailable, Reason: reasonBackend,
		Message: "Visibility check was unavailable. Please retry the request and contact support if the problem persists",
	})
}

// FlakeGets makes the next gets of an instance answer 404, although it is there.
func (s *Server) FlakeGets(name string, times int) (remove func()) {
	return s.Inject(Fault{
		Method: "instances.get", Resource: name, Times: times, Status: http.StatusNotFound, Reason: reasonNotFound,
		Message: fmt.Sprintf("The resource '%s' was not found", name),
	})
}

// RateLimit answers the next calls of a method, all where it is empty, with 403 rateLimitExceeded.
func (s *Server) RateLimit(method string, times int) (remove func()) {
	f := rateLimited()
	return s.Inject(Fault{Method: method, Times: times, Status: f.code, Reason: f.reason, Message: f.message})
}

// LoseReplies does the work of the next calls of a method and cuts the connection.
func (s *Server) LoseReplies(method string, times int) (remove func()) {
	return s.Inject(Fault{Method: method, Times: times, LoseReply: true})
}

// Stockout says how a zone has run out of machines.
type Stockout struct {
	// WithDetails gives the code and the details that newer answers have.
	WithDetails bool
	// WithoutHTTPStatus leaves the operation's httpErrorStatusCode out.
	WithoutHTTPStatus bool
	// ZonesAvailable are named in the details.
	ZonesAvailable []string
}

func (s Stockout) failure(i *instance) *OperationFailure {
	machine := i.MachineType[strings.LastIndexByte(i.MachineType, '/')+1:]
	f := &OperationFailure{
		Code: "ZONE_RESOURCE_POOL_EXHAUSTED", HTTPStatus: http.StatusServiceUnavailable,
		Message: fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  Try a different zone, or try again later.", i.project, i.zone),
	}
	if s.WithDetails {
		f.Code += "_WITH_DETAILS"
		f.Message = fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  '(resource type:compute)'.", i.project, i.zone)
		f.Details = []ErrorDetail{
			{ErrorInfo: &ErrorInfo{Reason: "stockout", Domain: computeDomain, Metadatas: map[string]string{
				"vmType": machine, "zone": i.zone, "zonesAvailable": strings.Join(s.ZonesAvailable, ","), "attachment": "",
			}}},
			{LocalizedMessage: &LocalizedMessage{Locale: "en-US", Message: fmt.Sprintf("A %s VM instance is currently unavailable in the %s zone.", machine, i.zone)}},
		}
	}
	if s.WithoutHTTPStatus {
		f.HTTPStatus = 0
	}
	return f
}

// InsertFailure makes inserts fail in their operations.
type InsertFailure struct {
	// Zone and Name say which; empty fields match all.
	Zone, Name string
	// Times is how many, 0 for all from now on.
	Times int
	// Failure is what the operation says.
	Failure OperationFailure
}

// locked changes the world now.
func (s *Server) locked(do func(w *world, now time.Time)) {
	s.mu.Lock()
	now := s.o.Clock.Now()
	s.world.advance(now)
	do(s.world, now)
	changed := s.changed
	s.mu.Unlock()
	changed()
}

// FailInserts plans failures of inserts.
func (s *Server) FailInserts(f InsertFailure) {
	s.locked(func(w *world, _ time.Time) { w.faults.failInserts = append(w.faults.failInserts, &f) })
}

// Stockout makes a zone have no machines.
func (s *Server) Stockout(zone string, how Stockout) {
	s.locked(func(w *world, _ time.Time) { w.faults.stockouts[zone] = how })
}

// Restock ends a stockout.
func (s *Server) Restock(zone string) {
	s.locked(func(w *world, _ time.Time) { delete(w.faults.stockouts, zone) })
}

// SetQuota sets the limit of a metric in a region of a project. For a metric of the whole project the region is empty.
func (s *Server) SetQuota(project, region, metric string, limit float64) {
	s.locked(func(w *world, _ time.Time) { w.faults.quotas[quotaKey{project, region, metric}] = limit })
}

// RefuseQuotaAtOnce makes an insert beyond a quota fail with 403 at once, instead of in its operation.
func (s *Server) RefuseQuotaAtOnce(on bool) {
	s.locked(func(w *world, _ time.Time) { w.faults.quotaSync = on })
}

// SetListLag keeps new instances out of lists for a while.
func (s *Server) SetListLag(d time.Duration) {
	s.locked(func(w *world, _ time.Time) { w.faults.listLag = d })
}

// SetUnreachable cuts a zone off, or brings it back. Lists then lack it, or fail for those who did not ask for partial
// success; what names the zone fails with 503. What is in the zone goes on.
func (s *Server) SetUnreachable(zone string, on bool) {
	s.locked(func(w *world, _ time.Time) { w.faults.unreachable[zone] = on })
}

// SetStatus makes an instance show a status, whatever it does, until it is gone; an empty one shows the truth again.
func (s *Server) SetStatus(project, zone, name, status string) {
	s.locked(func(w *world, _ time.Time) {
		path := fmt.Sprintf("projects/%s/zones/%s/instances/%s", project, zone, name)
		if status == "" {
			delete(w.faults.statuses, path)
			return
		}
		w.faults.statuses[path] = status
	})
}

// CollectOperations makes the API forget every operation that is done.
func (s *Server) CollectOperations() {
	s.locked(func(w *world, _ time.Time) {
		for _, p := range w.projects {
			for _, scope := range p.operations {
				for _, o := range scope {
					o.collected = o.collected || o.Status == opDone
				}
			}
		}
	})
}

// Preempt takes a machine back, and says whether it was there and running. It is STOPPING for Timing.Preempt, and gone
// or TERMINATED then, as its instanceTerminationAction says.
func (s *Server) Preempt(project, zone, name string) bool {
	return s.do(project, zone, name, func(w *world, now time.Time, i *instance) bool {
		if i.Status != statusRunning {
			return false
		}
		o := w.begin(now, w.projects[project], "zones/"+zone, "compute.instances.preempted", i.path(), i.ID)
		o.User, o.StatusMessage = "system", "Instance was preempted."
		o.finish(now, nil)
		w.leave(now, i, nil, w.o.Timing.Preempt, i.Scheduling.InstanceTerminationAction == "DELETE")
		return true
	})
}

// Vanish removes an instance at once, as if someone had deleted it by hand a while ago, and says whether it was there.
func (s *Server) Vanish(project, zone, name string) bool {
	return s.do(project, zone, name, func(w *world, now time.Time, i *instance) bool {
		w.leave(now, i, nil, 0, true)
		for _, o := range i.leaving {
			o.finish(now, nil)
		}
		w.remove(i)
		return true
	})
}

func (s *Server) do(project, zone, name string, f func(*world, time.Time, *instance) bool) (done bool) {
	s.locked(func(w *world, now time.Time) {
		p, ok := w.projects[project]
		if !ok {
			return
		}
		if i, ok := p.instances[zone][name]; ok {
			done = f(w, now, i)
		}
	})
	return done
}

// Instances gives a project's instances as they are, without lag, in the order of zone and name.
func (s *Server) Instances(project string) (out []Instance) {
	s.locked(func(w *world, _ time.Time) {
		if p, ok := w.projects[project]; ok {
			for _, i := range p.all() {
				out = append(out, w.view(i))
			}
		}
	})
	return out
}

// Operations gives a project's operations, those that are collected too, in the order in which they began.
func (s *Server) Operations(project string) (out []Operation) {
	s.locked(func(w *world, _ time.Time) {
		if p, ok := w.projects[project]; ok {
			for _, scope := range p.operations {
				for _, o := range scope {
					out = append(out, o.Operation)
				}
			}
		}
	})
	slices.SortFunc(out, func(a, b Operation) int { return int(a.ID - b.ID) })
	return out
}
