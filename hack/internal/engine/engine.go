package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/progress"
)

// Engine is an engine that answers.
type Engine struct {
	// Host is its address in the form of DOCKER_HOST; empty means the Docker client's own default.
	Host string
	// Private is true for the daemon that this package runs.
	Private bool
	// CgroupV1 is true where containers live under the old cgroup hierarchies.
	CgroupV1 bool
	// Docker is the path of a Docker client that this engine understands.
	Docker string

	run command.Runner
}

// Run returns a runner for programs that talk to the engine: DOCKER_HOST is set.
func (e *Engine) Run() command.Runner {
	if e.Host == "" {
		return e.run
	}
	return e.run.With("DOCKER_HOST=" + e.Host)
}

// Call runs the Docker client and returns what it printed.
func (e *Engine) Call(ctx context.Context, args ...string) (string, error) {
	return e.Run().Output(ctx, e.Docker, args...)
}

// Finder looks for engines and keeps the private one.
type Finder struct {
	Hack  string
	Cache cache.Dir
	Log   *progress.Log
	Run   command.Runner
}

// Find returns an engine that answers: the one that DOCKER_HOST names, else the client's default, else our private one if
// it runs. Nil without an error means that there is none; nothing is started.
func (f *Finder) Find(ctx context.Context) (*Engine, error) {
	private := f.private()
	if host := os.Getenv("DOCKER_HOST"); host != private.host() {
		// An empty name leaves the choice to the client: its context, then the system's socket.
		if engine := f.ask(ctx, host); engine != nil {
			return engine, nil
		}
		if host != "" {
			f.Log.Printf("DOCKER_HOST is %s, but nothing answers there", host)
		}
	}
	return f.FindPrivate(ctx)
}

// At returns the engine at an address that is known from before, or nil if it does not answer.
func (f *Finder) At(ctx context.Context, host string) *Engine { return f.ask(ctx, host) }

// FindPrivate returns our private engine if it runs, else nil.
func (f *Finder) FindPrivate(ctx context.Context) (*Engine, error) {
	private := f.private()
	if !private.running() {
		return nil, nil
	}
	engine := f.ask(ctx, private.host())
	if engine == nil {
		return nil, nil
	}
	engine.Private = true
	return engine, nil
}

// Ensure returns an engine that answers and starts the private one if there is none.
func (f *Finder) Ensure(ctx context.Context) (*Engine, error) {
	engine, err := f.Find(ctx)
	if err != nil || engine != nil {
		return engine, err
	}
	return f.EnsurePrivate(ctx)
}

// EnsurePrivate returns the private engine, started if need be.
func (f *Finder) EnsurePrivate(ctx context.Context) (*Engine, error) {
	engine, err := f.FindPrivate(ctx)
	if err != nil || engine != nil {
		return engine, err
	}
	if os.Getuid() != 0 {
		return nil, errors.New("no container engine answers. Start Docker or set DOCKER_HOST; as root on Debian or Ubuntu a private one is started for you")
	}
	if err := f.Run.Run(ctx, filepath.Join(f.Hack, "packages"), "docker.io", "docker-cli", "iptables", "nftables", "iproute2"); err != nil {
		return nil, err
	}
	private := f.private()
	err = f.Log.Step("Starting a private Docker daemon", "2 s", func() error { return private.start(ctx) })
	if err != nil {
		return nil, err
	}
	engine, err = f.FindPrivate(ctx)
	if err == nil && engine == nil {
		err = fmt.Errorf("the private Docker daemon runs, but no docker client on this machine can talk to it; see %s", private.logFile())
	}
	return engine, err
}

// StopPrivate ends the private engine and removes what it made outside its data root.
func (f *Finder) StopPrivate(ctx context.Context) error {
	return f.private().stop(ctx)
}

// PrivateRunning reports whether the private engine's process is alive.
func (f *Finder) PrivateRunning() bool { return f.private().running() }

// clients are the Docker clients of this machine. More than one is usual where Debian's docker.io was installed beside
// another, and a client may be too old or too new for a daemon.
func clients() []string {
	var found []string
	seen := make(map[string]bool)
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/bin") {
		// The file itself: a group's own directory of links may be in PATH, and its link is made from what is found here.
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "docker"))
		if err != nil {
			continue
		}
		if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 || seen[path] {
			continue
		}
		seen[path] = true
		found = append(found, path)
	}
	return found
}

// ask returns the engine at host, or nil if no client gets an answer from it.
func (f *Finder) ask(ctx context.Context, host string) *Engine {
	for _, docker := range clients() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		cmd := exec.CommandContext(ctx, docker, "info", "--format", "{{.ServerVersion}} {{.CgroupVersion}}")
		cmd.Env = os.Environ()
		if host != "" {
			cmd.Env = append(cmd.Env, "DOCKER_HOST="+host)
		}
		out, err := cmd.Output()
		cancel()
		fields := strings.Fields(string(out))
		if err != nil || len(fields) < 1 {
			continue
		}
		return &Engine{Host: host, Docker: docker, CgroupV1: fields[len(fields)-1] != "2", run: f.Run}
	}
	return nil
}
