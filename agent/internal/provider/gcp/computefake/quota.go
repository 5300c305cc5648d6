package computefake

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// quotaKey names a limit; the region is empty for a project's own metrics.
type quotaKey struct{ project, region, metric string }

// limit gives a limit: the one set for the project and region, else the one of the options, else DefaultQuota.
func (w *world) limit(k quotaKey) float64 {
	if l, ok := w.faults.quotas[k]; ok {
		return l
	}
	if l, ok := w.o.Quotas[k.metric]; ok {
		return l
	}
	return DefaultQuota
}

// usage counts what of a metric is in use. Machines that are stopped keep their disk only.
func (w *world) usage(k quotaKey) float64 {
	p := w.projects[k.project]
	var n float64
	if k.metric == MetricStaticAddresses {
		return float64(len(p.addresses[k.region]))
	}
	for zone, all := range p.instances {
		if k.region != "" && regionOf(zone) != k.region {
			continue
		}
		for _, i := range all {
			n += i.demand()[k.metric]
		}
	}
	return n
}

// demand is what an instance takes of each metric.
func (i *instance) demand() map[string]float64 {
	d := map[string]float64{MetricInstances: 1, MetricDisksGB: float64(i.diskGB)}
	if i.ssd {
		d[MetricDisksGB], d[MetricSSDGB] = 0, float64(i.diskGB)
	}
	if i.Status == statusTerminated {
		return d
	}
	d[MetricCPUsAllRegions] = float64(i.cpus)
	if i.spot {
		d[MetricPreemptibleCPUs] = float64(i.cpus)
	} else {
		d[MetricCPUs] = float64(i.cpus)
	}
	if i.external {
		d[MetricInUseAddresses] = 1
	}
	return d
}

// exceeded gives the first limit that something more would go beyond.
func (w *world) exceeded(project, region string, demand map[string]float64) *OperationFailure {
	for _, metric := range append([]string{MetricCPUsAllRegions}, regionalMetrics...) {
		k := quotaKey{project, region, metric}
		if strings.HasSuffix(metric, "_ALL_REGIONS") {
			k.region = ""
		}
		limit := w.limit(k)
		if demand[metric] == 0 || w.usage(k)+demand[metric] <= limit {
			continue
		}
		return quotaFailure(k, limit)
	}
	return nil
}

func quotaFailure(k quotaKey, limit float64) *OperationFailure {
	where, dimensions := "globally", map[string]string{"global": "global"}
	scope := "project"
	if k.region != "" {
		where, scope, dimensions = "in region "+k.region, "region", map[string]string{"region": k.region}
	}
	message := fmt.Sprintf("Quota '%s' exceeded.  Limit: %.1f %s.", k.metric, limit, where)
	camel := strings.ReplaceAll(k.metric, "_", "-")
	return &OperationFailure{
		Code: "QUOTA_EXCEEDED", Message: message, HTTPStatus: http.StatusForbidden,
		Details: []ErrorDetail{
			{QuotaInfo: &QuotaInfo{
				MetricName: "compute.googleapis.com/" + strings.ToLower(k.metric), LimitName: camel + "-per-project-" + scope,
				Dimensions: dimensions, Limit: limit,
			}},
			{LocalizedMessage: &LocalizedMessage{Locale: "en-US", Message: message}},
		},
	}
}

// quotaError is the same as an answer.
func quotaError(f *OperationFailure) *apiError {
	return &apiError{code: http.StatusForbidden, reason: reasonQuota, message: f.Message}
}

// epoch is when regions and zones were made.
var epoch = time.Date(2014, 5, 30, 18, 35, 16, 514e6, time.UTC)

func (w *world) region(p *project, name string) location {
	l := location{
		Kind: "compute#region", ID: Int64(1000 + slices.Index(w.o.regions(), name)), Name: name, Description: name, Status: "UP",
		CreationTimestamp: stamp(epoch), SelfLink: link("projects/" + p.name + "/regions/" + name),
	}
	for _, z := range w.o.Zones {
		if regionOf(z) == name {
			l.Zones = append(l.Zones, link("projects/"+p.name+"/zones/"+z))
		}
	}
	for _, metric := range regionalMetrics {
		k := quotaKey{p.name, name, metric}
		l.Quotas = append(l.Quotas, Quota{Metric: metric, Limit: w.limit(k), Usage: w.usage(k)})
	}
	return l
}

func (w *world) zone(p *project, name string) location {
	return location{
		Kind: "compute#zone", ID: Int64(2000 + slices.Index(w.o.Zones, name)), Name: name, Description: name, Status: "UP",
		CreationTimestamp: stamp(epoch), Region: link("projects/" + p.name + "/regions/" + regionOf(name)),
		SelfLink: link("projects/" + p.name + "/zones/" + name),
	}
}

func (w *world) getRegion(_ time.Time, c *call) (any, *apiError) {
	return w.region(w.projects[c.vars["project"]], c.vars["region"]), nil
}

func (w *world) getZone(_ time.Time, c *call) (any, *apiError) {
	return w.zone(w.projects[c.vars["project"]], c.vars["zone"]), nil
}

// listLocations lists regions or zones.
func (w *world) listLocations(c *call, kind string, names []string, get func(*project, string) location) (any, *apiError) {
	q, bad := c.listQuery([]string{"name", "status"})
	if bad != nil {
		return nil, bad
	}
	p := w.projects[c.vars["project"]]
	var items []location
	for _, name := range names {
		l := get(p, name)
		if q.filter.matches(func(field string) (string, bool) {
			return map[string]string{"name": l.Name, "status": l.Status}[field], true
		}) {
			items = append(items, l)
		}
	}
	page, token := paginate(items, q, func(l location) string { return q.key(l.Name, l.CreationTimestamp) })
	at := "projects/" + p.name + "/" + kind + "s"
	return list[location]{Kind: "compute#" + kind + "List", ID: at, Items: page, NextPageToken: token, SelfLink: link(at)}, nil
}

func (w *world) listRegions(_ time.Time, c *call) (any, *apiError) {
	return w.listLocations(c, "region", w.o.regions(), w.region)
}

func (w *world) listZones(_ time.Time, c *call) (any, *apiError) {
	return w.listLocations(c, "zone", w.o.Zones, w.zone)
}
