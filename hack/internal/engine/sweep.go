package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// sweep ends and removes what a daemon of ours that is gone has left running, mounted or listed as running, so that it
// does not matter how the daemon ended. Data (images, volumes) stays.
func (p *private) sweep() error {
	if err := p.killLeftovers(); err != nil {
		return err
	}
	if err := p.unmountAll(); err != nil {
		return err
	}
	p.removeCgroups()
	p.removePorts()
	return os.RemoveAll(p.run)
}

// removePorts removes what is still plugged into bridges of ours. The kernel takes a dead container's pair of interfaces
// away only with its network namespace, and an unfinished TCP connection keeps that for minutes.
func (p *private) removePorts() {
	for _, network := range p.noted() {
		out, _ := exec.Command("ip", "-oneline", "link", "show", "master", network.bridge).Output() // none without the bridge
		for line := range strings.Lines(string(out)) {
			// 68: vethec8c13d@if67: <BROADCAST,...
			if fields := strings.Fields(line); len(fields) > 1 {
				port, _, _ := strings.Cut(strings.TrimSuffix(fields[1], ":"), "@")
				_ = exec.Command("ip", "link", "delete", port).Run() // it may go by itself meanwhile
			}
		}
	}
}

// killLeftovers ends containers and their shims. A container's first process takes all others of its pid namespace with
// it; killing can race with the start of another, hence the repetition until there is none.
func (p *private) killLeftovers() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		left := p.leftovers()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes of a former Docker daemon do not end: %v", left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(50 * time.Millisecond) // a killed process stays visible until the kernel has taken it apart
	}
}

// leftovers are the processes that name our run directory, as shims and containerd do, and those whose root file system
// lies in our data root, as containers' do.
func (p *private) leftovers() []int {
	var found []int
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(dir), "%d", &pid); err != nil || pid == os.Getpid() {
			continue
		}
		if stat, err := os.ReadFile(filepath.Join(dir, "stat")); err != nil || bytes.Contains(stat, []byte(") Z ")) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		program, _, _ := bytes.Cut(line, []byte{0})
		name := filepath.Base(string(program))
		if (strings.HasPrefix(name, "containerd") || name == "runc" || name == shimName) && bytes.Contains(line, []byte(p.execRoot()+"/")) {
			found = append(found, pid)
			continue
		}
		if p.rootedHere(dir) {
			found = append(found, pid)
		}
	}
	return found
}

// rootedHere reports whether a process's root is an overlay whose layers are in our data root.
func (p *private) rootedHere(dir string) bool {
	info, err := os.ReadFile(filepath.Join(dir, "mountinfo"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == "/" {
			return strings.Contains(line, "dir="+p.dataRoot()+"/")
		}
	}
	return false
}

// unmountAll detaches every mount below our directories, the last mounted first.
func (p *private) unmountAll() error {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	var points []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if point := fields[4]; strings.HasPrefix(point, p.dir+"/") || strings.HasPrefix(point, p.run+"/") {
			points = append(points, point)
		}
	}
	var errs []error
	for _, point := range slices.Backward(points) {
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// removeCgroups removes the groups of containers in our data root. The kubelet nests its own deep inside, which Docker
// does not remove.
func (p *private) removeCgroups() {
	containers, _ := os.ReadDir(filepath.Join(p.dataRoot(), "containers"))
	var names []string
	for _, container := range containers {
		names = append(names, container.Name())
	}
	for _, pattern := range []string{"/sys/fs/cgroup/docker", "/sys/fs/cgroup/*/docker"} {
		parents, _ := filepath.Glob(pattern)
		for _, parent := range parents {
			for _, name := range names {
				removeCgroup(filepath.Join(parent, name))
			}
			// Only an empty group can be removed, so this never touches another engine's.
			_ = syscall.Rmdir(parent)
		}
	}
}

func removeCgroup(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if entry.IsDir() {
			removeCgroup(filepath.Join(path, entry.Name()))
		}
	}
	_ = syscall.Rmdir(path)
}
