package hub

import (
	"context"

	"github.com/shoal-dev/shoal/hub/internal/audit"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/hub/internal/leasemetrics"
	"github.com/shoal-dev/shoal/hub/internal/quota"
)

// auditNotices is how many ends of leases may wait for the audit log: a member that goes with thousands of leases.
const auditNotices = 16384

// overseen returns what the lease service asks: the keeper, behind the audit log, the limits, and the figures, which so
// count what the limits refuse as well.
func (h *hub) overseen(ctx context.Context, figures *leasemetrics.Metrics) (leaseapi.Keeper, error) {
	var next quota.Doer = h.keeper
	if h.AuditLog != "" {
		log, err := audit.Open(audit.Options{Path: h.AuditLog, Clock: h.Clock, Logger: h.Logger.With("part", "audit")})
		if err != nil {
			return nil, err
		}
		h.measured.MustRegister(log)
		h.stages.start(ctx, "audit", log.Run)
		notices := h.keeper.Subscribe(keeper.SubscribeOptions{Buffer: auditNotices})
		h.stages.start(ctx, "audit of ends", func(ctx context.Context) error {
			defer notices.Close()
			return audit.Watch(ctx, notices, log)
		})
		next = audit.Wrap(next, log)
	}
	if h.QuotaFile != "" {
		limits, err := quota.New(quota.Options{Next: next, Path: h.QuotaFile, Clock: h.Clock, Logger: h.Logger.With("part", "quotas")})
		if err != nil {
			return nil, err
		}
		h.stages.start(ctx, "quotas", limits.Run)
		next = limits
	}
	h.measured.MustRegister(figures, leasemetrics.NewState(h.keeper, h.keeper.Queued))
	return figures.Wrap(next), nil
}
