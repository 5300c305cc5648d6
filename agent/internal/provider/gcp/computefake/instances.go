package computefake

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

// The states of an instance that the fake itself brings about. Others can be injected.
const (
	statusProvisioning = "PROVISIONING"
	statusStaging      = "STAGING"
	statusRunning      = "RUNNING"
	statusStopping     = "STOPPING"
	statusTerminated   = "TERMINATED"
)

// boot plans the start of a machine, from its insert or its start on.
func (w *world) boot(now time.Time, i *instance) {
	i.boots++
	boots := i.boots
	// A later start, a stop or a removal makes what was planned here void.
	still := func(status string) bool { return w.live(i) && i.boots == boots && i.Status == status }
	w.after(now.Add(w.o.Timing.Staging), func(time.Time) {
		if still(statusProvisioning) {
			i.Status = statusStaging
		}
	})
	w.after(now.Add(w.o.Timing.Running), func(at time.Time) {
		if !still(statusStaging) {
			return
		}
		if w.o.Booted {
			i.waiting = true
			return
		}
		w.run(at, i, netip.Addr{})
	})
}

// run makes a machine be RUNNING.
func (w *world) run(now time.Time, i *instance, actual netip.Addr) {
	i.waiting = false
	w.connect(i, actual)
	i.Status, i.LastStartTimestamp = statusRunning, stamp(now)
	i.starting.finish(now, nil)
	i.starting = nil
	if d := i.Scheduling.MaxRunDuration; d != nil {
		boots := i.boots
		i.expires = now.Add(time.Duration(d.Seconds) * time.Second)
		w.after(i.expires, func(at time.Time) {
			if w.live(i) && i.boots == boots && i.Status == statusRunning {
				kind := "stop"
				if i.Scheduling.InstanceTerminationAction == "DELETE" {
					kind = "delete"
				}
				o := w.begin(at, w.projects[i.project], "zones/"+i.zone, kind, i.path(), i.ID)
				o.User = "system"
				w.leave(at, i, o, w.o.Timing.Stop, kind == "delete")
			}
		})
	}
}

// leave begins to stop or to remove a machine. Whatever was starting it has failed then.
func (w *world) leave(now time.Time, i *instance, o *operation, takes time.Duration, gone bool) {
	i.starting.finish(now, &OperationFailure{
		Code: "OPERATION_CANCELED_BY_USER", Message: fmt.Sprintf("The instance '%s' was deleted or stopped while it was starting.", i.path()),
		HTTPStatus: http.StatusConflict,
	})
	i.starting, i.waiting = nil, false
	if o != nil {
		i.leaving = append(i.leaving, o)
	}
	i.Status = statusStopping
	i.boots++
	boots := i.boots
	w.after(now.Add(takes), func(at time.Time) {
		if !w.live(i) || i.boots != boots {
			return
		}
		for _, o := range i.leaving {
			o.finish(at, nil)
		}
		i.leaving = nil
		if gone {
			w.remove(i)
			return
		}
		i.Status, i.LastStopTimestamp = statusTerminated, stamp(at)
		w.disconnect(i)
	})
}

// view is the instance as it is answered.
func (w *world) view(i *instance) Instance {
	out := i.Instance
	if s, ok := w.faults.statuses[i.path()]; ok {
		out.Status = s
	}
	// What is answered must not change when the world does.
	out.NetworkInterfaces = slices.Clone(out.NetworkInterfaces)
	for k := range out.NetworkInterfaces {
		n := &out.NetworkInterfaces[k]
		n.AccessConfigs, n.IPv6AccessConfigs = slices.Clone(n.AccessConfigs), slices.Clone(n.IPv6AccessConfigs)
	}
	return out
}

// find gives the instance that a call names.
func (w *world) find(c *call) (*project, *instance, *apiError) {
	p := w.projects[c.vars["project"]]
	i, ok := p.instances[c.vars["zone"]][c.vars["instance"]]
	if !ok {
		return p, nil, notFound(fmt.Sprintf("projects/%s/zones/%s/instances/%s", p.name, c.vars["zone"], c.vars["instance"]))
	}
	return p, i, nil
}

