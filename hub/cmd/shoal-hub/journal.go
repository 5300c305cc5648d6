package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/shoal-dev/shoal/hub"
)

// journalCommand works on a journal while no hub uses it.
func journalCommand() *cobra.Command {
	parent := &cobra.Command{Use: "journal", Short: "Work on the lease journal while the hub is stopped"}
	var config hub.Config
	var from, to string
	move := &cobra.Command{
		Use:   "copy --from disk:DIR --to valkey:HOST:PORT",
		Short: "Copy the leases from the disk to a Valkey server, and use them there from now on",
		Long: "Copy the leases from the disk to a Valkey server that has none of this hub's, and note in the hub's Secret that they are there.\n" +
			"A hub that starts with --journal=valkey then goes on as if it had been restarted. Stop the hub first.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			directory, ok := strings.CutPrefix(from, "disk:")
			if !ok || directory == "" {
				return fmt.Errorf("--from is %q; write disk:DIR, with the directory that --journal-dir names", from)
			}
			address, ok := strings.CutPrefix(to, "valkey:")
			if !ok || address == "" {
				return fmt.Errorf("--to is %q; write valkey:HOST:PORT", to)
			}
			config.Valkey.Addresses = append([]string{address}, config.Valkey.Addresses...)
			config.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
			if config.RestConfig, err = ctrl.GetConfig(); err != nil {
				return fmt.Errorf("find the hub's cluster; set --kubeconfig or run in a pod: %w", err)
			}
			records, err := hub.CopyJournal(cmd.Context(), config, directory)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d records are on %s now; start the hub with --journal=valkey\n", records, address)
			return err
		},
	}
	move.Flags().StringVar(&from, "from", "", "disk:DIR, the directory of the journal in use")
	move.Flags().StringVar(&to, "to", "", "valkey:HOST:PORT, the server; the other flags are those of shoal-hub")
	config.AddFlags(move.Flags())
	move.Flags().AddGoFlagSet(flag.CommandLine) // --kubeconfig
	parent.AddCommand(move)
	return parent
}
