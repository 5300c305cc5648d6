package cluster

import (
	"context"
	"net/netip"
	"strings"
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
		if !has(ctx, e, image) {
			if _, err := e.Call(ctx, "load", "--quiet", "--input", archive); err != nil {
				return netip.Addr{}, err
			}
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
