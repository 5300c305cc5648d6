package boot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
)

// Engine runs containers.
type Engine interface {
	// Run starts a container and gives its address.
	Run(ctx context.Context, c Container) (netip.Addr, error)
	// Remove stops a container, giving it the grace, and removes it; one that is not there is removed.
	Remove(ctx context.Context, name string, grace time.Duration) error
	// RemoveAll removes every container of this run, and of earlier ones of the same ID.
	RemoveAll(ctx context.Context) error
}

// Container is a machine as the engine runs it.
type Container struct {
	// Name is unique in the engine; Instance is project, zone and name.
	Name, Instance string
	// Root is the directory in which the machine's files are.
	Root string
	Plan Plan
}

// Machines says what should run; *[computefake.Server] does.
type Machines interface {
	Machines() []computefake.Machine
	Booted(m computefake.Machine, at netip.Addr) bool
	BootFailed(m computefake.Machine, why string) bool
	Console(m computefake.Machine, text string)
	Next() (time.Time, bool)
}

// LoopOptions configures a [Loop].
type LoopOptions struct {
	Machines Machines
	Engine   Engine
	Clock    clock.Clock
	Log      *slog.Logger
	// Dir is a directory for the machines' files.
	Dir string
	// Prefix begins every container's name.
	Prefix string
	// Grace is how long a container that is removed may take to end. Default 3 s.
	Grace time.Duration
}

// Loop keeps containers as the fake's machines are. Run is called once, Wake by anybody.
type Loop struct {
	o       LoopOptions
	wake    chan struct{}
	running map[key]*running
}

// key tells a machine from an earlier one of the same name.
type key struct {
	id   computefake.Int64
	boot int
}

// running is a machine that was booted, or that failed to.
type running struct {
	container Container
	failed    bool
	// held are the watched items as they were last written.
	held map[string]string
}

// NewLoop returns a loop that has not begun.
func NewLoop(o LoopOptions) *Loop {
	if o.Grace == 0 {
		o.Grace = 3 * time.Second
	}
	return &Loop{o: o, wake: make(chan struct{}, 1), running: map[key]*running{}}
}

// Wake has the loop look again.
func (l *Loop) Wake() {
	select {
	case l.wake <- struct{}{}:
	default: // It is awake already.
	}
}

const (
	// lookAgain bounds the time between two looks, for what failed.
	lookAgain = 10 * time.Second
	// atOnce is how many containers are started or removed at the same time.
	atOnce = 4
	// most is how long one of those may take.
	most = time.Minute
)

// Run removes what an earlier run left, keeps containers until the context is done, and removes them all then.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.o.Engine.RemoveAll(ctx); err != nil {
		return fmt.Errorf("remove what an earlier run left: %w", err)
	}
	for ctx.Err() == nil {
		l.pass(ctx)
		wait := lookAgain
		if next, ok := l.o.Machines.Next(); ok {
			wait = min(wait, max(0, next.Sub(l.o.Clock.Now())))
		}
		timer := l.o.Clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), most)
	defer cancel()
	err := l.o.Engine.RemoveAll(end)
	for _, r := range l.running {
		err = errors.Join(err, os.RemoveAll(r.container.Root))
	}
	if err != nil {
		return fmt.Errorf("remove the machines: %w", err)
	}
	return nil
}

// pass starts what is missing, removes what is too much, and rewrites what changed. Only the map is shared between its
// goroutines, and only pass itself touches that.
func (l *Loop) pass(ctx context.Context) {
	wanted := map[key]bool{}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, m := range l.o.Machines.Machines() {
		k := key{m.ID, m.Boot}
		wanted[k] = true
		r, known := l.running[k]
		switch {
		case !known && m.Booted:
			// It runs without us: an earlier pass saw it leave and come back, or nobody boots it.
		case !known:
			r = &running{held: map[string]string{}}
			l.running[k] = r
			group.Go(func() error { l.boot(ctx, m, r); return nil })
		case !r.failed:
			group.Go(func() error { l.follow(m, r); return nil })
		}
	}
	for k, r := range l.running {
		if wanted[k] {
			continue
		}
		delete(l.running, k)
		group.Go(func() error { l.remove(ctx, r); return nil })
	}
	_ = group.Wait() // No goroutine fails: each says in the log and on the console what went wrong.
}

