package ctl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/identity"
)

// Options are what the commands work with. The zero value is what shoalctl itself uses.
type Options struct {
	// Version is what --version prints.
	Version string
	// Client leads to the hub's API server, and namespace is the one of the caller's context. By default both are found
	// as kubectl finds them.
	Client func() (c client.Client, namespace string, err error)
	// Now is the time: the real one by default.
	Now func() time.Time
}

// tool is shared by all commands.
type tool struct {
	Options
	kubeconfig, context, hubNamespace string
}

// New returns the command shoalctl.
func New(o Options) *cobra.Command {
	t := &tool{Options: o}
	if t.Now == nil {
		t.Now = clock.RealClock{}.Now
	}
	if t.Client == nil {
		t.Client = t.connect
	}
	root := &cobra.Command{
		Use:           "shoalctl",
		Short:         "Work with a hub of Shoal",
		Long:          "Work with a hub of Shoal. The hub's cluster is found as kubectl finds it: --kubeconfig, $KUBECONFIG, ~/.kube/config, or the pod's own.",
		Version:       o.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&t.kubeconfig, "kubeconfig", "", "kubeconfig file that leads to the hub's cluster")
	flags.StringVar(&t.context, "context", "", "context in the kubeconfig file")
	flags.StringVar(&t.hubNamespace, "hub-namespace", "", "namespace that the hub runs in; shoal-system by default, in a pod the pod's own")
	root.PersistentPreRun = func(*cobra.Command, []string) {
		if t.hubNamespace == "" {
			t.hubNamespace = t.defaultNamespace()
		}
	}
	root.AddCommand(t.memberCommand(), t.tokenCommand(), t.fleetCommand(), t.proxyCommand(), t.caCommand(),
		t.principalCommand(), t.targetCommand(), t.banCommand())
	return root
}

// defaultNamespace is the pod's own where the pod's own cluster is asked, as with `kubectl exec` into the hub.
func (t *tool) defaultNamespace() string {
	if t.kubeconfig == "" && t.context == "" && os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		if namespace := identity.PodNamespace(); namespace != "" {
			return namespace
		}
	}
	return "shoal-system"
}

func (t *tool) connect() (client.Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = t.kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: t.context})
	rest, err := config.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("find the hub's cluster; set --kubeconfig and --context, or KUBECONFIG: %w", err)
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read the namespace of the kubeconfig context: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddHubToScheme(scheme), v1alpha1.AddMemberToScheme(scheme)); err != nil {
		return nil, "", err
	}
	c, err := client.New(rest, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("make a client of the hub's API server: %w", err)
	}
	return c, namespace, nil
}

// output is the flag -o.
type output string

func (o *output) add(cmd *cobra.Command) {
	cmd.Flags().StringVarP((*string)(o), "output", "o", "text", "text or json")
}

func (o *output) check() error {
	if *o != "text" && *o != "json" {
		return fmt.Errorf("--output is %q; write text or json", string(*o))
	}
	return nil
}

// table writes rows in columns, the first row being the heading.
func table(w io.Writer, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if cell == "" {
				cell = "-"
			}
			if i > 0 {
				_, _ = fmt.Fprint(tw, "\t")
			}
			_, _ = fmt.Fprint(tw, cell)
		}
		_, _ = fmt.Fprintln(tw)
	}
	return tw.Flush()
}

// ago tells how long ago something was, in the manner of kubectl.
func ago(now, then time.Time) string {
	if then.IsZero() {
		return ""
	}
	return span(now.Sub(then))
}

func span(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
}

// fromEnvironment returns the value, or that of the variable if it is empty.
func fromEnvironment(value, variable string) string {
	if value != "" {
		return value
	}
	return os.Getenv(variable)
}
