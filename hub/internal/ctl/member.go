package ctl

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func (t *tool) memberCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "member", Short: "Join, accept and list members", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(t.joinTokenCommand(), t.acceptCommand(), t.memberListCommand())
	return cmd
}

// help is what a command does that has only subcommands.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

func (t *tool) acceptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "accept NAME...",
		Short: "Let the agents of members that wait speak for them",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			c, _, err := t.Client()
			if err != nil {
				return err
			}
			for _, name := range names {
				var member v1alpha1.MemberCluster
				member.Name = name
				err := c.Patch(cmd.Context(), &member, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"accepted":true}}`)))
				if apierrors.IsNotFound(err) {
					return fmt.Errorf("there is no MemberCluster %q: its agent has not asked to join yet; see `shoalctl member list`, or join it with `shoalctl member join-token %s`", name, name)
				}
				if err != nil {
					return fmt.Errorf("accept member %s: %w", name, err)
				}
				cmd.PrintErrf("%s is accepted; its agent asks again within 30s\n", name)
			}
			return nil
		},
	}
}

func (t *tool) memberListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List members",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := t.Client()
			if err != nil {
				return err
			}
			var list v1alpha1.MemberClusterList
			if err := c.List(cmd.Context(), &list); err != nil {
				return fmt.Errorf("list MemberClusters: %w", err)
			}
			slices.SortFunc(list.Items, func(a, b v1alpha1.MemberCluster) int { return strings.Compare(a.Name, b.Name) })
			rows := [][]string{{"NAME", "ACCEPTED", "STATE", "REGION", "COUNTRY", "PROXIES", "READY", "HEARD", "VERSION", "AGENT"}}
			for i := range list.Items {
				rows = append(rows, memberRow(&list.Items[i], t.Now()))
			}
			return table(cmd.OutOrStdout(), rows)
		},
	}
}

func memberRow(m *v1alpha1.MemberCluster, now time.Time) []string {
	state, agent, heard := "", "", ""
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		state = ready.Reason
	}
	// What keeps a member from joining goes before whether it was heard.
	if joined := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionJoined); joined != nil && joined.Status != metav1.ConditionTrue {
		state = joined.Reason
	}
	if m.Spec.AgentRef != nil {
		agent = m.Spec.AgentRef.Name
	}
	if m.Status.LastHeartbeat != nil {
		heard = ago(now, m.Status.LastHeartbeat.Time)
	}
	return []string{
		m.Name, strconv.FormatBool(m.Spec.Accepted), state, m.Spec.Region, m.Spec.Country,
		strconv.Itoa(int(m.Status.Proxies)), strconv.Itoa(int(m.Status.Ready)), heard, m.Status.AgentVersion, agent,
	}
}
