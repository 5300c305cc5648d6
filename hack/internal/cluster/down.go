package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/engine"
	"github.com/shoal-dev/shoal/hack/internal/hoststate"
)

// Down removes a group and all it brought about but the caches. The private engine stops with the last of its
// containers. It is safe to repeat, and removes what half a run left as well as what a whole one did.
func (k *Keeper) Down(ctx context.Context, prefix string) error {
	if err := (Request{Prefix: prefix, NodesPerMember: 1}).Validate(); err != nil {
		return err
	}
	group, err := Load(k.Cache, prefix)
	if err != nil {
		return err
	}
	// First: a process may make containers, and removes them when it ends.
	if err := k.endProcesses(ctx, prefix); err != nil {
		return err
	}
	e, err := k.engineToClean(ctx, group)
	if err != nil {
		return err
	}
	if e != nil {
		if err := k.clean(ctx, e, prefix); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(groupDir(k.Cache, prefix)); err != nil {
		return err
	}
	return k.Release(ctx)
}

// engineToClean returns the engine that a group is on, or nil if there can be nothing of it.
func (k *Keeper) engineToClean(ctx context.Context, group *Group) (*engine.Engine, error) {
	if group == nil {
		// Made by nobody, or before the file was written; then at most an engine runs.
		return k.Engines.Find(ctx)
	}
	if group.PrivateEngine {
		// A killed daemon is started again: it alone knows its containers' volumes and networks.
		return k.Engines.EnsurePrivate(ctx)
	}
	if group.DockerHost != "" {
		if e := k.Engines.At(ctx, group.DockerHost); e != nil {
			return e, nil
		}
	}
	e, err := k.Engines.Find(ctx)
	if err == nil && e == nil {
		err = fmt.Errorf("the container engine that %s's clusters run on does not answer; start it and try again, or forget them: rm -r %s",
			group.Prefix, groupDir(k.Cache, group.Prefix))
	}
	return e, err
}

func (k *Keeper) clean(ctx context.Context, e *engine.Engine, prefix string) error {
	nodes, err := e.Call(ctx, "ps", "--all", "--filter", "label="+kindLabel, "--format", `{{.ID}} {{.Label "`+kindLabel+`"}}`)
	if err != nil {
		return err
	}
	var ids []string
	for line := range strings.Lines(nodes) {
		id, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == prefix+"-hub" || strings.HasPrefix(name, prefix+"-member-") {
			ids = append(ids, id)
		}
	}
	if err := removeContainers(ctx, e, ids); err != nil {
		return err
	}
	found, err := e.Call(ctx, "network", "ls", "--quiet", "--filter", "label="+groupLabel+"="+prefix)
	if err != nil {
		return err
	}
	for _, id := range strings.Fields(found) {
		if err := k.removeNetwork(ctx, e, id); err != nil {
			return err
		}
	}
	return nil
}

// Release ends the private engine when nothing runs on it any more, and puts the host's settings back when no cluster is
// left anywhere. Down does so itself.
func (k *Keeper) Release(ctx context.Context) error {
	private, err := k.Engines.FindPrivate(ctx)
	if err != nil {
		return err
	}
	if private != nil {
		running, err := private.Call(ctx, "ps", "--quiet")
		if err != nil {
			return err
		}
		if running != "" {
			return nil
		}
		if _, err := private.Call(ctx, "volume", "prune", "--force"); err != nil {
			return err
		}
	}
	groups, err := Groups(k.Cache)
	if err != nil {
		return err
	}
	for _, group := range groups {
		if group.PrivateEngine {
			// It is down at this moment, not removed: its next `up` or `down` will need the saved state.
			return nil
		}
	}
	if err := k.Engines.StopPrivate(ctx); err != nil {
		return err
	}
	if len(groups) > 0 {
		return nil
	}
	before, err := hoststate.Load(k.before())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := before.RestoreSysctls(); err != nil {
		return err
	}
	return os.Remove(k.before())
}
