package leaseapi

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// operatorPrefix begins the paths of the operators' calls. They have no REST form: shoalctl makes them.
const operatorPrefix = "/" + leasev1connect.OperatorServiceName + "/"

// operators implements the calls of those who look after the hub.
type operators struct {
	keeper Keeper
	// revoked is told that the revocations have changed; it may be nil.
	revoked func()
	log     *slog.Logger
}

var _ leasev1connect.OperatorServiceHandler = (*operators)(nil)

// operate does a command for a caller who may.
func operate[R lease.Result](ctx context.Context, o *operators, problems checks, cmd func(by lease.Principal) lease.Command) (R, error) {
	var none R
	caller := callerFrom(ctx)
	if err := o.mayOperate(ctx, caller); err != nil {
		return none, err
	}
	if err := problems.err(); err != nil {
		return none, err
	}
	result, err := ask[R](ctx, o.keeper, cmd(lease.Principal(caller.Principal)))
	if err != nil {
		return none, (&service{log: o.log}).refused(ctx, err)
	}
	return result, nil
}

// mayOperate refuses callers who may lease at most.
func (o *operators) mayOperate(ctx context.Context, caller Caller) error {
	allowed, err := false, error(nil)
	if caller.MayOperate != nil {
		allowed, err = caller.MayOperate(ctx)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		o.log.WarnContext(ctx, "cannot find out what a caller may do", "principal", caller.Principal, "err", err)
		return fault.New(leasev1.Refusal_UNAVAILABLE, "the hub cannot find out at the moment what this token may do; try again",
			fault.Details{RetryAfter: retryUnavailable})
	case !allowed:
		return fault.New(leasev1.Refusal_FORBIDDEN, fmt.Sprintf(
			"%s may not operate this hub; bind it to the ClusterRole shoal-operator (verb operate on proxyfleets.shoal.dev)", caller.Principal), fault.Details{})
	}
	return nil
}

func (o *operators) changed() {
	if o.revoked != nil {
		o.revoked()
	}
}

// Revoke implements [leasev1connect.OperatorServiceHandler].
func (o *operators) Revoke(ctx context.Context, request *leasev1.RevokeRequest) (*leasev1.RevokeResponse, error) {
	var c checks
	least := c.duration("for", request.GetFor())
	revoked, err := operate[lease.Revoked](ctx, o, c, func(by lease.Principal) lease.Command {
		return lease.Revoke{
			Principal: lease.Principal(request.GetPrincipal()), Proxy: lease.ProxyUID(request.GetProxyId()), For: orZero(least),
			Why: request.GetWhy(), By: by,
		}
	})
	if err != nil {
		return nil, err
	}
	o.changed()
	response := &leasev1.RevokeResponse{Revocation: revocation(revoked.Revocation)}
	for _, ended := range revoked.Ended {
		response.LeaseIds = append(response.LeaseIds, string(ended.ID))
	}
	return response, nil
}

// Reinstate implements [leasev1connect.OperatorServiceHandler].
func (o *operators) Reinstate(ctx context.Context, request *leasev1.ReinstateRequest) (*leasev1.ReinstateResponse, error) {
	lifted, err := operate[lease.Lifted](ctx, o, checks{}, func(by lease.Principal) lease.Command {
		return lease.Reinstate{Principal: lease.Principal(request.GetPrincipal()), Proxy: lease.ProxyUID(request.GetProxyId()), By: by}
	})
	if err != nil {
		return nil, err
	}
	o.changed()
	return &leasev1.ReinstateResponse{Lifted: lifted.Count > 0}, nil
}

// ListRevocations implements [leasev1connect.OperatorServiceHandler].
func (o *operators) ListRevocations(ctx context.Context, _ *leasev1.ListRevocationsRequest) (*leasev1.ListRevocationsResponse, error) {
	found, err := operate[lease.Revocations](ctx, o, checks{}, func(lease.Principal) lease.Command { return lease.ListRevocations{} })
	if err != nil {
		return nil, err
	}
	response := &leasev1.ListRevocationsResponse{}
	for _, r := range found.Standing {
		response.Revocations = append(response.Revocations, revocation(r))
	}
	return response, nil
}

