package leaseapi_test

import (
	"context"
	"errors"
	"io"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// pipe opens a stream and reads its window.
func (h *hub) pipe(t *testing.T, token string, options ...connecthttp.Option) leasev1connect.LeaseServiceStreamClientStream {
	t.Helper()
	ctx, info := connect.NewClientContext(t.Context())
	info.RequestHeader().Set("Authorization", "Bearer "+token)
	service := leasev1connect.NewLeaseServiceClient(connect.NewClient(connecthttp.NewTransport(h.http2, h.url, options...)))
	stream, err := service.Stream(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stream.Close() })
	if err := stream.SendHeaders(); err != nil {
		t.Fatal(err)
	}
	return stream
}

// window reads the first message of a stream.
func window(t *testing.T, stream leasev1connect.LeaseServiceStreamClientStream) {
	t.Helper()
	first, err := stream.Receive()
	if err != nil || first.Window != leaseapi.Window || len(first.Answers) > 0 {
		t.Fatalf("the stream begins with %v, %v; want a window of %d", first, err, leaseapi.Window)
	}
}

// answersOf reads until there are n answers, by their numbers.
func answersOf(t *testing.T, stream leasev1connect.LeaseServiceStreamClientStream, n int) map[uint64]*leasev1.StreamAnswer {
	t.Helper()
	answers := map[uint64]*leasev1.StreamAnswer{}
	for len(answers) < n {
		response, err := stream.Receive()
		if err != nil {
			t.Fatalf("after %d of %d answers: %v", len(answers), n, err)
		}
		for _, answer := range response.Answers {
			if answers[answer.Seq] != nil {
				t.Errorf("command %d is answered twice", answer.Seq)
			}
			answers[answer.Seq] = answer
		}
	}
	return answers
}

func acquires(from, n int) *leasev1.StreamRequest {
	request := &leasev1.StreamRequest{}
	for i := range n {
		request.Commands = append(request.Commands, &leasev1.StreamCommand{
			Seq: uint64(from + i), Command: &leasev1.StreamCommand_Acquire{Acquire: &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}},
		})
	}
	return request
}

func TestStream(t *testing.T) {
	for name, options := range map[string][]connecthttp.Option{
		"Connect":     nil,
		"ConnectJSON": {connecthttp.WithProtoJSON()},
		"GRPC":        {connecthttp.WithGRPC()},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHub(t, dials{})
			h.news(t, 160, 20)
			stream := h.pipe(t, newsToken, options...)
			window(t, stream)
			// More than the window, so that answers must be read while commands are sent.
			const n = 12 * leaseapi.MaxCommands
			sent := make(chan error, 1)
			go func() {
				for from := 1; from <= n; from += leaseapi.MaxCommands {
					if err := stream.Send(acquires(from, leaseapi.MaxCommands)); err != nil {
						sent <- err
						return
					}
				}
				sent <- nil
			}()
			held := map[string]bool{}
			for seq, answer := range answersOf(t, stream, n) {
				leases := answer.GetAcquire().GetLeases()
				if seq < 1 || seq > n || len(leases) != 1 || held[leases[0].GetLeaseId()] {
					t.Fatalf("command %d: %v", seq, answer)
				}
				held[leases[0].LeaseId] = true
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
			ids := make([]string, 0, n)
			for id := range held {
				ids = append(ids, id)
			}
			other := must(t, h.protocols()["REST"], otherToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
			if err := stream.Send(&leasev1.StreamRequest{Commands: []*leasev1.StreamCommand{
				{Seq: 1, Command: &leasev1.StreamCommand_Renew{Renew: &leasev1.RenewRequest{LeaseId: ids[0]}}},
				{Seq: 2, Command: &leasev1.StreamCommand_GetLease{GetLease: &leasev1.GetLeaseRequest{LeaseId: ids[1]}}},
				{Seq: 3, Command: &leasev1.StreamCommand_Report{Report: &leasev1.ReportRequest{LeaseId: ids[2], Outcome: &leasev1.Outcome{Kind: leasev1.Outcome_OK}}}},
				{Seq: 4, Command: &leasev1.StreamCommand_Release{Release: &leasev1.ReleaseRequest{LeaseId: ids[3]}}},
				{Seq: 5, Command: &leasev1.StreamCommand_Renew{Renew: &leasev1.RenewRequest{LeaseId: other.LeaseId}}},
				{Seq: 6, Command: &leasev1.StreamCommand_Acquire{Acquire: &leasev1.AcquireRequest{Fleet: "crawl/weather"}}},
				{Seq: 7},
				{Command: &leasev1.StreamCommand_Release{Release: &leasev1.ReleaseRequest{LeaseId: ids[4]}}},
			}}); err != nil {
				t.Fatal(err)
			}
			if err := stream.CloseSend(); err != nil {
				t.Fatal(err)
			}
			answers := answersOf(t, stream, 8)
			if answers[1].GetRenew().GetTtlSeconds() == 0 || answers[2].GetGetLease().GetLease().GetLeaseId() != ids[1] || answers[3].GetReport() == nil || answers[4].GetRelease() == nil {
				t.Errorf("answers %v", answers)
			}
			for seq, want := range map[uint64]leasev1.Refusal_Reason{
				5: leasev1.Refusal_LEASE_EXPIRED, 6: leasev1.Refusal_UNKNOWN_FLEET, 7: leasev1.Refusal_INVALID_REQUEST, 0: leasev1.Refusal_INVALID_REQUEST,
			} {
				got := answers[seq].GetError()
				if got.GetRefusal().GetReason() != want || got.GetCode() != fault.CodeOf(want).String() || got.GetMessage() == "" {
					t.Errorf("command %d: %v, want %v", seq, answers[seq], want)
				}
			}
			if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
				t.Errorf("the stream ends with %v, want EOF: its caller has no more commands", err)
			}
		})
	}
}

