package computefake

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"
)

// The states of an operation.
const (
	opPending = "PENDING"
	opRunning = "RUNNING"
	opDone    = "DONE"
)

// operation is the work that a call began.
type operation struct {
	Operation
	project string
	scope   string // "zones/z" or "regions/r"
	// collected means that the API does not remember it any more.
	collected bool
}

// OperationFailure is why an operation fails.
type OperationFailure struct {
	// Code is the one in the operation's error, such as ZONE_RESOURCE_POOL_EXHAUSTED.
	Code string
	// Message is for people.
	Message string
	// HTTPStatus is the operation's httpErrorStatusCode. With 0 the operation has only its error: a client that looks
	// at nothing but the status takes it for a success.
	HTTPStatus int
	// Details are the error's.
	Details []ErrorDetail
}

// begin makes an operation that is PENDING, and RUNNING soon after.
func (w *world) begin(now time.Time, p *project, scope, kind, target string, targetID Int64) *operation {
	id := w.newID()
	o := &operation{
		Operation: Operation{
			Kind: "compute#operation", ID: id, Name: fmt.Sprintf("operation-%d-%x", now.UnixMilli(), uint64(id)),
			OperationType: kind, TargetID: targetID, TargetLink: link(target), User: "agent@" + p.name + ".iam.gserviceaccount.com",
			Status: opPending, InsertTime: stamp(now),
		},
		project: p.name, scope: scope,
	}
	place := link("projects/" + p.name + "/" + scope)
	if scope[0] == 'z' {
		o.Zone = place
	} else {
		o.Region = place
	}
	o.SelfLink = place + "/operations/" + o.Name
	p.operations[scope][o.Name] = o
	w.after(now.Add(w.o.Timing.Pending), func(at time.Time) {
		if o.Status == opPending {
			o.Status, o.StartTime, o.Progress = opRunning, stamp(at), 10
		}
	})
	return o
}

// finish ends an operation; with a failure it ends in that. An operation that has ended stays as it was.
func (o *operation) finish(now time.Time, f *OperationFailure) {
	if o == nil || o.Status == opDone {
		return
	}
	if o.StartTime == "" {
		o.StartTime = stamp(now)
	}
	o.Status, o.Progress, o.EndTime = opDone, 100, stamp(now)
	if f == nil {
		return
	}
	o.Error = &OperationError{Errors: []OperationErrorItem{{Code: f.Code, Message: f.Message, ErrorDetails: f.Details}}}
	if f.HTTPStatus != 0 {
		o.HTTPErrorStatusCode, o.HTTPErrorMessage = int32(f.HTTPStatus), httpMessage(f.HTTPStatus)
	}
}

// httpMessage is the upper-case text that operations carry beside the code.
func httpMessage(code int) string {
	switch code {
	case http.StatusForbidden:
		return "FORBIDDEN"
	case http.StatusNotFound:
		return "NOT FOUND"
	case http.StatusConflict:
		return "CONFLICT"
	case http.StatusBadRequest:
		return "BAD REQUEST"
	case http.StatusPreconditionFailed:
		return "PRECONDITION FAILED"
	case http.StatusTooManyRequests:
		return "TOO MANY REQUESTS"
	case http.StatusServiceUnavailable:
		return "SERVICE UNAVAILABLE"
	}
	return fmt.Sprintf("HTTP %d", code)
}

// getOperation serves get.
func (w *world) getOperation(_ time.Time, c *call) (any, *apiError) {
	p := w.projects[c.vars["project"]]
	scope := c.scope()
	o, ok := p.operations[scope][c.vars["operation"]]
	if !ok || o.collected {
		return nil, notFound("projects/" + p.name + "/" + scope + "/operations/" + c.vars["operation"])
	}
	return o.Operation, nil
}

// listOperations serves the list of a zone or a region.
func (w *world) listOperations(_ time.Time, c *call) (any, *apiError) {
	p := w.projects[c.vars["project"]]
	q, bad := c.listQuery(operationFields)
	if bad != nil {
		return nil, bad
	}
	all := p.operations[c.scope()]
	var items []Operation
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if o := all[name]; !o.collected && q.filter.matches(operationField(o)) {
			items = append(items, o.Operation)
		}
	}
	page, token := paginate(items, q, func(o Operation) string { return q.key(o.Name, o.InsertTime) })
	return list[Operation]{
		Kind: "compute#operationList", ID: "projects/" + p.name + "/" + c.scope() + "/operations", Items: page, NextPageToken: token,
		SelfLink: link("projects/" + p.name + "/" + c.scope() + "/operations"),
	}, nil
}

// operationFields are what a filter of operations may name.
var operationFields = []string{"name", "status", "operationType", "targetId", "targetLink", "user", "insertTime"}

func operationField(o *operation) func(string) (string, bool) {
	return func(field string) (string, bool) {
		switch field {
		case "name":
			return o.Name, true
		case "status":
			return o.Status, true
		case "operationType":
			return o.OperationType, true
		case "targetId":
			return fmt.Sprint(int64(o.TargetID)), true
		case "targetLink":
			return o.TargetLink, true
		case "user":
			return o.User, true
		case "insertTime":
			return o.InsertTime, true
		}
		return "", false
	}
}

// remembered gives the operation of an earlier call with the same request ID.
func (w *world) remembered(now time.Time, p *project, c *call) (*operation, *apiError) {
	id := c.query.Get("requestId")
	if id == "" {
		return nil, nil
	}
	key := requestKey{c.scope(), id}
	r, ok := p.requests[key]
	if !ok || now.Sub(r.at) >= w.o.Timing.RequestIDs {
		return nil, nil
	}
	if r.call != c.name+" "+c.path {
		return nil, invalid("requestId", "'%s'. It was used for another request, %s.", id, r.call)
	}
	return r.op, nil
}

// remember notes which operation a request ID began.
func (w *world) remember(now time.Time, p *project, c *call, o *operation) {
	if id := c.query.Get("requestId"); id != "" {
		p.requests[requestKey{c.scope(), id}] = request{call: c.name + " " + c.path, op: o, at: now}
	}
}