// PauseTarget implements [leasev1connect.OperatorServiceHandler].
func (o *operators) PauseTarget(ctx context.Context, request *leasev1.PauseTargetRequest) (*leasev1.PauseTargetResponse, error) {
	var c checks
	target, least := c.target(request.GetTarget()), c.duration("for", request.GetFor())
	paused, err := operate[lease.Paused](ctx, o, c, func(by lease.Principal) lease.Command {
		return lease.PauseTarget{Target: target, For: orZero(least), Why: request.GetWhy(), By: by}
	})
	if err != nil {
		return nil, err
	}
	return &leasev1.PauseTargetResponse{Pause: pause(paused.Pause)}, nil
}

// ResumeTarget implements [leasev1connect.OperatorServiceHandler].
func (o *operators) ResumeTarget(ctx context.Context, request *leasev1.ResumeTargetRequest) (*leasev1.ResumeTargetResponse, error) {
	var c checks
	target := c.target(request.GetTarget())
	lifted, err := operate[lease.Lifted](ctx, o, c, func(by lease.Principal) lease.Command {
		return lease.ResumeTarget{Target: target, By: by}
	})
	if err != nil {
		return nil, err
	}
	return &leasev1.ResumeTargetResponse{Count: int32(lifted.Count)}, nil
}

// ListPauses implements [leasev1connect.OperatorServiceHandler].
func (o *operators) ListPauses(ctx context.Context, _ *leasev1.ListPausesRequest) (*leasev1.ListPausesResponse, error) {
	found, err := operate[lease.Pauses](ctx, o, checks{}, func(lease.Principal) lease.Command { return lease.ListPauses{} })
	if err != nil {
		return nil, err
	}
	response := &leasev1.ListPausesResponse{}
	for _, p := range found.Standing {
		response.Pauses = append(response.Pauses, pause(p))
	}
	return response, nil
}

// ListBans implements [leasev1connect.OperatorServiceHandler].
func (o *operators) ListBans(ctx context.Context, request *leasev1.ListBansRequest) (*leasev1.ListBansResponse, error) {
	var c checks
	exit := c.exit(request.GetExit())
	found, err := operate[lease.Bans](ctx, o, c, func(lease.Principal) lease.Command {
		return lease.ListBans{Target: request.GetTarget(), Exit: exit, Limit: int(request.GetLimit())}
	})
	if err != nil {
		return nil, err
	}
	response := &leasev1.ListBansResponse{Total: int32(found.Total)}
	for _, b := range found.Bans {
		ban := &leasev1.Ban{
			Exit: b.Exit.String(), Target: b.Target, Active: b.Active, Until: timestamppb.New(b.Until), Banned: b.Banned, Strikes: int32(b.Strikes),
		}
		for _, fleet := range b.Fleets {
			ban.Fleets = append(ban.Fleets, string(fleet))
		}
		response.Bans = append(response.Bans, ban)
	}
	return response, nil
}

// ClearBan implements [leasev1connect.OperatorServiceHandler].
func (o *operators) ClearBan(ctx context.Context, request *leasev1.ClearBanRequest) (*leasev1.ClearBanResponse, error) {
	var c checks
	exit := c.exit(request.GetExit())
	lifted, err := operate[lease.Lifted](ctx, o, c, func(by lease.Principal) lease.Command {
		return lease.ClearBan{Target: request.GetTarget(), Exit: exit, By: by}
	})
	if err != nil {
		return nil, err
	}
	return &leasev1.ClearBanResponse{Count: int32(lifted.Count)}, nil
}

func revocation(r lease.Revocation) *leasev1.Revocation {
	return &leasev1.Revocation{
		Principal: string(r.Principal), ProxyId: string(r.Proxy), Since: timestamppb.New(r.Since), Until: timestamppb.New(r.Until), Why: r.Why,
	}
}

func pause(p lease.Pause) *leasev1.Pause {
	answer := &leasev1.Pause{Target: p.Target, Since: timestamppb.New(p.Since), Why: p.Why}
	if !p.Until.IsZero() {
		answer.Until = timestamppb.New(p.Until)
	}
	return answer
}

// exit reads an address that may be left out.
func (c *checks) exit(text string) lease.Exit {
	if text == "" {
		return lease.Exit{}
	}
	exit, err := lease.ParseExit(text)
	c.refusal(err, "exit")
	return exit
}

func orZero(d *time.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return *d
}
