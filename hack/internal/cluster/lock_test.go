package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/progress"
)

// A run that was killed leaves programs that hold its lock; the next run ends them.
func TestLockEndsOrphans(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := lock(t.Context(), path, progress.New(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	orphan := exec.Command("sleep", "600")
	orphan.ExtraFiles = []*os.File{f}
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- orphan.Wait() }()
	// As if the process that took the lock were gone: its number is nobody's, and only the orphan has the file open.
	if _, err := f.WriteAt([]byte("4194305   "), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	again, err := lock(ctx, path, progress.New(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	select {
	case <-ended:
	case <-ctx.Done():
		_ = orphan.Process.Kill()
		t.Error("the orphan lives on")
	}
}

func TestLockWaitsForALiveHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := lock(t.Context(), path, progress.New(io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := lock(ctx, path, progress.New(io.Discard)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second lock: %v", err)
	}
}
