package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/progress"
)

// What a run can be the only one to do.
const (
	// Changing is to change engines or clusters.
	Changing = "clusters"
	// Building is to build images, which may take minutes and does not keep others from their clusters.
	Building = "images"
)

// Lock makes this run the only one that does the work until unlock is called or the process ends.
func (k *Keeper) Lock(ctx context.Context, work string) (unlock func(), err error) {
	f, err := lock(ctx, k.Cache.Path("lock", work), k.Log)
	if err != nil {
		return nil, err
	}
	k.Run.Inherit = f
	k.Engines.Run.Inherit = f
	k.Tools.Run.Inherit = f
	k.Debian.Run.Inherit = f
	return func() { f.Close() }, nil
}

// lock waits for the lock and takes it. The lock belongs to an open file that programs we start inherit: while a
// killed run's `docker` is still at work the lock is held, and the next run ends it rather than work beside it.
func lock(ctx context.Context, path string, log *progress.Log) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	told := false
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", path, err), f.Close())
		}
		holder := holder(path)
		switch {
		case holder != 0 && !told:
			log.Printf("Waiting for another run to finish (process %d)", holder)
			told = true
		case holder == 0:
			endOrphans(path)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(200 * time.Millisecond):
		}
	}
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return f, err
}

// holder returns the process that took the lock, or 0 if it is gone.
func holder(path string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || !holds(pid, path) {
		return 0
	}
	return pid
}

// endOrphans kills what a killed run has started and left: processes that hold the lock's file open.
func endOrphans(path string) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		pid, err := strconv.Atoi(filepath.Base(dir))
		// Other waiting runs have it open as well; they are this same program.
		if err != nil || pid == os.Getpid() || sameProgram(pid) || !holds(pid, path) {
			continue
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// sameProgram reports whether a process is one of this module's programs, which hack/run-go builds side by side.
func sameProgram(pid int) bool {
	mine, err1 := os.Readlink("/proc/self/exe")
	theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err1 == nil && err2 == nil && filepath.Dir(mine) == filepath.Dir(theirs) && strings.HasPrefix(filepath.Base(theirs), "run-")
}

// holds reports whether a process has the file open.
func holds(pid int, path string) bool {
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && target == path {
			return true
		}
	}
	return false
}
