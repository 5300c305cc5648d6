package disk

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// smallDisk mounts a file system of so many MiB for the test.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("shoal-journal-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("this test mounts a small file system, which needs root and leave to mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// hog is a file that takes what room there is on a disk.
type hog struct {
	t    *testing.T
	path string
}

// take leaves so many bytes free.
func (h hog) take(leave uint64) {
	h.t.Helper()
	usage, err := vfs.Default.GetDiskUsage(filepath.Dir(h.path))
	if err != nil {
		h.t.Fatal(err)
	}
	if usage.AvailBytes <= leave {
		return
	}
	file, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer file.Close()
	block := make([]byte, 64<<10)
	for left := usage.AvailBytes - leave; left > 0; {
		n, err := file.Write(block[:min(left, uint64(len(block)))])
		left -= uint64(n) //nolint:gosec // not negative
		if errors.Is(err, syscall.ENOSPC) {
			return
		}
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h hog) giveBack() {
	h.t.Helper()
	if err := os.Remove(h.path); err != nil {
		h.t.Fatal(err)
	}
}

// TestFullDisk fills a real, small disk under a keeper at work: grants stop,
// renewals, releases and bans go on for as long as the reserve lasts, then
// nothing is written; with room again everything resumes, without a restart.
// In the end a new process knows all that was acknowledged.
func TestFullDisk(t *testing.T) {
	mount := smallDisk(t, 160)
	opts := options(filepath.Join(mount, "journal"))
	opts.Reserve = 16 << 20
	opts.Now = time.Now()
	j := mustOpen(t, opts)
	k := startKeeper(t, j)
	if err := stock(k.Keeper); err != nil {
		t.Fatal(err)
	}
	var granted []lease.Lease
	for range 2 * crashProxies {
		got, err := k.Acquire(t.Context(), lease.Acquire{Principal: anna, Fleet: crashFleet})
		if err != nil {
			t.Fatal(err)
		}
		granted = append(granted, got.Leases...)
	}
	given := granted[0]
	if _, err := k.Release(t.Context(), lease.Release{Principal: anna, ID: given.ID}); err != nil {
		t.Fatal(err)
	}
	eater := hog{t, filepath.Join(mount, "hog")}
	acquire := func() error {
		_, err := k.Acquire(t.Context(), lease.Acquire{Principal: anna, Fleet: crashFleet})
		return err
	}

	eater.take(leastRoom - 1<<20)
	refusedFor(t, "a grant on a full disk", acquire())
	if j.reserve.ballast() == 0 {
		t.Error("the reserve is gone before it is needed")
	}
	// The rest goes on, on what nobody else can take, while the disk is as full as can be.
	eater.take(0)
	bans, renewals := 0, 0
	var last lease.Renewed
	for n := 0; ; n++ {
		held := granted[1+n%(len(granted)-1)]
		got, err := k.Renew(t.Context(), lease.Renew{Principal: anna, ID: held.ID})
		if err != nil {
			refusedFor(t, "a renewal with the reserve used up", err)
			break
		}
		if held.ID == granted[1].ID {
			last = got
		}
		renewals++
		if n%1000 == 0 {
			ban := lease.Observation{Target: lease.MustParseTarget(fmt.Sprintf("t%d.example", n)), Outcome: lease.Blocked}
			if _, err := k.Report(t.Context(), lease.Report{Principal: anna, ID: held.ID, Observations: []lease.Observation{ban}}); err != nil {
				t.Fatalf("a ban on a full disk, after %d renewals: %v", renewals, err)
			}
			bans++
		}
		if n == 100 {
			refusedFor(t, "a grant from the reserve", acquire())
			if _, err := k.Release(t.Context(), lease.Release{Principal: anna, ID: granted[len(granted)-1].ID}); err != nil {
				t.Fatalf("a release on a full disk: %v", err)
			}
			granted = granted[:len(granted)-1]
			// Somebody else takes what the reserve has freed, but for some MiB.
			eater.take(leastRoom/2 + 4<<20)
		}
	}
	t.Logf("%d renewals and %d bans on a full disk", renewals, bans)
	if renewals < 1000 || bans == 0 {
		t.Error("the reserve lasted for next to nothing")
	}
	if found, err := k.Get(t.Context(), lease.Get{Principal: anna, ID: granted[1].ID}); err != nil || found.Lease.State != lease.Live {
		t.Errorf("reading with nothing left: %+v, %v", found.Lease, err)
	}

	eater.giveBack()
	if err := acquire(); err != nil {
		var refusal *lease.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != lease.ReadOnly {
			t.Errorf("with room again: %v", err)
		}
	}
	j.reserve.close() // the reserve is made anew, beside
	if err := acquire(); err != nil {
		t.Errorf("with the reserve in its place again: %v", err)
	}
	if room, why := j.Room(); room != keeper.RoomForAll || why != "" || j.reserve.ballast() != opts.Reserve {
		t.Errorf("room %d, %q, ballast %d", room, why, j.reserve.ballast())
	}
	k.halt(t)
	mustClose(t, j)

	j = mustOpen(t, opts)
	defer mustClose(t, j)
	k = startKeeper(t, j)
	found, err := k.Get(t.Context(), lease.Get{Principal: anna, ID: granted[1].ID})
	if err != nil || found.Lease.State != lease.Live || found.Lease.Expires.Before(last.Lease.Expires) {
		t.Errorf("after a restart: %+v, %v; it was renewed until %s", found.Lease, err, last.Lease.Expires)
	}
	if found, err := k.Get(t.Context(), lease.Get{Principal: anna, ID: given.ID}); err != nil || found.Lease.State != lease.StateReleased {
		t.Errorf("after a restart the released lease is %+v, %v", found.Lease, err)
	}
	k.halt(t)
}

// TestFullDiskAtTheStart starts on disks that are full: with a reserve to give
// away it serves what it must; without one it says what to do.
func TestFullDiskAtTheStart(t *testing.T) {
	mount := smallDisk(t, 160)
	opts := options(filepath.Join(mount, "journal"))
	opts.Reserve = 16 << 20
	j := mustOpen(t, opts)
	mustAppend(t, j, paused(0, 1000)...)
	mustClose(t, j)
	eater := hog{t, filepath.Join(mount, "hog")}
	eater.take(4 << 20)

	j = mustOpen(t, opts)
	if room, why := j.Room(); room != keeper.RoomForUpkeep || !strings.Contains(why, "MiB") {
		t.Errorf("room %d: %q", room, why)
	}
	if n := len(loaded(t, j)); n != 1000 {
		t.Errorf("%d of 1000 records are there", n)
	}
	mustAppend(t, j, paused(1000, 1001)...)
	mustClose(t, j)

	eater.take(0)
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "make room") || !strings.Contains(err.Error(), opts.Dir) {
		t.Errorf("without any room: %v", err)
	}
	eater.giveBack()
	j = mustOpen(t, opts)
	defer mustClose(t, j)
	if n := len(loaded(t, j)); n != 1001 {
		t.Errorf("%d of 1001 records are there", n)
	}
	if room, _ := j.Room(); room != keeper.RoomForAll {
		t.Errorf("room %d with all the room there can be", room)
	}
}

