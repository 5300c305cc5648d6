// Command shoal-hub runs a hub. See package hub.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/shoal-dev/shoal/hub"
	"github.com/shoal-dev/shoal/hub/internal/buildinfo"
)

// Set by the build: -ldflags "-X main.version=… -X main.commit=…".
var version, commit = buildinfo.NoVersion, buildinfo.NoCommit

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
		Version:       buildinfo.Read(version, commit).String(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			config.Logger = slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
			ctrl.SetLogger(logr.FromSlogHandler(config.Logger.Handler()))
			klog.SetSlogLogger(config.Logger)
			build := buildinfo.Read(version, commit)
			config.Logger.Info("shoal-hub starts", "version", build.Version, "commit", build.Commit, "go", build.Go)
			if config.RestConfig, err = ctrl.GetConfig(); err != nil {
				return fmt.Errorf("find the hub's cluster; set --kubeconfig or run in a pod: %w", err)
			}
			return hub.Run(cmd.Context(), config)
		},
	}
	cmd.AddCommand(journalCommand())
	config.AddFlags(cmd.Flags())
	cmd.Flags().AddGoFlagSet(flag.CommandLine) // --kubeconfig
	cmd.Flags().TextVar(&level, "log-level", slog.LevelInfo, "least level that is logged: debug, info, warn or error")
	return cmd
}
