package computefake

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// route is a method of the API.
type route struct {
	method  string
	pattern string // without the base; {names} are its variables
	name    string
	// params are the query parameters that it knows.
	params []string
	serve  func(w *world, now time.Time, c *call) (any, *apiError)
	// wait means that the answer is held back until the operation is done.
	wait bool
	// body means that it takes one.
	body bool
}

const (
	inProject  = "projects/{project}/"
	inZone     = inProject + "zones/{zone}/"
	inRegion   = inProject + "regions/{region}/"
	ofInstance = inZone + "instances/{instance}"
)

var (
	listParams = []string{"filter", "maxResults", "orderBy", "pageToken", "returnPartialSuccess"}
	aggrParams = append(slices.Clone(listParams), "includeAllScopes")
	onceParams = []string{"requestId"}
)

// routes are all methods that the fake has.
var routes = []*route{
	{method: http.MethodPost, pattern: inZone + "instances", name: "instances.insert", params: onceParams, serve: (*world).insert, body: true},
	{method: http.MethodGet, pattern: inZone + "instances", name: "instances.list", params: listParams, serve: (*world).listInstances},
	{method: http.MethodGet, pattern: inProject + "aggregated/instances", name: "instances.aggregatedList", params: aggrParams, serve: (*world).aggregatedInstances},
	{method: http.MethodGet, pattern: ofInstance, name: "instances.get", serve: (*world).getInstance},
	{method: http.MethodDelete, pattern: ofInstance, name: "instances.delete", params: []string{"requestId", "noGracefulShutdown"}, serve: (*world).deleteInstance},
	{method: http.MethodPost, pattern: ofInstance + "/stop", name: "instances.stop", params: onceParams, serve: (*world).stopInstance},
	{method: http.MethodPost, pattern: ofInstance + "/start", name: "instances.start", params: onceParams, serve: (*world).startInstance},
	{method: http.MethodPost, pattern: ofInstance + "/setMetadata", name: "instances.setMetadata", params: onceParams, serve: (*world).setMetadata, body: true},
	{method: http.MethodPost, pattern: ofInstance + "/setLabels", name: "instances.setLabels", params: onceParams, serve: (*world).setLabels, body: true},
	{method: http.MethodPost, pattern: ofInstance + "/addAccessConfig", name: "instances.addAccessConfig", params: []string{"requestId", "networkInterface"}, serve: (*world).addAccessConfig, body: true},
	{method: http.MethodPost, pattern: ofInstance + "/deleteAccessConfig", name: "instances.deleteAccessConfig", params: []string{"requestId", "networkInterface", "accessConfig"}, serve: (*world).deleteAccessConfig},
	{method: http.MethodGet, pattern: ofInstance + "/serialPort", name: "instances.getSerialPortOutput", params: []string{"port", "start"}, serve: (*world).serialOutput},

	{method: http.MethodGet, pattern: inZone + "operations", name: "zoneOperations.list", params: listParams, serve: (*world).listOperations},
	{method: http.MethodGet, pattern: inZone + "operations/{operation}", name: "zoneOperations.get", serve: (*world).getOperation},
	{method: http.MethodPost, pattern: inZone + "operations/{operation}/wait", name: "zoneOperations.wait", serve: (*world).getOperation, wait: true},
	{method: http.MethodGet, pattern: inRegion + "operations", name: "regionOperations.list", params: listParams, serve: (*world).listOperations},
	{method: http.MethodGet, pattern: inRegion + "operations/{operation}", name: "regionOperations.get", serve: (*world).getOperation},
	{method: http.MethodPost, pattern: inRegion + "operations/{operation}/wait", name: "regionOperations.wait", serve: (*world).getOperation, wait: true},

	{method: http.MethodPost, pattern: inRegion + "addresses", name: "addresses.insert", params: onceParams, serve: (*world).insertAddress, body: true},
	{method: http.MethodGet, pattern: inRegion + "addresses", name: "addresses.list", params: listParams, serve: (*world).listAddresses},
	{method: http.MethodGet, pattern: inProject + "aggregated/addresses", name: "addresses.aggregatedList", params: aggrParams, serve: (*world).aggregatedAddresses},
	{method: http.MethodGet, pattern: inRegion + "addresses/{address}", name: "addresses.get", serve: (*world).getAddress},
	{method: http.MethodDelete, pattern: inRegion + "addresses/{address}", name: "addresses.delete", params: onceParams, serve: (*world).deleteAddress},

	{method: http.MethodGet, pattern: inProject + "regions", name: "regions.list", params: listParams, serve: (*world).listRegions},
	{method: http.MethodGet, pattern: inProject + "regions/{region}", name: "regions.get", serve: (*world).getRegion},
	{method: http.MethodGet, pattern: inProject + "zones", name: "zones.list", params: listParams, serve: (*world).listZones},
	{method: http.MethodGet, pattern: inProject + "zones/{zone}", name: "zones.get", serve: (*world).getZone},
}

