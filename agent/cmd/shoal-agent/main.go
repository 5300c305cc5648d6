// Command shoal-agent runs proxies in a member cluster at the wish of a hub.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/shoal-dev/shoal/agent"
)

// Set by the linker.
var version, commit = "dev", "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shoal-agent:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var c agent.Config
	var file, tokenFile, level string
	cmd := &cobra.Command{
		Use: "shoal-agent", Short: "Run proxies in a member cluster at the wish of a hub",
		Version: version + " (" + commit + ", " + runtime.Version() + ")", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), c, file, tokenFile, level) },
	}
	f := cmd.Flags()
	f.StringVar(&file, "config", "/etc/shoal-agent/config.yaml", "the cluster owner's configuration file")
	f.StringVar(&tokenFile, "join-token-file", "", "a file with the join token; needed until the agent has registered")
	f.StringVar(&c.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the namespace the agent keeps its objects in")
	f.StringVar(&c.HealthAddress, "health-address", ":8081", "where /healthz and /readyz are served")
	f.StringVar(&c.MetricsAddress, "metrics-address", ":8080", "where /metrics is served; 0 for nowhere")
	f.BoolVar(&c.LeaderElection, "leader-elect", true, "let several replicas stand by for one")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

func run(ctx context.Context, c agent.Config, file, tokenFile, level string) error {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return fmt.Errorf("--log-level %q: write debug, info, warn or error", level)
	}
	c.Logger, c.Version = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), version
	c.Logger.Info("shoal-agent starts", "version", version, "commit", commit, "go", runtime.Version())
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if c.Settings, err = agent.ReadSettings(text); err != nil {
		return err
	}
	if token, err := os.ReadFile(tokenFile); err == nil {
		c.JoinToken = strings.TrimSpace(string(token))
	}
	if c.RestConfig, err = ctrl.GetConfig(); err != nil {
		return fmt.Errorf("reach the API server: %w", err)
	}
	return agent.Run(ctx, c)
}