// TestReadOnlyDisk starts on a disk that takes no writes.
func TestReadOnlyDisk(t *testing.T) {
	mount := smallDisk(t, 160)
	opts := options(filepath.Join(mount, "journal"))
	mustClose(t, mustOpen(t, opts))
	if err := syscall.Mount("", mount, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "mounted read-only") || !strings.Contains(err.Error(), opts.Dir) {
		t.Errorf("got %v", err)
	}
	opts.Dir = filepath.Join(mount, "elsewhere")
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "mounted read-only") {
		t.Errorf("a new one: %v", err)
	}
}

// TestNotAllowed starts in a directory of somebody else's. Root may write anywhere, so another user tries.
func TestNotAllowed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can become another user")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, open := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(open, 0o755); err != nil { //nolint:gosec // for another user to look into
			t.Fatal(err)
		}
	}
	copied := filepath.Join(dir, "program")
	if err := os.WriteFile(copied, program, 0o755); err != nil { //nolint:gosec // for another user to run
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), copied)
	cmd.Env = append(os.Environ(), victimDir+"="+filepath.Join(dir, "journal"))
	cmd.Stdin = strings.NewReader("{}")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "fsGroup") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestStoreFindsNoRoom fills the disk between two looks at it, so that the store itself finds no room: it gets the
