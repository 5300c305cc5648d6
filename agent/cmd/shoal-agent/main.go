// Command shoal-agent runs proxies in a member cluster at the wish of a hub.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/shoal-dev/shoal/agent"
	"github.com/shoal-dev/shoal/agent/internal/buildinfo"
)

// Set by the build: -ldflags "-X main.version=… -X main.commit=…".
var version, commit = buildinfo.NoVersion, buildinfo.NoCommit

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(run).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shoal-agent:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	c := f.config
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return fmt.Errorf("--log-level %q: write debug, info, warn or error", f.logLevel)
	}
	if c.Namespace == "" {
		return fmt.Errorf("--namespace is empty: name the namespace the agent runs in, or set POD_NAMESPACE")
	}
	build := buildinfo.Read(version, commit)
	c.Logger, c.Version = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})), build.Version
	c.Commit, c.Registerer = build.Commit, metrics.Registry
	klog.SetSlogLogger(c.Logger)
	c.Logger.Info("shoal-agent starts", "version", build.Version, "commit", build.Commit, "go", build.Go)
	text, err := os.ReadFile(f.file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if c.Settings, err = agent.ReadSettings(text); err != nil {
		return err
	}
	if c.RestConfig, err = ctrl.GetConfig(); err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return agent.Run(ctx, c)
}
