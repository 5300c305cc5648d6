package leaseapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// TestReportBatch: each report is answered on its own, in the order of the request, on every protocol.
func TestReportBatch(t *testing.T) {
	for name := range (&hub{}).protocols() {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 3, 1)
			p := h.protocols()[name]
			mine := must(t, p, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}, &leasev1.AcquireResponse{}).Leases[0]
			other := must(t, p, otherToken, &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}, &leasev1.AcquireResponse{}).Leases[0]
			outcome := func(kind leasev1.Outcome_Kind) *leasev1.Outcome { return &leasev1.Outcome{Kind: kind} }
			got := must(t, p, newsToken, &leasev1.ReportBatchRequest{Reports: []*leasev1.ReportRequest{
				{LeaseId: mine.LeaseId, Outcome: outcome(leasev1.Outcome_OK)},
				{LeaseId: "no such lease", Outcome: outcome(leasev1.Outcome_OK)},
				{LeaseId: other.LeaseId, Outcome: outcome(leasev1.Outcome_BLOCKED)},
				{LeaseId: mine.LeaseId, Outcome: outcome(leasev1.Outcome_BLOCKED), Target: "example.org"},
				{LeaseId: mine.LeaseId},
			}}, &leasev1.ReportBatchResponse{})
			var words []string
			for _, result := range got.Results {
				word := "taken"
				if result.Error != nil {
					word = result.Error.Code + " " + result.Error.Refusal.GetReason().String()
				}
				if rest := result.Report.GetCooldown(); rest != nil {
					word += " " + rest.AsDuration().String()
				}
				words = append(words, word)
			}
			want := []string{"taken", "invalid_argument INVALID_REQUEST", "failed_precondition LEASE_EXPIRED", "taken 5m0s", "invalid_argument INVALID_REQUEST"}
			if diff := cmp.Diff(want, words); diff != "" {
				t.Errorf("results: %s", diff)
			}
			if diff := cmp.Diff(durationpb.New(5*time.Minute), got.Results[3].Report.Cooldown, protocmp.Transform()); diff != "" {
				t.Errorf("cooldown: %s", diff)
			}
			for size, says := range map[int]string{0: "reports is missing", leaseapi.MaxReports + 1: "at most 100"} {
				request := &leasev1.ReportBatchRequest{}
				for range size {
					request.Reports = append(request.Reports, &leasev1.ReportRequest{LeaseId: mine.LeaseId})
				}
				problem := p.call(t, newsToken, request, &leasev1.ReportBatchResponse{})
				if problem == nil || problem.Refusal.GetReason() != leasev1.Refusal_INVALID_REQUEST || !strings.Contains(problem.Message, says) {
					t.Errorf("%d reports: %v, want %q", size, problem, says)
				}
			}
		})
	}
}
