package ctl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/identity"
)

func (t *tool) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Create, list and revoke the tokens that crawlers lease with", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(t.tokenCreateCommand(), t.tokenListCommand(), t.tokenRevokeCommand())
	return cmd
}

// newToken is a token as printed with -o json.
type newToken struct {
	ID      string     `json:"id"`
	Name    string     `json:"name"`
	Fleets  []string   `json:"fleets"`
	Expires *time.Time `json:"expires,omitempty"`
	Token   string     `json:"token"`
}

func (t *tool) tokenCreateCommand() *cobra.Command {
	var name string
	var fleets []string
	var ttl time.Duration
	var out output
	cmd := &cobra.Command{
		Use:   "create --name NAME --fleet NAMESPACE/FLEET",
		Short: "Create a token and print it, this once",
		Long: "Create a token and print it. It is stored as a hash only, so it cannot be shown again.\n\n" +
			"Leases are held under the token's name: tokens of one name share theirs, so that a new token can take over from\n" +
			"an old one. Give crawlers that must not touch each other's leases different names.",
		Example: "  TOKEN=$(shoalctl token create --name news-crawler --fleet crawl/news)",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := out.check(); err != nil {
				return err
			}
			if name == "" || len(fleets) == 0 {
				return errors.New("set --name NAME and at least one --fleet NAMESPACE/FLEET")
			}
			token, text, err := identity.NewAPIToken(t.Now(), name, fleets, ttl)
			if err != nil {
				return err
			}
			c, _, err := t.Client()
			if err != nil {
				return err
			}
			if err := c.Create(cmd.Context(), token.Secret(t.hubNamespace)); err != nil {
				return fmt.Errorf("store the token in namespace %s (--hub-namespace): %w", t.hubNamespace, err)
			}
			if out == "json" {
				shown := newToken{ID: token.ID, Name: token.Name, Fleets: token.Fleets, Token: text.Reveal()}
				if !token.Expires.IsZero() {
					shown.Expires = &token.Expires
				}
				return json.NewEncoder(cmd.OutOrStdout()).Encode(shown)
			}
			cmd.PrintErrf("# token %s of %s for %s, %s; it is not shown again\n", token.ID, token.Name, strings.Join(token.Fleets, ", "), until(token.Expires))
			_, err = fmt.Fprintln(cmd.OutOrStdout(), text.Reveal())
			return err
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "who leases with the token")
	cmd.Flags().StringSliceVar(&fleets, "fleet", nil, "fleet that may be leased from, namespace/name, or namespace/* for all of a namespace; may be repeated")
	cmd.Flags().DurationVar(&ttl, "ttl", 30*24*time.Hour, "how long the token is good; 0 is for ever")
	out.add(cmd)
	return cmd
}

func until(expires time.Time) string {
	if expires.IsZero() {
		return "without an end"
	}
	return "good until " + expires.UTC().Format(time.RFC3339)
}

func (t *tool) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List tokens, without what proves them",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := t.Client()
			if err != nil {
				return err
			}
			var secrets corev1.SecretList
			err = c.List(cmd.Context(), &secrets, client.InNamespace(t.hubNamespace), client.MatchingLabels{v1alpha1.LabelComponent: v1alpha1.ComponentAPIToken})
			if err != nil {
				return fmt.Errorf("list tokens in namespace %s (--hub-namespace): %w", t.hubNamespace, err)
			}
			slices.SortFunc(secrets.Items, func(a, b corev1.Secret) int {
				return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
			})
			rows := [][]string{{"ID", "NAME", "FLEETS", "ENDS IN", "AGE"}}
			for i := range secrets.Items {
				rows = append(rows, t.tokenRow(&secrets.Items[i]))
			}
			return table(cmd.OutOrStdout(), rows)
		},
	}
}

func (t *tool) tokenRow(secret *corev1.Secret) []string {
	age := ago(t.Now(), secret.CreationTimestamp.Time)
	token, err := identity.DecodeAPIToken(secret)
	if err != nil {
		return []string{secret.Name, "", "damaged: delete the Secret and create another token", "", age}
	}
	ends := "never"
	if left := token.Expires.Sub(t.Now()); !token.Expires.IsZero() {
		ends = "ended"
		if left > 0 {
			ends = span(left)
		}
	}
	return []string{token.ID, token.Name, strings.Join(token.Fleets, ","), ends, age}
}

func (t *tool) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke ID...",
		Short: "Revoke tokens",
		Long: "Revoke tokens. The hub refuses them from then on. Credentials of leases that were granted already stay good at\n" +
			"the proxies until the lease could have lasted, the fleet's maxLifetime.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, ids []string) error {
			c, _, err := t.Client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				secret := &corev1.Secret{}
				key := client.ObjectKey{Namespace: t.hubNamespace, Name: identity.APITokenSecretName(id)}
				err := c.Get(cmd.Context(), key, secret)
				isToken := err == nil && secret.Labels[v1alpha1.LabelComponent] == v1alpha1.ComponentAPIToken
				if isToken {
					err = c.Delete(cmd.Context(), secret)
				}
				switch {
				case apierrors.IsNotFound(err), err == nil && !isToken:
					// The id is not repeated: somebody may have given the whole token.
					return errors.New("there is no token with one of these ids; `shoalctl token list` shows them (the id is the part between the underscores)")
				case err != nil:
					return fmt.Errorf("revoke a token: %w", err)
				}
				cmd.PrintErrf("token %s is revoked\n", id)
			}
			return nil
		},
	}
}
