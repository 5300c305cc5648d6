// Package hoststate describes the state of a machine that clusters touch, tells what differs between two moments, and
// puts back what is only a value. It is how `down` knows what was there before, and how tests prove that nothing is left.
package hoststate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
)

// Snapshot is the state at one moment. All lists are sorted.
type Snapshot struct {
	// BootID names the boot of the machine: values of another boot are not to be restored.
	BootID string
	// Processes that belong to engines and clusters, as "pid command".
	Processes []string
	// Mounts are mount points, one line for each mount.
	Mounts []string
	// Links are network interfaces.
	Links []string
	// Routes of all tables, without those that the kernel adds for each interface.
	Routes []string
	// Rules are the lines of iptables-save and ip6tables-save without counters, and the names of nft's tables.
	Rules []string
	// Sysctls by path below /proc/sys.
	Sysctls map[string]string
	// Files are what stands in the places where engines and clusters write.
	Files []string
	// Cgroups are the groups that engines make, by hierarchy.
	Cgroups []string
}

// Capture reads the state. What cannot be read (another user's, a missing program) is left out on both sides of a
// comparison alike. Below skip, the cache, files and mounts of no concern.
func Capture(ctx context.Context, skip string) (*Snapshot, error) {
	s := &Snapshot{Sysctls: make(map[string]string)}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, err
	}
	s.BootID = strings.TrimSpace(string(boot))
	s.Processes = processes(skip)
	if s.Mounts, err = mounts(); err != nil {
		return nil, err
	}
	s.Links = links()
	s.Routes = append(outputLines(ctx, "ip", "-4", "route", "show", "table", "all"), outputLines(ctx, "ip", "-6", "route", "show", "table", "all")...)
	s.Routes = slices.DeleteFunc(s.Routes, func(line string) bool {
		return strings.Contains(line, " table local ") || strings.Contains(line, "proto ra")
	})
	s.Rules = rules(ctx)
	for _, pattern := range sysctlPatterns {
		paths, _ := filepath.Glob(filepath.Join("/proc/sys", pattern))
		for _, path := range paths {
			if value, err := os.ReadFile(path); err == nil {
				s.Sysctls[strings.TrimPrefix(path, "/proc/sys/")] = strings.TrimSpace(string(value))
			}
		}
	}
	s.Files = files(skip)
	s.Cgroups = cgroups()
	for _, list := range [][]string{s.Processes, s.Mounts, s.Links, s.Routes, s.Files, s.Cgroups} {
		slices.Sort(list)
	}
	return s, nil
}

// sysctlPatterns are what dockerd and the kubelet set, and what hangs together with it.
var sysctlPatterns = []string{
	"vm/overcommit_memory", "vm/panic_on_oom",
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", "net/ipv4/conf/default/forwarding",
	"net/ipv4/conf/all/route_localnet", "net/ipv4/conf/all/rp_filter", "net/ipv4/conf/default/rp_filter",
	"net/ipv6/conf/all/forwarding", "net/ipv6/conf/default/forwarding",
	"net/bridge/bridge-nf-call-*", "net/netfilter/nf_conntrack_max", "net/netfilter/nf_conntrack_tcp_*",
	"fs/inotify/*", "net/core/somaxconn",
}

// programs are the names of processes that engines and clusters start.
var programs = []string{
	"dockerd", "containerd", "containerd-shim", "containerd-shim-runc-v2", "docker-proxy", "runc", "shoal-runc", "kind", "kubectl", "kubeadm",
	"kubelet", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "etcd", "coredns", "pause", "squid", "shoal-",
	"beside-",
}

func processes(skip string) []string {
	var found []string
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range entries {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || len(line) == 0 || filepath.Base(dir) == fmt.Sprint(os.Getpid()) {
			continue // gone, or a kernel thread, or this program
		}
		words := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		name := filepath.Base(words[0])
		known := slices.ContainsFunc(programs, func(program string) bool {
			return name == program || strings.HasSuffix(program, "-") && strings.HasPrefix(name, program)
		})
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		ours := skip != "" && strings.HasPrefix(exe, skip+"/docker/")
		if strings.Contains(words[0], "/envtest/") {
			continue // a controller test's own, which may run at the same time
		}
		if known || ours {
			found = append(found, filepath.Base(dir)+" "+strings.Join(words[:min(len(words), 4)], " "))
		}
	}
	return found
}

func mounts() ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		kind, _, _ := strings.Cut(strings.SplitN(line, " - ", 2)[1], " ")
		found = append(found, fields[4]+" "+kind)
	}
	return found, nil
}

func links() []string {
	interfaces, _ := net.Interfaces()
	var found []string
	for _, one := range interfaces {
		found = append(found, one.Name)
	}
	return found
}

