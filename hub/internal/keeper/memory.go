package keeper

import (
	"context"
	"slices"
	"sync"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Memory is a Journal that survives nothing but the keeper: a restarted process has none of it. It is safe for
// concurrent use, so that a test can look at it while a keeper writes.
type Memory struct {
	retain bool

	mu      sync.Mutex
	records []lease.Record
	batches int
	fail    error
}

// MemoryOptions are what a Memory is made with.
type MemoryOptions struct {
	// Retain keeps all records, for a test that starts a second keeper on the journal of the first. A hub leaves it
	// unset: nobody can read its memory after it is gone, and records would pile up.
	Retain bool
}

// NewMemory makes an empty journal.
func NewMemory(opts MemoryOptions) *Memory { return &Memory{retain: opts.Retain} }

// Load implements [Journal].
func (m *Memory) Load(ctx context.Context, yield func(lease.Record) error) error {
	for _, rec := range m.Records() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := yield(rec); err != nil {
			return err
		}
	}
	return nil
}

// Append implements [Journal].
func (m *Memory) Append(_ context.Context, batch []lease.Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.batches++
	if m.retain {
		m.records = append(m.records, batch...)
	}
	return nil
}

// Records returns what was retained.
func (m *Memory) Records() []lease.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}

// Batches counts the batches appended.
func (m *Memory) Batches() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.batches
}

// FailWith makes every further Append fail with err, as a full disk would.
func (m *Memory) FailWith(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = err
}
