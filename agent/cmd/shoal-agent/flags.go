package main

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"github.com/shoal-dev/shoal/agent"
	"github.com/shoal-dev/shoal/agent/internal/buildinfo"
)

// flags are the command line.
type flags struct {
	config         agent.Config
	file, logLevel string
}

func command(run func(context.Context, flags) error) *cobra.Command {
	var given flags
	cmd := &cobra.Command{
		Use: "shoal-agent", Short: "Run proxies in a member cluster at the wish of a hub",
		Version: buildinfo.Read(version, commit).String(), Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), given) },
	}
	f, c := cmd.Flags(), &given.config
	f.StringVar(&given.file, "config", "/etc/shoal-agent/config.yaml", "the cluster owner's configuration file")
	f.StringVar(&c.RegionsFile, "regions", "", "a file with the regions of Google Cloud that are members; read again when it changes")
	f.StringVar(&c.JoinTokenFile, "join-token-file", "", "a file with the join token; needed until the agent has registered, and for members that are added later")
	f.StringVar(&c.Namespace, "namespace", os.Getenv("POD_NAMESPACE"), "the namespace the agent keeps its objects in")
	f.StringVar(&c.HealthAddress, "health-address", ":8081", "where /healthz and /readyz are served; 0 for nowhere")
	f.StringVar(&c.MetricsAddress, "metrics-address", ":8080", "where /metrics is served; 0 for nowhere")
	f.BoolVar(&c.LeaderElection, "leader-elect", true, "let several replicas stand by for one")
	f.BoolVar(&c.SweepDryRun, "sweep-dry-run", false, "say which instances without an owner would be deleted, and delete none")
	f.StringVar(&given.logLevel, "log-level", "info", "debug, info, warn or error; debug-1 logs the bodies of calls to Compute Engine")
	f.BoolVar(&c.GCPWireLogFullPayloads, "gcp-wire-log-full-payloads", false, "log long strings in those bodies in full")
	return cmd
}
