package hub

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/disk"
)

// What --journal may be.
const (
	// JournalMemory keeps leases in memory: they end with the hub.
	JournalMemory = "memory"
	// JournalDisk keeps leases in Config.JournalDir.
	JournalDisk = "disk"
	// JournalValkey keeps leases on the server of Config.Valkey, for several hubs of which one works.
	JournalValkey = "valkey"
)

// past is the journal and what is known of the leases of earlier hubs.
type past struct {
	journal Journal
	// since is when the history begins; complete says that there was nothing before.
	since    time.Time
	complete bool
	// epoch is greater than that of every hub before.
	epoch uint64
	close func() error
	// collector measures the journal; nil if there is nothing to measure.
	collector prometheus.Collector
}

// openPast opens the journal and finds out whether it holds everything. Before anything is granted the hub's Secret
// names the journal in use, so that one which was set aside for a while is not believed later.
func (h *hub) openPast(ctx context.Context) (past, error) {
	now := h.Clock.Now()
	p := past{
		since: now,
		// An identity that was made just now cannot have granted anything before.
		complete: h.created,
		// Each start is an authority of its own, later than all before.
		epoch: uint64(now.Unix()), //nolint:gosec // positive since 1970
		close: func() error { return nil },
	}
	switch {
	case h.Journal != nil:
		p.journal, p.complete = h.Journal, true
		return p, nil
	case h.JournalType == JournalDisk:
		return h.openDisk(ctx, p)
	case h.JournalType == JournalValkey:
		return h.openValkey(ctx, p)
	}
	p.journal = keeper.NewMemory(keeper.MemoryOptions{})
	_, err := identity.SwapJournal(ctx, h.live, h.Namespace, JournalMemory)
	return p, err
}

func (h *hub) openDisk(ctx context.Context, p past) (past, error) {
	log := h.Logger.With("part", "journal")
	journal, err := disk.Open(disk.Options{
		Dir: h.JournalDir, Owner: h.identity.UID(), Now: p.since, New: h.created, CompactAfter: h.JournalCompactAfter, Logger: log, Clock: h.Clock,
	})
	if err != nil {
		return p, err
	}
	name := JournalDisk + "/" + journal.ID()
	before, err := identity.SwapJournal(ctx, h.live, h.Namespace, name)
	if err == nil && before != name && !journal.Fresh() {
		log.WarnContext(ctx, "the hub has used another journal meanwhile; nothing is granted for one maxTTL", "journal", name, "before", before)
		err = journal.Interrupted(p.since)
	}
	if err != nil {
		_ = journal.Close() // the other error says what is wrong
		return p, fmt.Errorf("take the journal in %s into use: %w", h.JournalDir, err)
	}
	p.journal, p.close, p.epoch, p.collector = journal, journal.Close, journal.Epoch(), disk.NewCollector(journal)
	p.since, p.complete = journal.Since()
	log.InfoContext(ctx, "lease journal opened", "dir", h.JournalDir, "journal", name, "since", p.since, "complete", p.complete)
	return p, nil
}