func (w *world) getInstance(_ time.Time, c *call) (any, *apiError) {
	_, i, bad := w.find(c)
	if bad != nil {
		return nil, bad
	}
	return w.view(i), nil
}

func (w *world) deleteInstance(now time.Time, c *call) (any, *apiError) {
	if text := c.query.Get("noGracefulShutdown"); text != "" {
		if _, err := strconv.ParseBool(text); err != nil {
			return nil, invalid("noGracefulShutdown", "'%s'. Must be true or false.", text)
		}
	}
	return w.change(now, c, "delete", func(i *instance, o *operation) *apiError {
		if i.DeletionProtection {
			return &apiError{
				code: http.StatusBadRequest, reason: reasonBadUsage,
				message: "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'",
			}
		}
		// A machine that is being deleted already has its end planned; the second operation ends with it.
		if o != nil && i.Status == statusStopping && slices.ContainsFunc(i.leaving, func(l *operation) bool { return l.OperationType == "delete" }) {
			i.leaving = append(i.leaving, o)
			return nil
		}
		if o != nil {
			w.leave(now, i, o, w.o.Timing.Stop, true)
		}
		return nil
	})
}

func (w *world) stopInstance(now time.Time, c *call) (any, *apiError) {
	return w.change(now, c, "stop", func(i *instance, o *operation) *apiError {
		switch {
		case i.Status == statusStopping:
			return notReady(i.path())
		case o == nil:
		case i.Status == statusTerminated:
			o.finish(now, nil)
		default:
			w.leave(now, i, o, w.o.Timing.Stop, false)
		}
		return nil
	})
}

func (w *world) startInstance(now time.Time, c *call) (any, *apiError) {
	return w.change(now, c, "start", func(i *instance, o *operation) *apiError {
		switch i.Status {
		case statusTerminated:
			if o == nil {
				return nil
			}
			i.Status, i.starting = statusProvisioning, o
			w.boot(now, i)
		case statusRunning:
			if o != nil {
				o.finish(now, nil)
			}
		default:
			return notReady(i.path())
		}
		return nil
	})
}

// change serves a call that changes an instance: apply is called first without an operation, to refuse, and then with it.
func (w *world) change(now time.Time, c *call, kind string, apply func(*instance, *operation) *apiError) (any, *apiError) {
	p := w.projects[c.vars["project"]]
	if o, bad := w.remembered(now, p, c); o != nil || bad != nil {
		return o.answer(), bad
	}
	p, i, bad := w.find(c)
	if bad != nil {
		return nil, bad
	}
	if bad := apply(i, nil); bad != nil {
		return nil, bad
	}
	o := w.begin(now, p, "zones/"+i.zone, kind, i.path(), i.ID)
	w.remember(now, p, c, o)
	if bad := apply(i, o); bad != nil {
		return nil, bad
	}
	return o.Operation, nil
}

// instanceFields are what a filter of instances may name.
var instanceFields = []string{"labels", "name", "status"}

func (w *world) instanceField(i *instance) func(string) (string, bool) {
	return func(field string) (string, bool) {
		switch field {
		case "name":
			return i.Name, true
		case "status":
			return w.view(i).Status, true
		}
		value, ok := i.Labels[field[len(labelsPrefix):]]
		return value, ok
	}
}

// listed gives the instances that a list shows now: new ones are late.
func (w *world) listed(now time.Time, p *project, q listQuery) []*instance {
	return slices.DeleteFunc(p.all(), func(i *instance) bool {
		return now.Before(i.createdAt.Add(w.faults.listLag)) || !q.filter.matches(w.instanceField(i))
	})
}