// reserve, and the append is done.
func TestStoreFindsNoRoom(t *testing.T) {
	mount := smallDisk(t, 160)
	opts := options(filepath.Join(mount, "journal"))
	opts.Reserve = 20 << 20
	j := mustOpen(t, opts)
	j.reserve.usage = func() (vfs.DiskUsage, error) { return vfs.DiskUsage{AvailBytes: 1 << 30, TotalBytes: 1 << 30}, nil }
	hog{t, filepath.Join(mount, "hog")}.take(0)
	n := 0
	for j.reserve.ballast() > 0 && n < 1_000_000 {
		mustAppend(t, j, paused(n, n+1000)...)
		n += 1000
	}
	mustAppend(t, j, paused(n, n+1)...)
	t.Logf("the reserve was needed after %d records", n)
	if j.reserve.ballast() > 0 {
		t.Error("the disk was full and the reserve was not needed")
	}
	if got := len(loaded(t, j)); got != n+1 {
		t.Errorf("%d of %d records are there", got, n+1)
	}
	mustClose(t, j)
}

// TestCollector collects what a journal says of itself, and nothing once it is closed.
func TestCollector(t *testing.T) {
	opts := options(t.TempDir())
	j := mustOpen(t, opts)
	mustAppend(t, j, paused(0, 400)...)
	j.Compact(t.Context(), into(paused(0, 100)))
	j.compacting.Wait()
	mustAppend(t, j, paused(0, 7)...)
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewCollector(j))
	got := map[string]float64{}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		got[family.GetName()] = family.GetMetric()[0].GetGauge().GetValue()
	}
	for name, want := range map[string]float64{
		"shoal_journal_log_records": 7, "shoal_journal_snapshot_records": 100, "shoal_journal_reserve_bytes": float64(opts.Reserve),
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
	for _, name := range []string{"shoal_journal_disk_bytes", "shoal_journal_disk_free_bytes"} {
		if got[name] <= 0 {
			t.Errorf("%s is %v", name, got[name])
		}
	}
	mustClose(t, j)
	if families, err := registry.Gather(); err != nil || len(families) != 0 {
		t.Errorf("closed, it gives %d metrics and %v", len(families), err)
	}
}

func refusedFor(t *testing.T, what string, err error) {
	t.Helper()
	var refusal *lease.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != lease.ReadOnly || refusal.RetryAfter <= 0 || !strings.Contains(refusal.Message, "disk is full") {
		t.Fatalf("%s: %v, want READ_ONLY", what, err)
	}
}

// TestRoomByFigures follows the reserve through figures of a disk.
func TestRoomByFigures(t *testing.T) {
	const mib = 1 << 20
	var free atomic.Uint64
	r := &reserve{dir: t.TempDir(), size: 4 * mib, usage: func() (vfs.DiskUsage, error) {
		return vfs.DiskUsage{AvailBytes: free.Load() * mib, TotalBytes: 1 << 30}, nil
	}}
	r.make()
	steps := []struct {
		free    uint64 // MiB
		room    keeper.Room
		ballast bool
		why     string
	}{
		{100, keeper.RoomForAll, true, "a disk with room"},
		{20, keeper.RoomForAll, true, "enough to go on"},
		{15, keeper.RoomForUpkeep, true, "too little for the store to be in peace"},
		{20, keeper.RoomForUpkeep, true, "not enough to begin again"},
		{32, keeper.RoomForAll, true, "twice what is needed"},
		{7, keeper.RoomForNothing, false, "the reserve went and freed nothing, as the figure is made up"},
		{12, keeper.RoomForNothing, false, "not enough to begin again"},
		{16, keeper.RoomForUpkeep, false, "enough for upkeep"},
		{9, keeper.RoomForUpkeep, false, "enough to go on"},
		{34, keeper.RoomForUpkeep, false, "the reserve would take what grants need"},
		{36, keeper.RoomForUpkeep, false, "the reserve is being made"},
		{36, keeper.RoomForAll, true, "it has been made"},
	}
	for i, step := range steps {
		free.Store(step.free)
		room, why := r.Room()
		r.close()
		if room != step.room || (why == "") != (room == keeper.RoomForAll) {
			t.Errorf("step %d, %d MiB, %s: room %d, %q", i, step.free, step.why, room, why)
		}
		if held := r.ballast() > 0; held != step.ballast && i != len(steps)-2 {
			t.Errorf("step %d, %d MiB, %s: ballast is %v", i, step.free, step.why, held)
		}
	}
}
