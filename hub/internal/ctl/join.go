package ctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/identity"
)

// hubURLVariable holds the agents' URL for those who join many members.
const hubURLVariable = "SHOAL_HUB_URL"

// join are the flags of `member join-token`.
type join struct {
	hubURL, chart, repo, release, namespace string
	ttl                                     time.Duration
	grant                                   identity.JoinGrant
	oneAgent                                bool
	sets                                    []string
	output                                  output
}

// invitation is what one agent needs to join, as printed with -o json.
type invitation struct {
	Member string `json:"member"`
	// Further are the other members that the agent speaks for.
	Further []string  `json:"further,omitempty"`
	HubURL  string    `json:"hubURL"`
	CAPin   string    `json:"caPin"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	Command string    `json:"command"`
}

func (t *tool) joinTokenCommand() *cobra.Command {
	var j join
	cmd := &cobra.Command{
		Use:   "join-token NAME...",
		Short: "Print the helm command that joins a cluster as a member",
		Long: "Print, for each name, the helm command that joins a cluster as the member of that name: run it with helm on\n" +
			"that cluster. Each has a token of its own, which the first cluster to use it claims the name with.\n\n" +
			"With --one-agent the command and the token are one for all names: the first is the agent's own cluster, the others\n" +
			"are regions of a cloud, or clusters of kubeconfigs, that the same agent serves.",
		Example: "  shoalctl member join-token east --hub-url https://hub.example.com:8443 --accept --label shoal.dev/egress=true\n" +
			"  shoalctl member join-token east gce-eu gce-us --one-agent --hub-url https://hub.example.com:8443 --accept",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, names []string) error {
			return t.joinToken(cmd, names, j)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&j.hubURL, "hub-url", "", "where agents reach the hub, https://host:port; $"+hubURLVariable+" by default")
	flags.DurationVar(&j.ttl, "ttl", time.Hour, "how long the token is good, at most 24h")
	flags.BoolVar(&j.grant.Accept, "accept", false, "accept the member when it joins, without waiting for shoalctl member accept")
	flags.StringToStringVar(&j.grant.Labels, "label", nil, "label of the MemberCluster, key=value; may be repeated")
	flags.StringVar(&j.grant.Region, "region", "", "region of the member, for placement and leases")
	flags.StringVar(&j.grant.Country, "country", "", "country that the member leaves from, two capital letters")
	flags.BoolVar(&j.oneAgent, "one-agent", false, "one token and one command: the agent of the first member serves the others, too")
	flags.StringVar(&j.namespace, "namespace", "shoal-system", "namespace of the agent on the member")
	flags.StringVar(&j.chart, "chart", "charts/agent", "chart of the agent: a directory, an archive, or its name in --helm-repo")
	flags.StringVar(&j.repo, "helm-repo", "", "URL of the repository that has the chart")
	flags.StringVar(&j.release, "release", "shoal-agent", "name of the helm release")
	flags.StringArrayVar(&j.sets, "set", nil, "further value for the chart, key=value; may be repeated")
	j.output.add(cmd)
	return cmd
}

func (t *tool) joinToken(cmd *cobra.Command, names []string, j join) error {
	ctx := cmd.Context()
	j.hubURL = fromEnvironment(j.hubURL, hubURLVariable)
	if err := errors.Join(j.output.check(), checkHubURL(j.hubURL)); err != nil {
		return err
	}
	if j.oneAgent && len(names) > 1 && (j.grant.Region != "" || j.grant.Country != "") {
		return errors.New("--region and --country would be those of every member; with --one-agent leave them out, and the agent's values say them for each")
	}
	c, _, err := t.Client()
	if err != nil {
		return err
	}
	hub, err := identity.ReadHub(ctx, c, t.hubNamespace, t.Now())
	if err != nil {
		return fmt.Errorf("%w (--hub-namespace)", err)
	}
	// All tokens are made before the first is stored: a name that cannot be must not leave half of them behind.
	invitations := make([]invitation, 0, len(names))
	secrets := make([]*corev1.Secret, 0, len(names))
	for _, members := range j.agents(names) {
		grant := j.grant
		grant.Members = members
		token, text, err := identity.NewJoinToken(t.Now(), grant, j.ttl)
		if err != nil {
			return err
		}
		secret, err := token.Secret(t.hubNamespace)
		if err != nil {
			return err
		}
		i := invitation{Member: members[0], Further: members[1:], HubURL: j.hubURL, CAPin: hub.Authority().Pin(), Token: text.Reveal(), Expires: token.Expires}
		i.Command = j.command(i)
		invitations, secrets = append(invitations, i), append(secrets, secret)
	}
	for _, secret := range secrets {
		if err := c.Create(ctx, secret); err != nil {
			return fmt.Errorf("store a join token in namespace %s: %w", t.hubNamespace, err)
		}
	}
	if err := j.print(cmd, invitations); err != nil {
		return err
	}
	return errors.Join(t.warnOfJoined(cmd, c, names), t.sweepJoinTokens(ctx, c))
}

// agents divides the names into those of one agent each.
func (j join) agents(names []string) [][]string {
	if j.oneAgent {
		return [][]string{names}
	}
	agents := make([][]string, len(names))
	for i, name := range names {
		agents[i] = []string{name}
	}
	return agents
}

func checkHubURL(text string) error {
	if text == "" {
		return errors.New("say where agents reach the hub with --hub-url https://host:port, or set " + hubURLVariable)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
		return fmt.Errorf("--hub-url is %q; write https://host:port, the address of the agents' listener", text)
	}
	return nil
}

func (j join) print(cmd *cobra.Command, invitations []invitation) error {
	if j.output == "json" {
		encoder := json.NewEncoder(cmd.OutOrStdout())
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(invitations)
	}
	for _, i := range invitations {
		cmd.PrintErrf("# on the cluster that is to be %s, within %s:\n", i.Member, span(j.ttl))
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), i.Command); err != nil {
			return err
		}
		if len(i.Further) > 0 {
			cmd.PrintErrf("# its values say what %s are: regions with providers of type gcp, or kubeconfigSecrets and a Secret for each;\n"+
				"# without a member of its own, leave member.name out. What is added after %s needs: shoalctl member accept NAME\n",
				strings.Join(i.Further, ", "), span(j.ttl))
		}
		if !j.grant.Accept {
			cmd.PrintErrf("# and then, here: shoalctl member accept %s\n", strings.Join(append([]string{i.Member}, i.Further...), " "))
		}
	}
	return nil
}

// command is the one line that joins the member.
func (j join) command(i invitation) string {
	words := []string{"helm", "install", j.release, j.chart}
	if j.repo != "" {
		words = append(words, "--repo", j.repo)
	}
	words = append(words, "-n", j.namespace, "--create-namespace")
	for _, set := range [][2]string{
		{"hub.url", i.HubURL},
		{"hub.caPin", i.CAPin},
		{"join.token", i.Token},
		{"member.name", i.Member},
		{"member.region", j.grant.Region},
		{"member.country", j.grant.Country},
	} {
		if set[1] != "" {
			words = append(words, setFlag(set[1]), set[0]+"="+strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(set[1]))
		}
	}
	for _, set := range j.sets {
		words = append(words, "--set", set)
	}
	for n, word := range words {
		words[n] = quote(word)
	}
	return strings.Join(words, " ")
}

// setFlag is the flag of helm that leaves the value a string: --set makes numbers of what looks like one.
func setFlag(value string) string {
	var other any
	if err := json.Unmarshal([]byte(value), &other); err == nil {
		return "--set-string"
	}
	return "--set"
}

// quote makes a word safe for a shell, and leaves one that is so already as it is.
func quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// warnOfJoined says which of the names are taken: the token is then good for the cluster that has the name, and for no
// other.
func (t *tool) warnOfJoined(cmd *cobra.Command, c client.Client, names []string) error {
	for _, name := range names {
		var member v1alpha1.MemberCluster
		err := c.Get(cmd.Context(), client.ObjectKey{Name: name}, &member)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("look up MemberCluster %s: %w", name, err)
		}
		if err == nil && member.Status.Identity != nil {
			cmd.PrintErrf("# note: %s is cluster %s, namespace %s, already; for another cluster choose another name, or kubectl delete membercluster %s\n",
				name, member.Status.Identity.ClusterUID, member.Status.Identity.Namespace, name)
		}
	}
	return nil
}

// sweepJoinTokens deletes tokens that have ended: nobody else does, and they are of no use.
func (t *tool) sweepJoinTokens(ctx context.Context, c client.Client) error {
	var secrets corev1.SecretList
	err := c.List(ctx, &secrets, client.InNamespace(t.hubNamespace), client.MatchingLabels{v1alpha1.LabelComponent: v1alpha1.ComponentJoinToken})
	if err != nil {
		return fmt.Errorf("list join tokens: %w", err)
	}
	for i := range secrets.Items {
		token, err := identity.DecodeJoinToken(&secrets.Items[i])
		if err != nil || t.Now().Before(token.Expires) {
			continue
		}
		if err := client.IgnoreNotFound(c.Delete(ctx, &secrets.Items[i])); err != nil {
			return fmt.Errorf("delete join token %s, which has ended: %w", token.ID, err)
		}
	}
	return nil
}