func (w *world) listInstances(now time.Time, c *call) (any, *apiError) {
	q, bad := c.listQuery(instanceFields)
	if bad != nil {
		return nil, bad
	}
	p, zone := w.projects[c.vars["project"]], c.vars["zone"]
	at := "projects/" + p.name + "/zones/" + zone + "/instances"
	out := list[Instance]{Kind: "compute#instanceList", ID: at, SelfLink: link(at)}
	if w.faults.unreachable[zone] {
		if !q.partial && !w.o.AlwaysPartial {
			return nil, unreachable(zone)
		}
		out.Unreachables, out.Warning = []string{"zones/" + zone}, unreachableWarning("zones/"+zone)
		return out, nil
	}
	items := slices.DeleteFunc(w.listed(now, p, q), func(i *instance) bool { return i.zone != zone })
	page, token := paginate(items, q, func(i *instance) string { return q.key(i.Name, i.CreationTimestamp) })
	for _, i := range page {
		out.Items = append(out.Items, w.view(i))
	}
	out.NextPageToken = token
	return out, nil
}

func (w *world) aggregatedInstances(now time.Time, c *call) (any, *apiError) {
	q, bad := c.listQuery(instanceFields)
	if bad != nil {
		return nil, bad
	}
	p := w.projects[c.vars["project"]]
	out := newAggregated("instance", p)
	down := w.down(&out)
	if len(down) > 0 && !q.partial && !w.o.AlwaysPartial {
		return nil, unreachable(down[0])
	}
	items := slices.DeleteFunc(w.listed(now, p, q), func(i *instance) bool { return w.faults.unreachable[i.zone] })
	page, token := paginate(items, q, func(i *instance) string { return q.key(i.zone+"/"+i.Name, i.CreationTimestamp) })
	byScope := map[string][]Instance{}
	for _, i := range page {
		byScope["zones/"+i.zone] = append(byScope["zones/"+i.zone], w.view(i))
	}
	for _, z := range w.o.Zones {
		scope := "zones/" + z
		switch {
		case w.faults.unreachable[z]:
			out.Items[scope] = map[string]any{"warning": unreachableWarning(scope)}
		case len(byScope[scope]) == 0:
			out.Items[scope] = map[string]any{"warning": noResults(scope)}
		default:
			out.Items[scope] = map[string]any{"instances": byScope[scope]}
		}
	}
	out.NextPageToken = token
	return out, nil
}

func newAggregated(kind string, p *project) aggregated {
	at := "projects/" + p.name + "/aggregated/" + kind + "s"
	return aggregated{Kind: "compute#" + kind + "AggregatedList", ID: at, SelfLink: link(at), Items: map[string]map[string]any{}}
}

// down notes the unreachable zones in the answer and gives them.
func (w *world) down(out *aggregated) []string {
	var down, scopes []string
	for _, z := range w.o.Zones {
		if w.faults.unreachable[z] {
			down, scopes = append(down, z), append(scopes, "zones/"+z)
		}
	}
	if len(down) > 0 {
		out.Unreachables, out.Warning = scopes, unreachableWarning(scopes...)
	}
	return down
}

// serialOutput serves what a machine wrote to its console.
func (w *world) serialOutput(_ time.Time, c *call) (any, *apiError) {
	_, i, bad := w.find(c)
	if bad != nil {
		return nil, bad
	}
	start := 0
	if text := c.query.Get("start"); text != "" {
		var err error
		if start, err = strconv.Atoi(text); err != nil || start < 0 || start > len(i.console) {
			return nil, invalid("start", "'%s'. The console has %d bytes.", text, len(i.console))
		}
	}
	if port := c.query.Get("port"); port != "" && port != "1" {
		return nil, invalid("port", "'%s'. Only port 1 is supported.", port)
	}
	return serialPort{
		Kind: "compute#serialPortOutput", Contents: i.console[start:], Start: Int64(start), Next: Int64(len(i.console)),
		SelfLink: link(i.path() + "/serialPort"),
	}, nil
}
