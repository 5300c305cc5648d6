package ctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

func (t *tool) proxyRetryCommand() *cobra.Command {
	var namespace string
	var failed bool
	cmd := &cobra.Command{
		Use:   "retry (NAME… | --failed)",
		Short: "Have a member's agent try again now what has failed",
		Long: "Have a member's agent try again now what has failed, without waiting for its own slow retry: when a machine type, an\n" +
			"image or a quota has been put right. It also lets the proxy's request through where others of its region or zone still\n" +
			"wait. Proxies are objects of the member, in the agent's namespace: --kubeconfig and --context lead to the member's\n" +
			"cluster here, for a GCP region to that of its agent. The same by hand:\n\n" +
			"  kubectl annotate proxy NAME " + v1alpha1.AnnotationRetry + "=$(date +%s) --overwrite",
		Example: "  shoalctl proxy retry --context east -n shoal-agent --failed",
		RunE: func(cmd *cobra.Command, names []string) error {
			if failed == (len(names) > 0) {
				return errors.New("name the proxies to retry, or write --failed for all that have failed")
			}
			c, own, err := t.Client()
			if err != nil {
				return err
			}
			if namespace == "" {
				namespace = own
			}
			proxies, err := toRetry(cmd.Context(), c, namespace, names)
			if err != nil {
				return err
			}
			return t.retry(cmd, c, proxies)
		},
	}
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the agent; that of the kubeconfig context by default")
	cmd.Flags().BoolVar(&failed, "failed", false, "all proxies of the namespace whose phase is Failed")
	return cmd
}

// toRetry reads the proxies that are named, or those that have failed. Nothing is changed where one of them is not there.
func toRetry(ctx context.Context, c client.Client, namespace string, names []string) ([]v1alpha1.Proxy, error) {
	if len(names) == 0 {
		list := &v1alpha1.ProxyList{}
		if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, memberError(namespace, err)
		}
		var found []v1alpha1.Proxy
		for _, p := range list.Items {
			if p.Status.Phase == v1alpha1.PhaseFailed {
				found = append(found, p)
			}
		}
		return found, nil
	}
	found := make([]v1alpha1.Proxy, len(names))
	for i, name := range names {
		key := client.ObjectKey{Namespace: namespace, Name: name}
		err := c.Get(ctx, key, &found[i])
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("there is no Proxy %s; see kubectl get proxies -A, and choose the agent's namespace with -n", key)
		}
		if err != nil {
			return nil, memberError(namespace, err)
		}
	}
	return found, nil
}

func memberError(namespace string, err error) error {
	if meta.IsNoMatchError(err) {
		return errors.New("this cluster has no Proxies; lead to a member's with --kubeconfig and --context")
	}
	return fmt.Errorf("read the proxies of namespace %s: %w", namespace, err)
}

func (t *tool) retry(cmd *cobra.Command, c client.Client, proxies []v1alpha1.Proxy) error {
	for i := range proxies {
		p := &proxies[i]
		before := p.DeepCopy()
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		p.Annotations[v1alpha1.AnnotationRetry] = t.Now().UTC().Format(time.RFC3339Nano)
		if err := c.Patch(cmd.Context(), p, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("annotate Proxy %s/%s: %w", p.Namespace, p.Name, err)
		}
		cmd.Printf("proxy %s is tried again\n", p.Name)
	}
	if len(proxies) == 0 {
		cmd.PrintErrln("# no proxy has failed here")
	}
	return nil
}