// boot makes a container of a machine, or says on its console why not.
func (l *Loop) boot(ctx context.Context, m computefake.Machine, r *running) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	instance := m.Project + "/" + m.Zone + "/" + m.Name
	name := fmt.Sprintf("%s-%s-%s-%x-%d", l.o.Prefix, m.Zone, m.Name, int64(m.ID), m.Boot)
	r.container = Container{Name: name, Instance: instance, Root: filepath.Join(l.o.Dir, name)}
	at, err := l.start(ctx, m, r)
	if err != nil {
		r.failed = true
		l.o.Log.Error("machine does not boot", "instance", instance, "error", err)
		l.o.Machines.BootFailed(m, err.Error())
		l.remove(context.WithoutCancel(ctx), r)
		return
	}
	l.o.Log.Info("machine runs", "instance", instance, "container", name, "address", at)
	l.o.Machines.Console(m, "proxy runs at "+at.String())
	// A machine that is not wanted any more is removed by the next pass.
	l.o.Machines.Booted(m, at)
}

func (l *Loop) start(ctx context.Context, m computefake.Machine, r *running) (netip.Addr, error) {
	userData, ok := item(m, "user-data")
	if !ok {
		return netip.Addr{}, errors.New("there is no user-data: nothing says what to run")
	}
	plan, err := Parse(userData)
	if err != nil {
		return netip.Addr{}, err
	}
	if _, ok := item(m, "startup-script"); ok {
		l.o.Machines.Console(m, "startup-script is left out: there is no machine to run it on")
	}
	r.container.Plan = plan
	for _, mount := range plan.Mounts {
		// The container's user is another: the mode of what it reads matters, not that of what is above.
		dir := filepath.Join(r.container.Root, mount.Host)
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(dir, 0o755)); err != nil {
			return netip.Addr{}, err
		}
	}
	for _, f := range plan.Files {
		if err := l.write(r, f); err != nil {
			return netip.Addr{}, err
		}
	}
	l.follow(m, r)
	return l.o.Engine.Run(ctx, r.container)
}

// follow writes the watched items that changed. One that is gone or empty changes nothing, as in the recipe.
func (l *Loop) follow(m computefake.Machine, r *running) {
	for _, w := range r.container.Plan.Watches {
		value, ok := item(m, w.Item)
		if !ok || value == "" || r.held[w.Item] == value {
			continue
		}
		if err := l.write(r, File{Path: w.Path, Mode: 0o644, Content: value}); err != nil {
			l.o.Log.Error("metadata item is not written", "instance", r.container.Instance, "item", w.Item, "error", err)
			continue
		}
		r.held[w.Item] = value
	}
}

// write makes a file appear whole.
func (l *Loop) write(r *running, f File) error {
	at := filepath.Join(r.container.Root, f.Path)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	// Beside the mounts, so that the container never sees half a file.
	fresh, err := os.CreateTemp(r.container.Root, ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(fresh.Name())
	_, err = fresh.WriteString(f.Content)
	if err := errors.Join(err, fresh.Chmod(f.Mode), fresh.Close()); err != nil {
		return err
	}
	return os.Rename(fresh.Name(), at)
}

// remove ends a machine. What cannot be removed now is removed at the end of the run.
func (l *Loop) remove(ctx context.Context, r *running) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	err := l.o.Engine.Remove(ctx, r.container.Name, l.o.Grace)
	if err = errors.Join(err, os.RemoveAll(r.container.Root)); err != nil {
		l.o.Log.Error("machine is not removed", "instance", r.container.Instance, "error", err)
	}
}

func item(m computefake.Machine, name string) (string, bool) {
	return (&computefake.Metadata{Items: m.Metadata}).Get(name)
}
