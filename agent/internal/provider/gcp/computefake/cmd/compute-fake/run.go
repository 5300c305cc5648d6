package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake/boot"
)

// config is the command line.
type config struct {
	listen, boot, docker, network, dir, runID string
	projects, zones                           []string
}

var unnameable = regexp.MustCompile(`[^a-z0-9.-]+`)

func run(ctx context.Context, c config) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	switch {
	case c.boot != "none" && c.boot != "docker":
		return fmt.Errorf("--boot %q: write none or docker", c.boot)
	case c.boot == "docker" && c.network == "":
		return errors.New("--docker-network is missing: machines must join a network that crawlers reach")
	}
	server, err := computefake.New(computefake.Options{
		Clock: clock.RealClock{}, Projects: c.projects, Zones: c.zones, Booted: c.boot == "docker",
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer listener.Close()
	group, ctx := errgroup.WithContext(ctx)
	if c.boot == "docker" {
		if c.runID == "" {
			c.runID = listener.Addr().String()
		}
		loop, cleanup, err := machines(c, server, log)
		if err != nil {
			return err
		}
		defer cleanup()
		server.OnChange(loop.Wake)
		group.Go(func() error { return loop.Run(ctx) })
	}
	web := &http.Server{Handler: server, ReadHeaderTimeout: 10 * time.Second}
	group.Go(func() error {
		log.Info("compute-fake serves", "address", listener.Addr().String(), "projects", c.projects, "zones", c.zones, "boot", c.boot)
		if err := web.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return web.Close()
	})
	return group.Wait()
}

// machines makes the loop that runs machines as containers, and what removes its files.
func machines(c config, server *computefake.Server, log *slog.Logger) (*boot.Loop, func(), error) {
	dir, cleanup := c.dir, func() {}
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "compute-fake-"); err != nil {
			return nil, nil, err
		}
		cleanup = func() { _ = os.RemoveAll(dir) }
	}
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return nil, nil, fmt.Errorf("read the limit on open files: %w", err)
	}
	runID := strings.Trim(unnameable.ReplaceAllString(strings.ToLower(c.runID), "-"), "-.")
	return boot.NewLoop(boot.LoopOptions{
		Machines: server, Clock: clock.RealClock{}, Log: log, Dir: dir, Prefix: "gce-" + runID,
		Engine: &boot.Docker{Path: c.docker, Network: c.network, RunID: runID, MaxFiles: files.Max},
	}), cleanup, nil
}
