package engine

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/hoststate"
)

// before is the file with the host's state before the daemon's first start.
func (p *private) before() string { return filepath.Join(p.dir, "before.json") }

// networks is the file with what networks the daemon had, one "bridge subnet" a line.
func (p *private) networks() string { return filepath.Join(p.dir, "networks") }

func (p *private) saveHost() error {
	return hoststate.SaveOnce(context.Background(), p.before(), string(p.cache))
}

// NoteNetwork records that the private engine was asked for a network, before it is: should the engine be killed, its
// firewall rules and link are found by this.
func (f *Finder) NoteNetwork(bridge string, subnet netip.Prefix) error {
	p := f.private()
	content, err := os.ReadFile(p.networks())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	line := bridge + " " + subnet.String() + "\n"
	if strings.Contains(string(content), line) {
		return nil
	}
	return cache.WriteFile(p.networks(), append(content, line...), 0o644)
}

type notedNetwork struct {
	bridge string
	subnet netip.Prefix
}

// noted returns the networks that were recorded since the daemon's first start.
func (p *private) noted() []notedNetwork {
	content, _ := os.ReadFile(p.networks()) // none before the first network
	var found []notedNetwork
	for line := range strings.Lines(string(content)) {
		bridge, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if subnet, err := netip.ParsePrefix(text); err == nil && bridge != "" {
			found = append(found, notedNetwork{bridge, subnet})
		}
	}
	return found
}

// restoreHost removes what the daemon added to the host and forgets the saved state.
func (p *private) restoreHost(ctx context.Context) error {
	before, err := hoststate.Load(p.before())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // never started, or cleaned up already
	}
	if err != nil {
		return err
	}
	var subnets []netip.Prefix
	for _, network := range p.noted() {
		subnets = append(subnets, network.subnet)
		if _, err := net.InterfaceByName(network.bridge); err == nil && !slices.Contains(before.Links, network.bridge) {
			if err := exec.CommandContext(ctx, "ip", "link", "delete", network.bridge).Run(); err != nil {
				return err
			}
		}
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		if err := cleanFirewall(ctx, family, before, subnets); err != nil {
			return err
		}
	}
	// Directories that dockerd and the containerd it starts use whatever they are told.
	for _, path := range []string{"/etc/docker/key.json", "/etc/docker", "/run/xtables.lock", "/run/containerd", "/run/docker", "/opt/containerd"} {
		if slices.Contains(before.Files, path) || !cache.Exists(path) {
			continue
		}
		if path == "/etc/docker" {
			_ = os.Remove(path) // only if empty
			continue
		}
		if filepath.Dir(path) == "/etc/docker" && !slices.Contains(before.Files, path) {
			_ = os.Remove(path)
			continue
		}
		if !occupied(path) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	if err := before.RestoreSysctls(); err != nil {
		return err
	}
	return errors.Join(removeIfThere(p.networks()), removeIfThere(p.before()))
}

// occupied reports whether a live containerd or dockerd of somebody else uses a directory: its socket stands there.
func occupied(dir string) bool {
	for _, socket := range []string{"containerd.sock", "docker.sock"} {
		if cache.Exists(filepath.Join(dir, socket)) {
			return true
		}
	}
	return false
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
