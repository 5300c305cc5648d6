package cluster

import (
	"context"
	"net/netip"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/engine"
)

// RunBeside runs an image as a container on the group's network, under the name PREFIX-NAME, and returns its address. One
// that runs the same image already stays. Down removes it with the network.
func (k *Keeper) RunBeside(ctx context.Context, group *Group, name, image, archive string) (netip.Addr, error) {
	e, err := k.engineFor(ctx, group)
	if err != nil {
		return netip.Addr{}, err
	}
	container := group.Prefix + "-" + name
	running, err := e.Call(ctx, "ps", "--all", "--filter", "name=^/"+container+"$", "--format", "{{.Image}} {{.State}}")
	if err != nil {
		return netip.Addr{}, err
	}
	if running != image+" running" {
		if running != "" {
			if err := removeContainers(ctx, e, []string{container}); err != nil {
				return netip.Addr{}, err
			}
		}
		if err := loadBeside(ctx, e, image, archive); err != nil {
			return netip.Addr{}, err
		}
		if _, err := e.Call(ctx, "run", "--detach", "--name", container, "--network", group.Network.Name,
			"--label", groupLabel+"="+group.Prefix, "--restart", "no", "--cap-drop", "ALL", "--read-only",
			"--sysctl", "net.ipv4.ip_unprivileged_port_start=0", image); err != nil {
			return netip.Addr{}, err
		}
		if err := removeOldImages(ctx, e, image); err != nil {
			return netip.Addr{}, err
		}
	}
	text, err := e.Call(ctx, "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}", container)
	if err != nil {
		return netip.Addr{}, err
	}
	return netip.ParseAddr(strings.TrimSpace(text))
}

// LoadBeside brings an image into the group's engine itself, for containers that run beside the clusters.
func (k *Keeper) LoadBeside(ctx context.Context, group *Group, image, archive string) error {
	e, err := k.engineFor(ctx, group)
	if err != nil {
		return err
	}
	if err := loadBeside(ctx, e, image, archive); err != nil {
		return err
	}
	return removeOldImages(ctx, e, image)
}

func loadBeside(ctx context.Context, e *engine.Engine, image, archive string) error {
	if has(ctx, e, image) {
		return nil
	}
	_, err := e.Call(ctx, "load", "--quiet", "--input", archive)
	return err
}

// Docker returns the path of a client that the group's engine understands.
func (k *Keeper) Docker(ctx context.Context, group *Group) (string, error) {
	e, err := k.engineFor(ctx, group)
	if err != nil {
		return "", err
	}
	return e.Docker, nil
}
