package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/cache"
)

// private is Debian's dockerd with everything it owns under one directory of the cache.
type private struct {
	// dir keeps the data root, which outlives the daemon: images stay cached.
	dir string
	// run keeps what must not: sockets, pid files, the state of containers.
	run string
	// hack is where the host's state is described.
	cache cache.Dir
}

// socketLimit is the longest path a unix socket can have, less the longest name that dockerd and containerd put below
// their exec root.
const socketLimit = 107 - len("/exec/containerd/containerd-debug.sock.ttrpc")

func (f *Finder) private() *private {
	dir := f.Cache.Path("docker")
	run := filepath.Join(dir, "run")
	if len(run) > socketLimit {
		sum := sha256.Sum256([]byte(dir))
		run = "/run/shoal-" + hex.EncodeToString(sum[:4])
	}
	return &private{dir: dir, run: run, cache: f.Cache}
}

func (p *private) host() string     { return "unix://" + filepath.Join(p.run, "docker.sock") }
func (p *private) pidFile() string  { return filepath.Join(p.run, "docker.pid") }
func (p *private) execRoot() string { return filepath.Join(p.run, "exec") }
func (p *private) dataRoot() string { return filepath.Join(p.dir, "root") }
func (p *private) logFile() string  { return p.cache.Path("log", "dockerd.log") }

// pid returns the daemon's process, or 0. It is known by our data root on its command line: a pid file may be stale and its
// number taken by another program since, or not be written yet.
func (p *private) pid() int {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !strings.Contains(string(line), "\x00--data-root\x00"+p.dataRoot()+"\x00") {
			continue
		}
		program, _, _ := strings.Cut(string(line), "\x00")
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && filepath.Base(program) == "dockerd" {
			return pid
		}
	}
	return 0
}

func (p *private) running() bool { return p.pid() != 0 }

func (p *private) start(ctx context.Context) error {
	dockerd, err := exec.LookPath("dockerd")
	if err != nil {
		return err
	}
	if p.running() {
		// Started by a run that was killed before it answered; or it hangs, and then another is the way out.
		if p.answers(ctx, 30*time.Second) {
			return nil
		}
		if err := p.end(ctx); err != nil {
			return err
		}
	}
	if err := p.removeStale(); err != nil {
		return err
	}
	if err := p.saveHost(); err != nil {
		return err
	}
	for _, dir := range []string{p.run, p.dataRoot(), filepath.Dir(p.logFile())} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	log, err := os.Create(p.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{
		"--data-root", p.dataRoot(),
		"--exec-root", p.execRoot(),
		"--host", p.host(),
		"--pidfile", p.pidFile(),
		"--config-file", filepath.Join(p.run, "daemon.json"),
		// The clusters have a network of their own; without a default one there is no docker0 to leave behind.
		"--bridge", "none",
	}
	runtime, err := p.runtime()
	if err != nil {
		return err
	}
	args = append(args, runtime...)
	if err := os.WriteFile(filepath.Join(p.run, "daemon.json"), []byte("{}\n"), 0o644); err != nil {
		return err
	}
	cmd := exec.Command(dockerd, args...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	// A session of its own: an interrupt at the terminal is for us, not for the daemon.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	deadline := time.After(2 * time.Minute) // after a crash it first ends what ran
	for {
		select {
		case err := <-exited:
			return fmt.Errorf("dockerd ended at once (%w):\n%s", err, p.logTail())
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("dockerd does not answer after 2 min:\n%s", p.logTail())
		case <-time.After(100 * time.Millisecond):
			if p.running() && (&Finder{Cache: p.cache}).ask(ctx, p.host()) != nil {
				return nil
			}
		}
	}
}

func (p *private) logTail() string {
	text, _ := os.ReadFile(p.logFile())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-10):], "\n  ") + "\n  (all of it: " + p.logFile() + ")"
}

// removeStale removes the run directory of a daemon that is gone: killed, or ended with the machine. Mounts and
// processes that it left are ended first, or the next daemon would adopt half of them.
func (p *private) removeStale() error {
	if !cache.Exists(p.run) {
		return nil
	}
	return p.sweep()
}

// answers waits for a daemon that was started by somebody else.
func (p *private) answers(ctx context.Context, patience time.Duration) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && ctx.Err() == nil; time.Sleep(200 * time.Millisecond) {
		if (&Finder{Cache: p.cache}).ask(ctx, p.host()) != nil {
			return true
		}
	}
	return false
}

func (p *private) stop(ctx context.Context) error {
	if err := p.end(ctx); err != nil {
		return err
	}
	if err := p.sweep(); err != nil {
		return err
	}
	return p.restoreHost(ctx)
}

// end ends the daemon's process, if it runs.
func (p *private) end(ctx context.Context) error {
	if pid := p.pid(); pid != 0 {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
		deadline := time.Now().Add(30 * time.Second)
		for p.alive(pid) {
			if time.Now().After(deadline) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}

func (p *private) alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
