package cluster

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/cache"
)

// TestEndProcesses ends what belongs to the group, whoever started it, and nothing else.
func TestEndProcesses(t *testing.T) {
	dir := cache.Dir(t.TempDir())
	start := func(program, arg string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", "while :; do sleep 0.05; done", arg)
		cmd.Args[0] = program
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		return cmd
	}
	run := func(prefix string) string { return filepath.Join(groupDir(dir, prefix), "run", "compute") }
	ours := start("/cache/bin/"+ProgramPrefix+"compute-fake-1", run("one"))
	otherGroup := start("/cache/bin/"+ProgramPrefix+"compute-fake-1", run("one-more"))
	otherProgram := start("less", run("one"))
	for deadline := time.Now().Add(10 * time.Second); len(processesBelow(run("one"))) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process is not found")
		}
	}
	k := &Keeper{Cache: dir}
	if err := k.endProcesses(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if processAlive(ours.Process.Pid) {
		t.Error("the group's process lives")
	}
	for _, other := range []*exec.Cmd{otherGroup, otherProgram} {
		if !processAlive(other.Process.Pid) {
			t.Errorf("%v was ended, which is another's", other.Args)
		}
	}
}
