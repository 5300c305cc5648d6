package ctl

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

func (t *tool) banCommand() *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use: "ban", Short: "List the exits that rest for a target, and clear false bans", Args: cobra.NoArgs, RunE: help,
		Long: "List the exits that rest for a target because crawlers have reported bans, and clear those that were false." + operators,
	}
	o.add(cmd)
	cmd.AddCommand(t.bansCommand(&o), t.clearCommand(&o))
	return cmd
}

func (t *tool) bansCommand(o *operator) *cobra.Command {
	var target, exit string
	var limit int32
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List exits that rest for a target, or have strikes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.ListBans(ctx, &leasev1.ListBansRequest{Target: target, Exit: exit, Limit: limit})
				if err != nil {
					return fmt.Errorf("list bans: %w", err)
				}
				rows := [][]string{{"TARGET", "EXIT", "KIND", "RESTS FOR", "STRIKES", "FLEETS"}}
				for _, b := range answer.GetBans() {
					rows = append(rows, t.banRow(b))
				}
				if err := table(cmd.OutOrStdout(), rows); err != nil {
					return err
				}
				if left := int(answer.GetTotal()) - len(answer.GetBans()); left > 0 {
					cmd.PrintErrf("# %d more; narrow it with --target or --exit\n", left)
				}
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&target, "target", "", "only this target, as the list shows it")
	cmd.Flags().StringVar(&exit, "exit", "", "only this exit, an address")
	cmd.Flags().Int32Var(&limit, "limit", 0, "how many at most; 1000 by default, which is the most")
	return cmd
}

func (t *tool) banRow(b *leasev1.Ban) []string {
	kind, rests := "strikes", ""
	if b.GetActive() {
		kind, rests = "rate limit", t.endsIn(b.GetUntil())
		if b.GetBanned() {
			kind = "ban"
		}
	}
	return []string{b.GetTarget(), b.GetExit(), kind, rests, strconv.Itoa(int(b.GetStrikes())), strings.Join(b.GetFleets(), ",")}
}

func (t *tool) clearCommand(o *operator) *cobra.Command {
	var exit string
	var everything bool
	cmd := &cobra.Command{
		Use:   "clear TARGET (--exit ADDRESS | --all)",
		Short: "Let an exit work for a target again, and forget its strikes",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (exit == "") != everything {
				return fmt.Errorf("say which exit with --exit ADDRESS, or write --all for every exit that rests for %s", args[0])
			}
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.ClearBan(ctx, &leasev1.ClearBanRequest{Target: args[0], Exit: exit})
				switch {
				case err != nil:
					return fmt.Errorf("clear bans on %s: %w", args[0], err)
				case answer.GetCount() == 0:
					return fmt.Errorf("there is no such ban on %s; `shoalctl ban list` shows those there are", args[0])
				}
				cmd.PrintErrf("%d bans on %s are cleared\n", answer.GetCount(), args[0])
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&exit, "exit", "", "the exit, an address")
	cmd.Flags().BoolVar(&everything, "all", false, "all exits, and what the guards of fleets have paused")
	return cmd
}
