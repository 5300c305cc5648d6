package ctl

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func (t *tool) fleetCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "fleet", Short: "Explain fleets", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(t.explainCommand())
	return cmd
}

func (t *tool) explainCommand() *cobra.Command {
	var namespace string
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say why a fleet's proxies are where they are",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, own, err := t.Client()
			if err != nil {
				return err
			}
			if namespace == "" {
				namespace = own
			}
			var fleet v1alpha1.ProxyFleet
			key := client.ObjectKey{Namespace: namespace, Name: args[0]}
			err = c.Get(cmd.Context(), key, &fleet)
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("there is no ProxyFleet %s; choose its namespace with -n, or see kubectl get proxyfleets -A", key)
			}
			if err != nil {
				return fmt.Errorf("read ProxyFleet %s: %w", key, err)
			}
			return explain(cmd, &fleet)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the fleet; that of the kubeconfig context by default")
	return cmd
}

func explain(cmd *cobra.Command, fleet *v1alpha1.ProxyFleet) error {
	rows := [][]string{{"MEMBER", "REGION", "WANT", "HAVE", "READY", "WHY"}}
	var want int32
	for _, m := range fleet.Status.Members {
		want += m.Want
		rows = append(rows, []string{m.Name, m.Region, number(m.Want), number(m.Have), number(m.Ready), m.Why})
	}
	if err := table(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	switch {
	case fleet.Status.ObservedGeneration < fleet.Generation:
		cmd.PrintErrf("# the hub has not looked at the latest change yet\n")
	case want != fleet.DesiredReplicas():
		cmd.PrintErrf("# %d of %d proxies have a place\n", want, fleet.DesiredReplicas())
	}
	for _, condition := range fleet.Status.Conditions {
		if worthSaying(condition) {
			cmd.PrintErrf("# %s is %s (%s): %s\n", condition.Type, condition.Status, condition.Reason, condition.Message)
		}
	}
	return nil
}

// worthSaying picks the conditions that tell of something other than a fleet at rest.
func worthSaying(c metav1.Condition) bool {
	switch c.Type {
	case v1alpha1.ConditionAccepted, v1alpha1.ConditionAvailable:
		return c.Status != metav1.ConditionTrue
	default:
		return c.Status == metav1.ConditionTrue
	}
}

func number(n int32) string { return strconv.Itoa(int(n)) }