// match gives the variables of a path that the pattern fits.
func (r *route) match(path string) (map[string]string, bool) {
	want, have := strings.Split(r.pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	vars := map[string]string{}
	for k, segment := range want {
		switch {
		case strings.HasPrefix(segment, "{"):
			if have[k] == "" {
				return nil, false
			}
			vars[strings.Trim(segment, "{}")] = have[k]
		case segment != have[k]:
			return nil, false
		}
	}
	return vars, true
}

// route finds the method that a request is for, and refuses what that does not know. The call is never nil.
func (s *Server) route(r *http.Request) (*call, *route, *apiError) {
	c := &call{vars: map[string]string{}, query: r.URL.Query()}
	path, ok := strings.CutPrefix(r.URL.Path, basePath)
	// No name that the API takes needs an escape: one that brings a slash along is an attempt at another path.
	if !ok || r.URL.RawPath != "" {
		return c, nil, unknownPath(r)
	}
	var found *route
	other := false
	for _, rt := range routes {
		vars, ok := rt.match(path)
		if !ok {
			continue
		}
		if other = rt.method != r.Method; !other {
			found, c.name, c.path, c.vars = rt, rt.name, path, vars
			break
		}
	}
	switch {
	case found != nil:
	case other:
		return c, nil, &apiError{
			code: http.StatusMethodNotAllowed, reason: "httpMethodNotAllowed",
			message: fmt.Sprintf("The method %s is not supported for the path %s.", r.Method, r.URL.Path),
		}
	default:
		return c, nil, unknownPath(r)
	}
	return c, found, checkQuery(r, c, found)
}

func unknownPath(r *http.Request) *apiError {
	return &apiError{
		code: http.StatusNotFound, reason: reasonNotFound,
		message: fmt.Sprintf("The requested URL %s was not found on this server.", r.URL.Path),
	}
}

func checkQuery(r *http.Request, c *call, rt *route) *apiError {
	for name, values := range c.query {
		switch {
		// The standard parameters, with the values that change nothing.
		case name == "alt" && values[0] == "json", name == "prettyPrint" && values[0] == "false":
			continue
		case !slices.Contains(rt.params, name):
			return badRequest("Invalid JSON payload received. Unknown name \"%s\": Cannot bind query parameter. Field '%s' could not be found in request message.", name, name)
		case len(values) > 1:
			return badRequest("Invalid query parameter \"%s\": it is given %d times.", name, len(values))
		}
	}
	if id, given := c.query["requestId"]; given && (!uuidPattern.MatchString(id[0]) || id[0] == zeroUUID) {
		return invalid("requestId", "'%s'. Must be a valid UUID other than zero.", id[0])
	}
	if rt.body {
		if kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";"); kind != "application/json" {
			return badRequest("Content-Type %s: a body must be application/json.", strconv.Quote(kind))
		}
	}
	return nil
}