// TestStreamWindow: no more commands than the window are taken up before the first is answered, and those that are under
// way are answered when the hub stops.
func TestStreamWindow(t *testing.T) {
	taken, gate := make(chan struct{}, 10*leaseapi.Window), make(chan struct{})
	h := newHub(t, dials{wrap: func(k leaseapi.Keeper) leaseapi.Keeper {
		return keeperFunc(func(ctx context.Context, cmd lease.Command) (lease.Result, error) {
			if _, ok := cmd.(lease.Release); !ok {
				return k.Do(ctx, cmd)
			}
			taken <- struct{}{}
			<-gate
			return lease.Released{}, nil
		})
	}})
	stream := h.pipe(t, newsToken)
	window(t, stream)
	release := func(n int) *leasev1.StreamRequest {
		request := &leasev1.StreamRequest{}
		for i := range n {
			request.Commands = append(request.Commands, &leasev1.StreamCommand{
				Seq: uint64(i + 1), Command: &leasev1.StreamCommand_Release{Release: &leasev1.ReleaseRequest{LeaseId: "lse_1"}},
			})
		}
		return request
	}
	for range leaseapi.Window/leaseapi.MaxCommands + 2 {
		if err := stream.Send(release(leaseapi.MaxCommands)); err != nil {
			t.Fatal(err)
		}
	}
	for range leaseapi.Window {
		<-taken
	}
	stopped := make(chan error, 1)
	go func() { stopped <- h.handler.Shutdown(context.Background()) }()
	// The stop is seen before the gate opens: what waits for room is not begun any more.
	for {
		if p := ending(t, h.watchers()["Events"](t, newsToken, &leasev1.WatchLeasesRequest{})); p != nil {
			break
		}
	}
	close(gate)
	n := 0
	var err error
	for err == nil {
		var response *leasev1.StreamResponse
		if response, err = stream.Receive(); err == nil {
			n += len(response.Answers)
		}
	}
	if fault.ReasonOf(err) != leasev1.Refusal_UNAVAILABLE || n != leaseapi.Window {
		t.Errorf("%d answers and then %v, want %d and UNAVAILABLE", n, err, leaseapi.Window)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if len(taken) > 0 {
		t.Errorf("%d commands were taken up beyond the window", len(taken))
	}
}

// TestStreamRefusals: what ends a stream says why.
func TestStreamRefusals(t *testing.T) {
	h := newHub(t, dials{})
	h.news(t, 1, 1)
	reason := func(stream leasev1connect.LeaseServiceStreamClientStream) leasev1.Refusal_Reason {
		for {
			if _, err := stream.Receive(); err != nil {
				return fault.ReasonOf(err)
			}
		}
	}
	stream := h.pipe(t, newsToken)
	if err := stream.Send(acquires(1, leaseapi.MaxCommands+1)); err != nil {
		t.Fatal(err)
	}
	if got := reason(stream); got != leasev1.Refusal_INVALID_REQUEST {
		t.Errorf("too many commands in a message: %v", got)
	}
	if got := reason(h.pipe(t, "nobody")); got != leasev1.Refusal_UNAUTHENTICATED {
		t.Errorf("a stranger: %v", got)
	}
	for range leaseapi.MaxStreams {
		window(t, h.pipe(t, newsToken))
	}
	if got := reason(h.pipe(t, newsToken)); got != leasev1.Refusal_QUOTA {
		t.Errorf("one stream too many: %v", got)
	}
	window(t, h.pipe(t, otherToken)) // others have their own
}