// rules keeps the order of the rules within each output: it is part of what they mean.
func rules(ctx context.Context) []string {
	var found []string
	for _, program := range []string{"iptables-save", "ip6tables-save"} {
		for _, line := range outputLines(ctx, program) {
			if strings.HasPrefix(line, "#") || line == "COMMIT" {
				continue
			}
			if strings.HasPrefix(line, ":") {
				line, _, _ = strings.Cut(line, " [") // counters of a chain
			}
			found = append(found, program+" "+line)
		}
	}
	for _, line := range outputLines(ctx, "nft", "list", "tables") {
		found = append(found, "nft "+line)
	}
	return found
}

// places are files and directories that clusters may bring about; of the directories, what is directly in them.
var places = []string{
	"/run/*", "/run/docker/*", "/run/containerd/*", "/var/lib/*", "/etc/docker/*", "/etc/cni/*", "/etc/kubernetes/*", "/opt/*", "/opt/cni/*",
	"/usr/sbin/policy-rc.d", "/var/log/pods", "/var/log/containers",
	"/tmp/shoal-kubeadm-*", "/tmp/kind-*", "/tmp/mmdebstrap*", "/tmp/docker*", "/tmp/runc*", "/tmp/kubeadm*", "/tmp/*.tar",
}

func files(skip string) []string {
	var found []string
	patterns := places
	if home, err := os.UserHomeDir(); err == nil {
		patterns = append(slices.Clone(patterns), home+"/.kube", home+"/.kube/*", home+"/.docker", home+"/.docker/*")
	}
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if skip == "" || !strings.HasPrefix(path, skip) {
				found = append(found, path)
			}
		}
	}
	return found
}

func cgroups() []string {
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/docker*", "/sys/fs/cgroup/kube*", "/sys/fs/cgroup/*/docker*", "/sys/fs/cgroup/*/kube*", "/sys/fs/cgroup/*/docker/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				found = append(found, path)
			}
		}
	}
	return found
}

func outputLines(ctx context.Context, name string, args ...string) []string {
	out, err := exec.CommandContext(ctx, name, args...).Output()
	if err != nil {
		return nil
	}
	var found []string
	for line := range bytes.Lines(out) {
		if text := strings.TrimSpace(string(line)); text != "" {
			found = append(found, text)
		}
	}
	return found
}

// Diff lists what is different in after, one line each, additions with "+" and removals with "-".
func Diff(before, after *Snapshot) []string {
	var diff []string
	compare := func(kind string, old, new []string) {
		for _, line := range missingFrom(old, new) {
			diff = append(diff, fmt.Sprintf("+ %s %s", kind, line))
		}
		for _, line := range missingFrom(new, old) {
			diff = append(diff, fmt.Sprintf("- %s %s", kind, line))
		}
	}
	compare("process", before.Processes, after.Processes)
	compare("mount", before.Mounts, after.Mounts)
	compare("link", before.Links, after.Links)
	compare("route", before.Routes, after.Routes)
	compare("firewall", before.Rules, after.Rules)
	compare("file", before.Files, after.Files)
	compare("cgroup", before.Cgroups, after.Cgroups)
	for _, name := range slices.Sorted(maps.Keys(after.Sysctls)) {
		if old, ok := before.Sysctls[name]; ok && old != after.Sysctls[name] {
			diff = append(diff, fmt.Sprintf("+ sysctl %s is %s, was %s", name, after.Sysctls[name], old))
		}
	}
	return diff
}

// missingFrom returns the lines of want beyond those in have, with their counts.
func missingFrom(have, want []string) []string {
	count := make(map[string]int, len(have))
	for _, line := range have {
		count[line]++
	}
	var missing []string
	for _, line := range want {
		if count[line]--; count[line] < 0 {
			missing = append(missing, line)
		}
	}
	return missing
}

// RestoreSysctls sets what differs from the snapshot back, unless the machine was started anew since.
func (s *Snapshot) RestoreSysctls() error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil || strings.TrimSpace(string(boot)) != s.BootID {
		return err
	}
	// ip_forward last: writing it sets every interface's forwarding too.
	for _, name := range slices.Sorted(maps.Keys(s.Sysctls)) {
		path := filepath.Join("/proc/sys", name)
		now, err := os.ReadFile(path)
		if err != nil || strings.TrimSpace(string(now)) == s.Sysctls[name] {
			continue
		}
		if err := os.WriteFile(path, []byte(s.Sysctls[name]), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// SaveOnce captures the state into path unless it holds a snapshot of this boot already: then something that was
// interrupted took it before it touched anything, and now would be too late.
func SaveOnce(ctx context.Context, path, skip string) error {
	now, err := Capture(ctx, skip)
	if err != nil {
		return err
	}
	if saved, err := Load(path); err == nil && saved.BootID == now.BootID {
		return nil
	}
	return now.Save(path)
}

// Save writes the snapshot to path.
func (s *Snapshot) Save(path string) error {
	content, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return cache.WriteFile(path, content, fs.FileMode(0o644))
}

// Load reads a saved snapshot. The error is fs.ErrNotExist where there is none.
func Load(path string) (*Snapshot, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	if err := json.Unmarshal(content, s); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}
