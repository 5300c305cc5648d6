package ctl

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

func (t *tool) principalCommand() *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use: "principal", Short: "Keep principals from leasing, everywhere or on a proxy", Args: cobra.NoArgs, RunE: help,
		Long: "Keep principals from leasing. A principal is who leases are held under: the name of an API token, or\n" +
			"system:serviceaccount:NAMESPACE:NAME, as the audit log has it." + operators,
	}
	o.add(cmd)
	cmd.AddCommand(t.revokeCommand(&o), t.reinstateCommand(&o), t.revocationsCommand(&o))
	return cmd
}

func (t *tool) revokeCommand(o *operator) *cobra.Command {
	var proxy, why string
	var least time.Duration
	cmd := &cobra.Command{
		Use:   "revoke PRINCIPAL",
		Short: "End a principal's leases and have the proxies refuse its credentials",
		Long: "End a principal's leases, everywhere or on one proxy, grant it no more there, and have the proxies refuse the\n" +
			"credentials that it was given. It stands until all of those have ended, which is the longest maxLifetime of the\n" +
			"fleets. Proxies hear of it within some two minutes; tunnels that are open stay open.\n\n" +
			"To keep it from coming back take its right away as well: `shoalctl token revoke`, or its RoleBinding.",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := &leasev1.RevokeRequest{Principal: args[0], ProxyId: proxy, For: optional(least), Why: why}
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.Revoke(ctx, request)
				if err != nil {
					return fmt.Errorf("revoke %s: %w", args[0], err)
				}
				cmd.PrintErrf("%s is revoked %s until %s; %d leases were ended\n", args[0], where(proxy),
					clockTime(answer.GetRevocation().GetUntil()), len(answer.GetLeaseIds()))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&proxy, "proxy", "", "UID of the one proxy to revoke it on; everywhere by default")
	cmd.Flags().DurationVar(&least, "for", 0, "how long at least; until its credentials have ended by default")
	cmd.Flags().StringVar(&why, "why", "", "reason, told to the principal")
	return cmd
}

func (t *tool) reinstateCommand(o *operator) *cobra.Command {
	var proxy string
	cmd := &cobra.Command{
		Use:   "reinstate PRINCIPAL",
		Short: "Lift a revocation",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.Reinstate(ctx, &leasev1.ReinstateRequest{Principal: args[0], ProxyId: proxy})
				switch {
				case err != nil:
					return fmt.Errorf("reinstate %s: %w", args[0], err)
				case !answer.GetLifted():
					return fmt.Errorf("%s is not revoked %s; `shoalctl principal list` shows who is", args[0], where(proxy))
				}
				cmd.PrintErrf("%s may lease again %s\n", args[0], where(proxy))
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&proxy, "proxy", "", "UID of the proxy it was revoked on; everywhere by default")
	return cmd
}

func (t *tool) revocationsCommand(o *operator) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the principals that are revoked",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.ListRevocations(ctx, &leasev1.ListRevocationsRequest{})
				if err != nil {
					return fmt.Errorf("list revocations: %w", err)
				}
				rows := [][]string{{"PRINCIPAL", "PROXY", "ENDS IN", "AGE", "WHY"}}
				for _, r := range answer.GetRevocations() {
					rows = append(rows, []string{r.GetPrincipal(), all(r.GetProxyId()), t.endsIn(r.GetUntil()), ago(t.Now(), r.GetSince().AsTime()), r.GetWhy()})
				}
				return table(cmd.OutOrStdout(), rows)
			})
		},
	}
}

func (t *tool) targetCommand() *cobra.Command {
	var o operator
	cmd := &cobra.Command{
		Use: "target", Short: "Pause targets in all fleets", Args: cobra.NoArgs, RunE: help,
		Long: "Pause targets in all fleets: nothing is granted for them, leases go on. A target is a registrable domain." + operators,
	}
	o.add(cmd)
	cmd.AddCommand(t.pauseCommand(&o), t.resumeCommand(&o), t.pausesCommand(&o))
	return cmd
}

func (t *tool) pauseCommand(o *operator) *cobra.Command {
	var least time.Duration
	var why string
	cmd := &cobra.Command{
		Use:   "pause HOST",
		Short: "Stop grants for a target",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.PauseTarget(ctx, &leasev1.PauseTargetRequest{Target: args[0], For: optional(least), Why: why})
				if err != nil {
					return fmt.Errorf("pause %s: %w", args[0], err)
				}
				until := "until it is resumed"
				if at := answer.GetPause().GetUntil(); at != nil {
					until = "until " + clockTime(at)
				}
				cmd.PrintErrf("grants for %s are paused %s\n", answer.GetPause().GetTarget(), until)
				return nil
			})
		},
	}
	cmd.Flags().DurationVar(&least, "for", 0, "how long; until it is resumed by default")
	cmd.Flags().StringVar(&why, "why", "", "reason, told to those who are refused")
	return cmd
}

func (t *tool) resumeCommand(o *operator) *cobra.Command {
	return &cobra.Command{
		Use:   "resume HOST",
		Short: "Grant for a target again, also where the guard of a fleet has paused it",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.ResumeTarget(ctx, &leasev1.ResumeTargetRequest{Target: args[0]})
				switch {
				case err != nil:
					return fmt.Errorf("resume %s: %w", args[0], err)
				case answer.GetCount() == 0:
					return fmt.Errorf("%s is not paused; `shoalctl target list` shows what is", args[0])
				}
				cmd.PrintErrf("%s is granted again\n", args[0])
				return nil
			})
		},
	}
}

func (t *tool) pausesCommand(o *operator) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the targets that are paused in all fleets",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.call(cmd.Context(), o, func(ctx context.Context, hub leasev1connect.OperatorServiceClient) error {
				answer, err := hub.ListPauses(ctx, &leasev1.ListPausesRequest{})
				if err != nil {
					return fmt.Errorf("list paused targets: %w", err)
				}
				rows := [][]string{{"TARGET", "ENDS IN", "AGE", "WHY"}}
				for _, p := range answer.GetPauses() {
					rows = append(rows, []string{p.GetTarget(), t.endsIn(p.GetUntil()), ago(t.Now(), p.GetSince().AsTime()), p.GetWhy()})
				}
				return table(cmd.OutOrStdout(), rows)
			})
		},
	}
}

// endsIn tells how long something still stands.
func (t *tool) endsIn(until *timestamppb.Timestamp) string {
	if until == nil {
		return "never"
	}
	return span(until.AsTime().Sub(t.Now()))
}

func clockTime(at *timestamppb.Timestamp) string { return at.AsTime().UTC().Format(time.RFC3339) }

func optional(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}

func where(proxy string) string {
	if proxy == "" {
		return "everywhere"
	}
	return "on proxy " + proxy
}

func all(proxy string) string {
	if proxy == "" {
		return "all"
	}
	return proxy
}
