package identity_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/hub/internal/identity"
)

func TestNewAPITokenRefuses(t *testing.T) {
	fleets := []string{"crawl/news"}
	cases := map[string]struct {
		reason string
		name   string
		fleets []string
		ttl    time.Duration
	}{
		"NoName":      {"leases are held under it", "", fleets, time.Hour},
		"ColonInName": {"principals of other kinds have one", "system:admin", fleets, time.Hour},
		"ProbeName":   {"only agents sign for probes", "probe:east", fleets, time.Hour},
		"UpperCase":   {"two spellings of one name", "News", fleets, time.Hour},
		"LongName":    {"it would be shortened in credentials", strings.Repeat("a", 64), fleets, time.Hour},
		"NoFleet":     {"it could do nothing", "news", nil, time.Hour},
		"AllFleets":   {"a namespace is a tenant: name it", "news", []string{"*"}, time.Hour},
		"AnyTenant":   {"a namespace is a tenant: name it", "news", []string{"*/news"}, time.Hour},
		"Comma":       {"fleets are stored separated by commas", "news", []string{"crawl/a,other/b"}, time.Hour},
		"Glob":        {"only a whole name can be a star", "news", []string{"crawl/n*"}, time.Hour},
		"NegativeTTL": {"it would have ended already", "news", fleets, -time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, text, err := identity.NewAPIToken(now, c.name, c.fleets, c.ttl); !errors.Is(err, identity.ErrInvalid) || text != "" {
				t.Errorf("%s: got %v, want ErrInvalid", c.reason, err)
			}
		})
	}
}

func TestAPITokenAllowsFleet(t *testing.T) {
	token, _, err := identity.NewAPIToken(now, "news", []string{"crawl/news", "lab/*"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]bool{
		"crawl/news": true, "crawl/news2": false, "crawl/*": false, "crawl/": false, "crawl": false, "": false,
		"lab/a": true, "lab/b": true, "lab/": false, "lab2/a": false, "other/news": false, "/news": false,
	}
	for fleet, want := range cases {
		if got := token.AllowsFleet(fleet); got != want {
			t.Errorf("AllowsFleet(%q) = %v, want %v", fleet, got, want)
		}
	}
}

func TestTokensSurviveTheirSecrets(t *testing.T) {
	for _, ttl := range []time.Duration{0, time.Hour} {
		token, text, err := identity.NewAPIToken(now, "news", []string{"crawl/news", "lab/*"}, ttl)
		if err != nil {
			t.Fatal(err)
		}
		secret := token.Secret("shoal-system")
		again, err := identity.DecodeAPIToken(secret)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(token, again, cmp.AllowUnexported(identity.APIToken{})); diff != "" {
			t.Errorf("API token (-made +read):\n%s", diff)
		}
		checkHidden(t, text, secret)
	}
	grant := identity.JoinGrant{Members: []string{"east", "west"}, Accept: true, Labels: map[string]string{"shoal.dev/egress": "true"}, Region: "r1", Country: "DE"}
	token, text, err := identity.NewJoinToken(now, grant, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := token.Secret("shoal-system")
	if err != nil {
		t.Fatal(err)
	}
	again, err := identity.DecodeJoinToken(secret)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(token, again, cmp.AllowUnexported(identity.JoinToken{})); diff != "" {
		t.Errorf("join token (-made +read):\n%s", diff)
	}
	checkHidden(t, text, secret)
}

// checkHidden checks that a token's secret is neither in what is stored nor in what is printed by accident.
func checkHidden(t *testing.T, text identity.Sensitive, secret *corev1.Secret) {
	t.Helper()
	parts := strings.FieldsFunc(text.Reveal(), func(r rune) bool { return r == '_' || r == '.' })
	hidden := parts[len(parts)-1]
	encoded, err := json.Marshal(map[string]any{"token": text})
	if err != nil {
		t.Fatal(err)
	}
	for where, shown := range map[string]string{
		"the stored Secret": fmt.Sprintf("%s", secret.Data),
		"its text":          fmt.Sprintf("%v %+v %#v %s %q", text, text, text, text, text),
		"its JSON":          string(encoded),
	} {
		if strings.Contains(shown, hidden) {
			t.Errorf("%s shows the token: %s", where, shown)
		}
	}
}

func TestNewJoinTokenRefuses(t *testing.T) {
	good := identity.JoinGrant{Members: []string{"east"}}
	cases := map[string]struct {
		reason string
		grant  identity.JoinGrant
		ttl    time.Duration
	}{
		"TooLong":    {"a token lies in somebody's shell history", good, 25 * time.Hour},
		"TooShort":   {"it would end before helm has started", good, time.Second},
		"NoMember":   {"a token is bound to members", identity.JoinGrant{}, time.Hour},
		"BadMember":  {"no MemberCluster can have the name", identity.JoinGrant{Members: []string{"East_1"}}, time.Hour},
		"DottedName": {"the agent's own configuration refuses it", identity.JoinGrant{Members: []string{"east.1"}}, time.Hour},
		"LongMember": {"the name becomes a label's value", identity.JoinGrant{Members: []string{strings.Repeat("a", 64)}}, time.Hour},
		"BadLabel":   {"the MemberCluster could not be created", identity.JoinGrant{Members: []string{"a"}, Labels: map[string]string{"x y": "z"}}, time.Hour},
		"BadCountry": {"the MemberCluster could not be created", identity.JoinGrant{Members: []string{"a"}, Country: "Germany"}, time.Hour},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if _, text, err := identity.NewJoinToken(now, c.grant, c.ttl); !errors.Is(err, identity.ErrInvalid) || text != "" {
				t.Errorf("%s: got %v, want ErrInvalid", c.reason, err)
			}
		})
	}
}

