// Command shoal-hub runs a hub. See package hub.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/shoal-dev/shoal/hub"
)

// Set by the build: -ldflags "-X main.version=… -X main.commit=…".
var version, commit = "dev", "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shoal-hub:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var config hub.Config
	var level slog.Level
	cmd := &cobra.Command{
		Use:           "shoal-hub",
		Short:         "Run a hub of Shoal: fleets, members and leases",
		Version:       fmt.Sprintf("%s (commit %s, %s)", version, commit, runtime.Version()),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			config.Logger = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			ctrl.SetLogger(logr.FromSlogHandler(config.Logger.Handler()))
			klog.SetSlogLogger(config.Logger)
			config.Logger.Info("shoal-hub starts", "version", version, "commit", commit, "go", runtime.Version())
			if config.RestConfig, err = ctrl.GetConfig(); err != nil {
				return fmt.Errorf("find the hub's cluster; set --kubeconfig or run in a pod: %w", err)
			}
			return hub.Run(cmd.Context(), config)
		},
	}
	config.AddFlags(cmd.Flags())
	cmd.Flags().AddGoFlagSet(flag.CommandLine) // --kubeconfig
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "least level that is logged: debug, info, warn or error")
	return cmd
}
