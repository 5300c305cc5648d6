package leaseapi

import (
	"context"
	"sync"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// MaxReports is how many reports one ReportBatch may carry.
const MaxReports = 100

// Report implements [leasev1connect.LeaseServiceHandler].
func (s *service) Report(ctx context.Context, request *leasev1.ReportRequest) (*leasev1.ReportResponse, error) {
	cmd, err := reportCommand(callerFrom(ctx), request)
	if err != nil {
		return nil, err
	}
	result, err := ask[lease.Reported](ctx, s.keeper, cmd)
	if err != nil {
		return nil, s.refusedLease(ctx, cmd.ID, err)
	}
	response := &leasev1.ReportResponse{}
	if result.CoolingFor > 0 {
		response.Cooldown = durationpb.New(result.CoolingFor)
	}
	response.Limits = limits(&result.Lease)
	return response, nil
}

// ReportBatch implements [leasev1connect.LeaseServiceHandler]. The reports go to the keeper side by side, so that they
// share one append. Their order changes nothing: an ok never lifts a ban, whichever came first.
func (s *service) ReportBatch(ctx context.Context, request *leasev1.ReportBatchRequest) (*leasev1.ReportBatchResponse, error) {
	var c checks
	c.reports(request.GetReports())
	if err := c.err(); err != nil {
		return nil, err
	}
	results := make([]*leasev1.ReportResult, len(request.GetReports()))
	var all sync.WaitGroup
	for i, report := range request.GetReports() {
		all.Go(func() {
			result := &leasev1.ReportResult{LeaseId: report.GetLeaseId()}
			answer, err := s.Report(ctx, report)
			if err != nil {
				result.Error = failure(err)
			} else {
				result.Report = answer
			}
			results[i] = result
		})
	}
	all.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &leasev1.ReportBatchResponse{Results: results}, nil
}

func (c *checks) reports(reports []*leasev1.ReportRequest) {
	switch {
	case len(reports) == 0:
		c.add("reports", "reports is missing; write at least one, such as {\"leaseId\": \"lse_…\", \"outcome\": {\"kind\": \"OK\"}}")
	case len(reports) > MaxReports:
		c.add("reports", "reports has %d; send at most %d at once", len(reports), MaxReports)
	}
}
