// Command compute-fake serves a stand-in for the Compute Engine API, and can run its machines as containers.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "compute-fake:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	var c config
	cmd := &cobra.Command{
		Use: "compute-fake", Short: "Serve a stand-in for the Compute Engine API", Args: cobra.NoArgs,
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), c) },
	}
	f := cmd.Flags()
	f.StringVar(&c.listen, "listen", "127.0.0.1:8085", "address and port of the API; it has no authentication")
	f.StringSliceVar(&c.projects, "projects", []string{"shoal-demo"}, "the projects that exist")
	f.StringSliceVar(&c.zones, "zones", []string{"europe-west1-b", "europe-west1-c", "europe-west1-d"}, "the zones that exist")
	f.StringVar(&c.boot, "boot", "none", "what RUNNING machines are: none (nothing) or docker (containers of the image in their user-data)")
	f.StringVar(&c.docker, "docker", "docker", "the docker program; DOCKER_HOST names its engine")
	f.StringVar(&c.network, "docker-network", "", "the engine's network that machines join; required with --boot docker")
	f.StringVar(&c.dir, "dir", "", "a directory for the machines' files; by default a temporary one")
	f.StringVar(&c.runID, "run-id", "", "marks this program's containers, so that a later run of the same finds what was left; by default the listen address")
	return cmd
}
