package leaseapi

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"connectrpc.com/connect/v2"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// service implements the calls, whatever the protocol they came by.
type service struct {
	keeper     Keeper
	signer     Signer
	owners     Owners
	log        *slog.Logger
	notices    Notices // nil without watches
	clock      clock.WithTicker
	gatekeeper gatekeeper
	streams    *streams
	boards     *boards
	stopping   context.Context //nolint:containedctx // it ends with the server, not with a call: nobody waits for a lease then
	commands   *connect.Server // for the commands of streams
}

var _ leasev1connect.LeaseServiceHandler = (*service)(nil)

// releaseTimeout bounds the return of leases that could not be answered.
const releaseTimeout = 5 * time.Second

// ask does a command whose result is of a known type.
func ask[R lease.Result](ctx context.Context, keeper Keeper, cmd lease.Command) (R, error) {
	var none R
	result, err := keeper.Do(ctx, cmd)
	if err != nil {
		return none, err
	}
	typed, ok := result.(R)
	if !ok {
		return none, fmt.Errorf("leaseapi: the keeper answered %T with %T", cmd, result)
	}
	return typed, nil
}

// Acquire implements [leasev1connect.LeaseServiceHandler].
func (s *service) Acquire(ctx context.Context, request *leasev1.AcquireRequest) (*leasev1.AcquireResponse, error) {
	caller := callerFrom(ctx)
	cmd, err := acquireCommand(caller, request)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, caller, request.GetFleet()); err != nil {
		return nil, err
	}
	granted, err := s.acquire(ctx, cmd)
	if err != nil {
		return nil, s.refusedIn(ctx, request.GetFleet(), err)
	}
	response := &leasev1.AcquireResponse{}
	for i := range granted.Leases {
		l := &granted.Leases[i]
		if l.State != lease.Live {
			// Of a repeated Acquire, some leases may have ended; one lives.
			continue
		}
		answer, err := s.answer(l)
		if err != nil {
			s.giveBack(ctx, granted)
			return nil, err
		}
		// A session binds the first lease only.
		answer.Moved = granted.Moved && i == 0
		response.Leases = append(response.Leases, answer)
	}
	return response, nil
}

// giveBack ends leases whose holder will never hear of them. Those of a repeated Acquire it has heard of.
func (s *service) giveBack(ctx context.Context, granted lease.Granted) {
	if granted.Repeated {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	cmd := lease.Abandon{Principal: granted.Leases[0].Principal}
	for i := range granted.Leases {
		cmd.IDs = append(cmd.IDs, granted.Leases[i].ID)
	}
	if _, err := s.keeper.Do(ctx, cmd); err != nil {
		s.log.WarnContext(ctx, "cannot give back leases that were not answered; they end by themselves", "leases", cmd.IDs, "err", err)
	}
}

// Renew implements [leasev1connect.LeaseServiceHandler].
func (s *service) Renew(ctx context.Context, request *leasev1.RenewRequest) (*leasev1.RenewResponse, error) {
	caller := callerFrom(ctx)
	cmd, err := renewCommand(caller, request)
	if err != nil {
		return nil, err
	}
	// The token may have lost the fleet since the lease was granted.
	found, err := ask[lease.Found](ctx, s.keeper, lease.Get{Principal: cmd.Principal, ID: cmd.ID})
	if err != nil {
		return nil, s.refusedLease(ctx, cmd.ID, err)
	}
	if err := s.allowed(ctx, caller, string(found.Lease.Fleet)); err != nil {
		return nil, err
	}
	result, err := ask[lease.Renewed](ctx, s.keeper, cmd)
	if err != nil {
		return nil, s.refusedLease(ctx, cmd.ID, err)
	}
	return renewed(&result.Lease), nil
}

// Release implements [leasev1connect.LeaseServiceHandler].
func (s *service) Release(ctx context.Context, request *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error) {
	cmd, err := releaseCommand(callerFrom(ctx), request)
	if err != nil {
		return nil, err
	}
	_, err = ask[lease.Released](ctx, s.keeper, cmd)
	var refusal *lease.Refusal
	if errors.As(err, &refusal) && (refusal.Reason == lease.LeaseExpired || refusal.Reason == lease.NotHolder) && cmd.Outcome == nil {
		// Ended so long ago that the engine forgot it, or somebody else's, which must not be told apart. The caller
		// holds no such lease, as it wanted; an outcome, though, would be lost without a word.
		return &leasev1.ReleaseResponse{}, nil
	}
	if err != nil {
		return nil, s.refusedLease(ctx, cmd.ID, err)
	}
	return &leasev1.ReleaseResponse{}, nil
}

// GetLease implements [leasev1connect.LeaseServiceHandler].
func (s *service) GetLease(ctx context.Context, request *leasev1.GetLeaseRequest) (*leasev1.GetLeaseResponse, error) {
	caller := callerFrom(ctx)
	cmd, err := getCommand(caller, request)
	if err != nil {
		return nil, err
	}
	found, err := ask[lease.Found](ctx, s.keeper, cmd)
	if err != nil {
		return nil, s.refusedLease(ctx, cmd.ID, err)
	}
	l := &found.Lease
	if err := s.allowed(ctx, caller, string(l.Fleet)); err != nil {
		return nil, err
	}
	if l.State != lease.Live {
		return nil, fault.New(leasev1.Refusal_LEASE_EXPIRED,
			fmt.Sprintf("lease %s has ended (%s); acquire a new one", l.ID, l.State), fault.Details{})
	}
	answer, err := s.answer(l)
	if err != nil {
		return nil, err
	}
	return &leasev1.GetLeaseResponse{Lease: answer}, nil
}

// ListProxies implements [leasev1connect.LeaseServiceHandler].
func (s *service) ListProxies(ctx context.Context, request *leasev1.ListProxiesRequest) (*leasev1.ListProxiesResponse, error) {
	cmd, token, err := listCommand(request)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, callerFrom(ctx), request.GetFleet()); err != nil {
		return nil, err
	}
	page, err := ask[lease.Page](ctx, s.keeper, cmd)
	if err != nil {
		return nil, s.refusedIn(ctx, request.GetFleet(), err)
	}
	response := &leasev1.ListProxiesResponse{}
	for i := range page.Proxies {
		response.Proxies = append(response.Proxies, listed(&page.Proxies[i]))
	}
	total := len(page.Proxies)
	switch {
	case token != nil:
		total = token.Total
	case page.Next != "":
		if total, err = s.total(ctx, cmd); err != nil {
			return nil, s.refusedIn(ctx, request.GetFleet(), err)
		}
	}
	response.Total = int32(total)
	if page.Next != "" {
		response.NextPageToken = pageToken{After: page.Next, Total: total, Of: listOf(request)}.String()
	}
	return response, nil
}

// refusedIn is refused for calls that name a fleet.
func (s *service) refusedIn(ctx context.Context, fleet string, err error) error {
	var refusal *lease.Refusal
	if errors.As(err, &refusal) && refusal.Reason == lease.UnknownFleet {
		return unknownFleet(fleet)
	}
	return s.refused(ctx, err)
}
