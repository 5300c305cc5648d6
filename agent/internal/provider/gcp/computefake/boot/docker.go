package boot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The labels by which containers, and leftovers of earlier runs, are found.
const (
	// LabelRun has the run's ID.
	LabelRun = "dev.shoal.computefake"
	// LabelInstance has project, zone and name.
	LabelInstance = "dev.shoal.computefake.instance"
)

// Docker is an [Engine] that calls the docker program. It is safe for concurrent use.
type Docker struct {
	// Path is the program; DOCKER_HOST says which engine it talks to.
	Path string
	// Network is the engine's network that containers join.
	Network string
	// RunID tells this run's containers from others'.
	RunID string
	// MaxFiles bounds the limit on open files that a container may be given; 0 is no bound. An engine without the right to
	// raise limits fails a container that asks for more than it has itself.
	MaxFiles uint64
}

// docker runs the program and gives its output. What it says on its error output is part of the error.
func (d *Docker) docker(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, d.Path, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// Run starts a container and gives its address on the network.
func (d *Docker) Run(ctx context.Context, c Container) (netip.Addr, error) {
	if _, err := d.docker(ctx, d.runArgs(c)...); err != nil {
		return netip.Addr{}, err
	}
	format := fmt.Sprintf("{{(index .NetworkSettings.Networks %q).IPAddress}}", d.Network)
	text, err := d.docker(ctx, "inspect", "--format", format, c.Name)
	if err != nil {
		return netip.Addr{}, err
	}
	at, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("container %s has no address on network %s; its log may say why it ended", c.Name, d.Network)
	}
	return at, nil
}

// runArgs are the arguments that make a container of a plan.
func (d *Docker) runArgs(c Container) []string {
	p := c.Plan
	args := []string{
		"run", "--detach", "--name", c.Name, "--label", LabelRun + "=" + d.RunID, "--label", LabelInstance + "=" + c.Instance,
		"--network", d.Network, "--log-driver", "json-file", "--log-opt", "max-size=1m",
	}
	if p.Restart {
		args = append(args, "--restart", "always")
	}
	if p.ReadOnly {
		args = append(args, "--read-only")
	}
	add := func(flag string, values ...string) {
		for _, v := range values {
			if v != "" {
				args = append(args, flag, v)
			}
		}
	}
	add("--user", p.User)
	add("--cap-drop", p.CapDrop...)
	add("--security-opt", p.SecurityOpt...)
	for _, u := range p.Ulimits {
		add("--ulimit", d.bounded(u))
	}
	for _, m := range p.Mounts {
		add("--volume", filepath.Join(c.Root, m.Host)+":"+m.Container+":ro")
	}
	add("--entrypoint", p.Entrypoint)
	return slices.Concat(args, []string{p.Image}, p.Command)
}

// bounded lowers a limit on open files to what the engine can give.
func (d *Docker) bounded(ulimit string) string {
	name, limits, _ := strings.Cut(ulimit, "=")
	if name != "nofile" || d.MaxFiles == 0 {
		return ulimit
	}
	parts := strings.Split(limits, ":")
	for i, text := range parts {
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && n > d.MaxFiles {
			parts[i] = strconv.FormatUint(d.MaxFiles, 10)
		}
	}
	return name + "=" + strings.Join(parts, ":")
}

// Remove stops a container, giving it the grace, and removes it. One that is not there is removed.
func (d *Docker) Remove(ctx context.Context, name string, grace time.Duration) error {
	found, err := d.docker(ctx, "ps", "--all", "--quiet", "--filter", "name=^/?"+name+"$")
	if err != nil || found == "" {
		return err
	}
	_, stopped := d.docker(ctx, "stop", "--time", strconv.Itoa(int(grace.Seconds())), name)
	if _, err := d.docker(ctx, "rm", "--force", "--volumes", name); err != nil {
		return errors.Join(stopped, err)
	}
	return nil
}

// RemoveAll removes every container of this run's ID, also those that an earlier run left.
func (d *Docker) RemoveAll(ctx context.Context) error {
	found, err := d.docker(ctx, "ps", "--all", "--quiet", "--filter", "label="+LabelRun+"="+d.RunID)
	if err != nil || found == "" {
		return err
	}
	_, err = d.docker(ctx, append([]string{"rm", "--force", "--volumes"}, strings.Fields(found)...)...)
	return err
}
