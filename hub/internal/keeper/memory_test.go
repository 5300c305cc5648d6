package keeper_test

import (
	"testing"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/journaltest"
)

// TestMemory holds the memory journal to the contract of all journals. It outlives a keeper, if not a process.
func TestMemory(t *testing.T) {
	journaltest.Run(t, func(testing.TB) journaltest.Open {
		journal := keeper.NewMemory(keeper.MemoryOptions{Retain: true})
		return func(testing.TB) keeper.Journal { return journal }
	})
}

// TestMemoryForgets checks that a hub's memory journal does not grow.
func TestMemoryForgets(t *testing.T) {
	journal := keeper.NewMemory(keeper.MemoryOptions{})
	for range 3 {
		if err := journal.Append(t.Context(), journaltest.Kinds()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(journal.Records()); n != 0 || journal.Batches() != 3 {
		t.Errorf("%d records kept of %d batches", n, journal.Batches())
	}
}
