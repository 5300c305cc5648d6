package computeclient

import (
	"context"

	"cloud.google.com/go/compute/apiv1/computepb"
)

// ZoneOperation reads an operation. Its failure is in the answer, not in the error: an error means that the operation
// could not be read, and IsNotFound that Compute Engine no longer knows it.
func (c *Client) ZoneOperation(ctx context.Context, zone, name string) (Operation, error) {
	if err := checkNames("zone", zone, "operation", name); err != nil {
		return Operation{}, err
	}
	ctx, cancel, call := c.begin(ctx, "zoneOperations.get", zone+"/"+name)
	defer cancel()
	answer, err := c.zoneOperations.Get(ctx, &computepb.GetZoneOperationRequest{Project: c.o.Project, Zone: zone, Operation: name}, retried())
	o := operation(answer)
	return o, call.end(err, o.details()...)
}

// operation reads all that an operation says of its end. The client's own Wait and Poll look at the HTTP status alone,
// which an operation that failed need not have.
func operation(from *computepb.Operation) Operation {
	if from == nil {
		return Operation{}
	}
	o := Operation{
		Name:        from.GetName(),
		Done:        from.GetStatus() == computepb.Operation_DONE,
		Status:      from.GetStatus().String(),
		Type:        from.GetOperationType(),
		HTTPStatus:  int(from.GetHttpErrorStatusCode()),
		HTTPMessage: from.GetHttpErrorMessage(),
	}
	for _, e := range from.GetError().GetErrors() {
		f := Failure{Code: e.GetCode(), Message: e.GetMessage()}
		for _, d := range e.GetErrorDetails() {
			if q := d.GetQuotaInfo(); q != nil {
				f.Quota = &Quota{Metric: q.GetMetricName(), Limit: q.GetLimitName(), Region: q.GetDimensions()["region"], Max: q.GetLimit()}
			}
		}
		o.Failures = append(o.Failures, f)
	}
	return o
}

func (o Operation) details() []any {
	if o.Name == "" {
		return nil
	}
	details := []any{"operation", o.Name, "status", o.Status}
	for _, f := range o.Failures {
		details = append(details, "failure", f.Code)
	}
	return details
}