func TestDecodeTokensRefusesDamage(t *testing.T) {
	api, _, err := identity.NewAPIToken(now, "news", []string{"crawl/news"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	join, _, err := identity.NewJoinToken(now, identity.JoinGrant{Members: []string{"east"}}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		damage func(*corev1.Secret)
	}{
		"NoHash":      {"an empty hash must match nothing", func(s *corev1.Secret) { delete(s.Data, "hash") }},
		"ShortHash":   {"it can match nothing", func(s *corev1.Secret) { s.Data["hash"] = []byte("abcd") }},
		"BadExpiry":   {"a time that cannot be read must not mean never", func(s *corev1.Secret) { s.Data["expires"] = []byte("soon") }},
		"OtherLabel":  {"a Secret of another kind is no token", func(s *corev1.Secret) { s.Labels["shoal.dev/component"] = "identity" }},
		"OtherName":   {"the id must be the one that was looked up", func(s *corev1.Secret) { s.Name = "shoal-token-x" }},
		"NothingLeft": {"an empty token allows nothing", func(s *corev1.Secret) { delete(s.Data, "fleets"); delete(s.Data, "grant") }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			secret := api.Secret("ns")
			c.damage(secret)
			if got, err := identity.DecodeAPIToken(secret); !errors.Is(err, identity.ErrDamaged) {
				t.Errorf("%s: API token %+v, %v; want ErrDamaged", c.reason, got, err)
			}
			secret, err := join.Secret("ns")
			if err != nil {
				t.Fatal(err)
			}
			c.damage(secret)
			if got, err := identity.DecodeJoinToken(secret); !errors.Is(err, identity.ErrDamaged) {
				t.Errorf("%s: join token %+v, %v; want ErrDamaged", c.reason, got, err)
			}
		})
	}
}

func TestTokenStoreAuthenticates(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "identity-")
	clock := clocktesting.NewFakePassiveClock(now)
	store := identity.NewTokenStore(identity.TokenStoreOptions{Reader: c, Namespace: namespace, Clock: clock})
	token, text, err := identity.NewAPIToken(now, "news", []string{"crawl/news"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), token.Secret(namespace)); err != nil {
		t.Fatal(err)
	}
	caller, err := store.Authenticate(t.Context(), text.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	if caller.Principal != "news" || !caller.AllowsFleet("crawl/news") || caller.AllowsFleet("crawl/other") {
		t.Errorf("caller = %+v", caller)
	}
	good := text.Reveal()
	flipped := good[:len(good)-1] + map[bool]string{true: "b", false: "a"}[strings.HasSuffix(good, "a")]
	cases := map[string]struct {
		reason string
		text   string
		want   error
	}{
		"Empty":       {"no token is no caller", "", identity.ErrMalformedToken},
		"Garbage":     {"a token of another system", "eyJhbGciOi.J9", identity.ErrMalformedToken},
		"IDOnly":      {"the id is not secret", good[:len("shoal_")+12], identity.ErrMalformedToken},
		"OtherSecret": {"the id is not enough", flipped, identity.ErrUnknownToken},
		"OtherID":     {"nobody made it", "shoal_0123456789ab" + good[len("shoal_")+12:], identity.ErrUnknownToken},
		"PathInID":    {"the id becomes an object's name", "shoal_../../../../_" + good[len("shoal_")+13:], identity.ErrMalformedToken},
		"Trailing":    {"one token has one spelling", good + "\n", identity.ErrMalformedToken},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := store.Authenticate(t.Context(), tc.text)
			if !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.reason, err, tc.want)
			}
			if err != nil && len(tc.text) > 30 && strings.Contains(err.Error(), good[len(good)-20:len(good)-1]) {
				t.Errorf("the error shows the token: %v", err)
			}
		})
	}
	clock.SetTime(now.Add(time.Hour))
	if _, err := store.Authenticate(t.Context(), good); !errors.Is(err, identity.ErrExpiredToken) {
		t.Errorf("at its end: %v, want ErrExpiredToken", err)
	}
	if _, err := store.Authenticate(t.Context(), flipped); !errors.Is(err, identity.ErrUnknownToken) {
		t.Errorf("expired, with another secret: %v; only its owner may learn that it has expired", err)
	}
	clock.SetTime(now)
	if err := c.Delete(t.Context(), token.Secret(namespace)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Authenticate(t.Context(), good); !errors.Is(err, identity.ErrUnknownToken) {
		t.Errorf("revoked: %v, want ErrUnknownToken", err)
	}
}

func TestTokenStoreIgnoresOtherSecrets(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "identity-")
	store := identity.NewTokenStore(identity.TokenStoreOptions{Reader: c, Namespace: namespace, Clock: clocktesting.NewFakePassiveClock(now)})
	token, text, err := identity.NewAPIToken(now, "news", []string{"crawl/news"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	secret := token.Secret(namespace)
	secret.Labels = nil
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Authenticate(t.Context(), text.Reveal()); !errors.Is(err, identity.ErrDamaged) {
		t.Errorf("a Secret without our label was taken for a token: %v", err)
	}
	var after corev1.Secret
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(secret), &after); err != nil || after.ResourceVersion != secret.ResourceVersion {
		t.Errorf("looking a token up has changed it: %v", err)
	}
}
