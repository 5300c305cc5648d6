package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a program of this machine that runs beside a group's clusters.
type Process struct {
	// Name names its log, PREFIX-NAME.log.
	Name string
	// Program is the path of the program; its name begins with [ProgramPrefix]. Another path means another program, and it
	// is started anew.
	Program string
	// Args are its arguments. One of them must be a path below [Keeper.ProcessDir], by which the process is known.
	Args []string
	// Address is where it listens, as host:port, once it is up.
	Address string
}

// ProcessDir is the directory of a process, for files of its own. Down removes it.
func (k *Keeper) ProcessDir(group *Group, name string) string {
	return processDir(groupDir(k.Cache, group.Prefix), name)
}

func processDir(groupDir, name string) string { return filepath.Join(groupDir, "run", name) }

// EnsureProcess starts a process that talks to the group's engine, and returns once it listens. One that runs the same
// program with the same arguments stays; another is ended first. Down ends it.
func (k *Keeper) EnsureProcess(ctx context.Context, group *Group, p Process) error {
	e, err := k.engineFor(ctx, group)
	if err != nil {
		return err
	}
	dir := k.ProcessDir(group, p.Name)
	want := append([]string{p.Program}, p.Args...)
	for pid, have := range processesBelow(dir) {
		if slices.Equal(have, want) {
			return nil
		}
		if err := endProcess(ctx, pid, have); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	logFile := k.Cache.Path("log", group.Prefix+"-"+p.Name+".log")
	if err := os.MkdirAll(filepath.Dir(logFile), 0o755); err != nil {
		return err
	}
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.Program, p.Args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", log, log
	cmd.Env = os.Environ()
	if e.Host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+e.Host)
	}
	// A session of its own: an interrupt at the terminal is for us, and we end it by Down.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	deadline := time.After(30 * time.Second)
	for {
		if c, err := net.DialTimeout("tcp", p.Address, time.Second); err == nil {
			return c.Close()
		}
		select {
		case err := <-exited:
			text, _ := os.ReadFile(logFile)
			return fmt.Errorf("%s ended at once (%v): %s", p.Name, err, strings.TrimSpace(string(text)))
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("%s does not listen at %s after 30 s; see %s", p.Name, p.Address, logFile)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// endProcesses ends all processes of a group, also those that an interrupted run started.
func (k *Keeper) endProcesses(ctx context.Context, prefix string) error {
	var failed []error
	for pid, args := range processesBelow(filepath.Join(groupDir(k.Cache, prefix), "run")) {
		failed = append(failed, endProcess(ctx, pid, args))
	}
	return errors.Join(failed...)
}

// processesBelow finds processes that have a path in or below dir among their arguments, with their command lines. They are
// known by that and not by a file with their number, which may not be written yet, or be another program's by now.
func processesBelow(dir string) map[int][]string {
	found := map[int][]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, proc := range entries {
		pid, err := strconv.Atoi(filepath.Base(proc))
		line, readErr := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || readErr != nil || pid == os.Getpid() {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		// A shell or a pager that looks at the files is not ours to end.
		if _, ours := strings.CutPrefix(filepath.Base(args[0]), ProgramPrefix); !ours {
			continue
		}
		if slices.ContainsFunc(args, func(a string) bool { return a == dir || strings.HasPrefix(a, dir+"/") }) {
			found[pid] = args
		}
	}
	return found
}

// ProgramPrefix begins the names of programs that are run so.
const ProgramPrefix = "beside-"

// endProcess ends one, and waits until it has: it removes what it made, before the network goes.
func endProcess(ctx context.Context, pid int, args []string) error {
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end %s: %w", args[0], err)
	}
	deadline := time.Now().Add(30 * time.Second)
	for processAlive(pid) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL) // It may have gone at this moment.
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func processAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
