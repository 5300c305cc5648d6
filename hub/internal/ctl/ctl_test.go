package ctl_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub/internal/ctl"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const hubNamespace = "shoal-system"

// shell runs shoalctl against an API server of its own.
type shell struct {
	t      *testing.T
	client client.Client
	hub    *identity.Hub
	now    time.Time
}

func newShell(t *testing.T, objects ...client.Object) *shell {
	t.Helper()
	s := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddHubToScheme(s)); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).Build()
	hub, _, err := identity.EnsureHub(t.Context(), c, hubNamespace, now)
	if err != nil {
		t.Fatal(err)
	}
	return &shell{t: t, client: c, hub: hub, now: now}
}

func (s *shell) run(args ...string) (out, notes string, err error) {
	s.t.Helper()
	cmd := ctl.New(ctl.Options{
		Version: "test",
		Client:  func() (client.Client, string, error) { return s.client, "crawl", nil },
		Now:     func() time.Time { return s.now },
	})
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SetArgs(args)
	err = cmd.ExecuteContext(s.t.Context())
	return stdout.String(), stderr.String(), err
}

func (s *shell) must(args ...string) (out, notes string) {
	s.t.Helper()
	out, notes, err := s.run(args...)
	if err != nil {
		s.t.Fatalf("shoalctl %s: %v", strings.Join(args, " "), err)
	}
	return out, notes
}

func (s *shell) secrets(component string) []corev1.Secret {
	s.t.Helper()
	var list corev1.SecretList
	if err := s.client.List(s.t.Context(), &list, client.MatchingLabels{v1alpha1.LabelComponent: component}); err != nil {
		s.t.Fatal(err)
	}
	return list.Items
}

func TestJoinTokenPrintsOneLineForEachMember(t *testing.T) {
	s := newShell(t)
	out, notes := s.must("member", "join-token", "east", "west", "--hub-url", "https://hub.example:8443",
		"--region", "us-east1", "--country", "US", "--label", "shoal.dev/egress=true", "--namespace", "proxies", "--set", "providers={a b}")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines, want one for each member:\n%s", len(lines), out)
	}
	tokens := identity.NewJoinTokens(identity.JoinTokensOptions{Reader: s.client, Namespace: hubNamespace, Clock: clocktesting.NewFakePassiveClock(now)})
	for i, member := range []string{"east", "west"} {
		words := strings.Fields(lines[i])
		var token string
		for n, word := range words {
			if text, ok := strings.CutPrefix(word, "join.token="); ok {
				token, words[n] = text, "join.token=T"
			}
		}
		want := "helm install shoal-agent charts/agent -n proxies --create-namespace --set hub.url=https://hub.example:8443" +
			" --set hub.caPin=" + s.hub.Authority().Pin() + " --set join.token=T --set member.name=" + member +
			" --set member.region=us-east1 --set member.country=US --set 'providers={a b}'"
		if diff := cmp.Diff(want, strings.Join(words, " ")); diff != "" {
			t.Errorf("command (-want +got):\n%s", diff)
		}
		grant, err := tokens.Redeem(t.Context(), token, member)
		if err != nil {
			t.Fatalf("the hub refuses the token: %v", err)
		}
		wantGrant := identity.JoinGrant{Members: []string{member}, Labels: map[string]string{"shoal.dev/egress": "true"}, Region: "us-east1", Country: "US"}
		if diff := cmp.Diff(wantGrant, grant); diff != "" {
			t.Errorf("grant (-want +got):\n%s", diff)
		}
	}
	if !strings.Contains(notes, "shoalctl member accept east") {
		t.Errorf("the notes do not say that somebody must accept the member:\n%s", notes)
	}
}

func TestJoinTokenOfOneAgent(t *testing.T) {
	s := newShell(t)
	out, notes := s.must("member", "join-token", "east", "gce-eu", "lab", "--one-agent", "--hub-url", "https://hub.example:8443")
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, "member.name=east ") && !strings.HasSuffix(out, "member.name=east\n") {
		t.Errorf("want one command, for the first member:\n%s", out)
	}
	_, token, _ := strings.Cut(out, "join.token=")
	token, _, _ = strings.Cut(token, " ")
	tokens := identity.NewJoinTokens(identity.JoinTokensOptions{Reader: s.client, Namespace: hubNamespace, Clock: clocktesting.NewFakePassiveClock(now)})
	for _, member := range []string{"east", "gce-eu", "lab"} {
		if _, err := tokens.Redeem(t.Context(), token, member); err != nil {
			t.Errorf("the hub refuses the token for %s: %v", member, err)
		}
	}
	for _, want := range []string{"what gce-eu, lab are", "kubeconfigSecrets", "shoalctl member accept east gce-eu lab"} {
		if !strings.Contains(notes, want) {
			t.Errorf("want %q in the notes:\n%s", want, notes)
		}
	}
}

func TestJoinTokenAsJSON(t *testing.T) {
	s := newShell(t)
	t.Setenv("SHOAL_HUB_URL", "https://192.0.2.1:30443")
	out, notes := s.must("member", "join-token", "123", "--accept", "-o", "json", "--ttl", "2h")
	var got []struct{ Member, HubURL, CAPin, Token, Expires, Command string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Member != "123" || got[0].HubURL != "https://192.0.2.1:30443" || got[0].CAPin != s.hub.Authority().Pin() ||
		got[0].Token == "" || got[0].Expires != "2026-03-01T14:00:00Z" || notes != "" {
		t.Errorf("got %+v, notes %q", got, notes)
	}
	if !strings.Contains(got[0].Command, "--set-string member.name=123") {
		t.Errorf("helm would make a number of the name: %s", got[0].Command)
	}
}

func TestJoinTokenSweepsAndWarns(t *testing.T) {
	taken := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	taken.Status.Identity = &v1alpha1.MemberIdentity{ClusterUID: "uid-1", Namespace: "ns"}
	s := newShell(t, taken)
	s.must("member", "join-token", "west", "--hub-url", "https://h")
	s.now = now.Add(2 * time.Hour)
	_, notes := s.must("member", "join-token", "east", "--hub-url", "https://h")
	if !strings.Contains(notes, "east is cluster uid-1, namespace ns, already") {
		t.Errorf("notes = %q", notes)
	}
	if got := len(s.secrets(v1alpha1.ComponentJoinToken)); got != 1 {
		t.Errorf("%d join tokens are kept, want only the one that is good", got)
	}
}

func TestCommandsRefuseWithoutATrace(t *testing.T) {
	cases := map[string]struct {
		reason string
		args   []string
		says   string
	}{
		"NoHubURL":     {"the agent must dial something", []string{"member", "join-token", "east"}, "--hub-url"},
		"PlainHubURL":  {"the listener speaks TLS only", []string{"member", "join-token", "east", "--hub-url", "http://h"}, "https://host:port"},
		"LongTTL":      {"the token lies in a shell's history", []string{"member", "join-token", "east", "--hub-url", "https://h", "--ttl", "48h"}, "24h"},
		"OneBadName":   {"half of the tokens would be of no use", []string{"member", "join-token", "east", "We_st", "--hub-url", "https://h"}, "We_st"},
		"NoName":       {"a token is for a member", []string{"member", "join-token", "--hub-url", "https://h"}, "arg"},
		"OnePlace":     {"it would be the region of all", []string{"member", "join-token", "east", "eu", "--one-agent", "--region", "r", "--hub-url", "https://h"}, "leave them out"},
		"OtherHub":     {"there is no hub in that namespace", []string{"member", "join-token", "east", "--hub-url", "https://h", "--hub-namespace", "other"}, "--hub-namespace"},
		"BadOutput":    {"only two forms", []string{"member", "join-token", "east", "--hub-url", "https://h", "-o", "yaml"}, "text or json"},
		"NoFleet":      {"a token is for fleets", []string{"token", "create", "--name", "x"}, "--fleet"},
		"BadFleet":     {"a fleet has a namespace", []string{"token", "create", "--name", "x", "--fleet", "news"}, "namespace/name"},
		"NoPrincipal":  {"leases have a holder", []string{"token", "create", "--fleet", "a/b"}, "--name"},
		"NegativeTTL":  {"it would have ended", []string{"token", "create", "--name", "x", "--fleet", "a/b", "--ttl", "-1h"}, "ttl"},
		"RevokeWhat":   {"nothing is revoked that is not there", []string{"token", "revoke", "0123456789ab"}, "shoalctl token list"},
		"AcceptWhom":   {"nobody has asked", []string{"member", "accept", "nobody"}, "shoalctl member join-token nobody"},
		"ExplainWhat":  {"there is no such fleet", []string{"fleet", "explain", "nothing"}, "crawl/nothing"},
		"ListWhat":     {"a list is of a fleet", []string{"proxy", "list", "--url", "https://h", "--token", "x"}, "--fleet"},
		"ListWhere":    {"the service must be somewhere", []string{"proxy", "list", "--fleet", "a/b", "--token", "x"}, "--url"},
		"ListWhatWith": {"the service knows its callers", []string{"proxy", "list", "--fleet", "a/b", "--url", "https://h"}, "shoalctl token create"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newShell(t)
			out, _, err := s.run(c.args...)
			if err == nil || !strings.Contains(err.Error(), c.says) || out != "" {
				t.Errorf("%s: printed %q, %v; want an error that says %q", c.reason, out, err, c.says)
			}
			if left := len(s.secrets(v1alpha1.ComponentJoinToken)) + len(s.secrets(v1alpha1.ComponentAPIToken)); left != 0 {
				t.Errorf("%d tokens are left behind", left)
			}
		})
	}
}

func TestTokenLifecycle(t *testing.T) {
	s := newShell(t)
	out, notes := s.must("token", "create", "--name", "news", "--fleet", "crawl/news,lab/*", "--ttl", "48h")
	text := strings.TrimSuffix(out, "\n")
	if strings.Contains(notes, text) || !strings.Contains(notes, "good until 2026-03-03T12:00:00Z") {
		t.Errorf("notes = %q", notes)
	}
	store := identity.NewTokenStore(identity.TokenStoreOptions{Reader: s.client, Namespace: hubNamespace, Clock: clocktesting.NewFakePassiveClock(now)})
	caller, err := store.Authenticate(t.Context(), text)
	if err != nil || caller.Principal != "news" || !caller.AllowsFleet("lab/x") {
		t.Errorf("the hub knows the token as %+v, %v", caller, err)
	}

	out, _ = s.must("token", "create", "--name", "forever", "--fleet", "crawl/news", "--ttl", "0", "-o", "json")
	var created struct {
		ID, Token string
		Expires   *time.Time
	}
	if err := json.Unmarshal([]byte(out), &created); err != nil {
		t.Fatal(err)
	}
	if created.Expires != nil || !strings.HasPrefix(created.Token, "shoal_"+created.ID+"_") {
		t.Errorf("created = %+v", created)
	}

	s.now = now.Add(24 * time.Hour)
	out, _ = s.must("token", "list")
	for _, want := range []string{"news      crawl/news,lab/*   24h", "forever   crawl/news         never"} {
		if !strings.Contains(out, want) {
			t.Errorf("the list lacks %q:\n%s", want, out)
		}
	}
	for _, hidden := range []string{text, created.Token, strings.Split(created.Token, "_")[2]} {
		if strings.Contains(out, hidden) {
			t.Error("the list shows a token")
		}
	}
	s.must("token", "revoke", created.ID)
	if _, err := store.Authenticate(t.Context(), created.Token); !errors.Is(err, identity.ErrUnknownToken) {
		t.Errorf("a revoked token: %v", err)
	}
	// Somebody gives the whole token in place of its id: the error must not repeat it.
	if _, _, err := s.run("token", "revoke", text); err == nil || strings.Contains(err.Error(), text) {
		t.Errorf("revoke by the token: %v", err)
	}
}

func TestMembersAreListedAndAccepted(t *testing.T) {
	east := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	east.Spec.Region = "us-east1"
	east.Spec.AgentRef = &v1alpha1.AgentRef{Name: "east-01"}
	east.Status = v1alpha1.MemberClusterStatus{
		Proxies: 5, Ready: 4, AgentVersion: "v1", LastHeartbeat: &metav1.Time{Time: now.Add(-3 * time.Second)},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonHeard}},
	}
	waiting := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "a-new-one"}}
	waiting.Status.Conditions = []metav1.Condition{
		{Type: v1alpha1.ConditionReady, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonNeverHeard},
		{Type: v1alpha1.ConditionJoined, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNotAccepted},
	}
	s := newShell(t, east, waiting)
	s.must("member", "accept", "east")
	out, _ := s.must("member", "list")
	want := `NAME        ACCEPTED   STATE         REGION     COUNTRY   PROXIES   READY   HEARD   VERSION   AGENT
a-new-one   false      NotAccepted   -          -         0         0       -       -         -
east        true       Heard         us-east1   -         5         4       3s      v1        east-01
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
}

func TestFleetExplain(t *testing.T) {
	five := int32(5)
	fleet := &v1alpha1.ProxyFleet{ObjectMeta: metav1.ObjectMeta{Namespace: "crawl", Name: "news", Generation: 2}}
	fleet.Spec.Replicas = &five
	fleet.Status = v1alpha1.ProxyFleetStatus{
		ObservedGeneration: 2,
		Members: []v1alpha1.FleetMemberStatus{
			{Name: "east", Region: "us-east1", Want: 3, Have: 3, Ready: 2, Why: "fair share 3"},
			{Name: "south", Want: 0, Why: "Unreachable for 2m10s"},
		},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted, Message: "nothing stands against it"},
			{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonMinimumUnavailable, Message: "2 of 5 proxies are ready"},
		},
	}
	s := newShell(t, fleet)
	out, notes := s.must("fleet", "explain", "news")
	want := `MEMBER   REGION     WANT   HAVE   READY   WHY
east     us-east1   3      3      2       fair share 3
south    -          0      0      0       Unreachable for 2m10s
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
	wantNotes := "# 3 of 5 proxies have a place\n# Available is False (MinimumUnavailable): 2 of 5 proxies are ready\n"
	if diff := cmp.Diff(wantNotes, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
}

func TestCAPrintsNothingButTheCertificate(t *testing.T) {
	s := newShell(t)
	out, _ := s.must("ca")
	if out != string(s.hub.Authority().Bundle()) {
		t.Errorf("printed:\n%s", out)
	}
}

// lister is a lease service that has pages of proxies.
type lister struct {
	leasev1connect.UnimplementedLeaseServiceHandler
	authorization []string
}

func (l *lister) ListProxies(ctx context.Context, req *leasev1.ListProxiesRequest) (*leasev1.ListProxiesResponse, error) {
	info, _ := connect.CallInfoForServerContext(ctx)
	l.authorization = append(l.authorization, info.RequestHeader().Get("Authorization"))
	if req.GetFleet() != "crawl/news" {
		return nil, connect.NewError(connect.CodeNotFound, "no such fleet")
	}
	proxy := &leasev1.Proxy{
		ProxyId: "p1", Member: "east", Region: "r1", Ready: true, Leased: 2, Slots: 5, Exits: []string{"203.0.113.9"},
		Endpoints: []*leasev1.Endpoint{{Network: "HostPort", Host: "192.0.2.7", Port: 21007}},
	}
	if req.GetPageToken() == "" {
		return &leasev1.ListProxiesResponse{Proxies: []*leasev1.Proxy{proxy}, NextPageToken: "2"}, nil
	}
	return &leasev1.ListProxiesResponse{Proxies: []*leasev1.Proxy{{ProxyId: "p2", Member: "west", Draining: true}}}, nil
}

func TestProxyListAsksTheLeaseService(t *testing.T) {
	service := &lister{}
	server := connect.NewServer()
	leasev1connect.RegisterLeaseServiceHandler(server, service)
	mux := http.NewServeMux()
	connecthttp.Mount(mux, server)
	web := httptest.NewUnstartedServer(mux)
	web.EnableHTTP2 = true
	web.Config.ErrorLog = log.New(io.Discard, "", 0)
	web.StartTLS()
	defer web.Close()
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newShell(t)
	t.Setenv("SHOAL_TOKEN", "shoal_x_y")
	t.Setenv("SHOAL_URL", web.URL)
	out, _ := s.must("proxy", "list", "--fleet", "crawl/news", "--ca-file", caFile)
	want := `PROXY   MEMBER   REGION   STATE      LEASED   ENDPOINT                   EXITS
p1      east     r1       Ready      2/5      HostPort=192.0.2.7:21007   203.0.113.9
p2      west     -        Draining   0/0      -                          -
`
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Bearer shoal_x_y", "Bearer shoal_x_y"}, service.authorization); diff != "" {
		t.Errorf("authorization (-want +got):\n%s", diff)
	}
	if _, _, err := s.run("proxy", "list", "--fleet", "crawl/other", "--ca-file", caFile); err == nil || !strings.Contains(err.Error(), "no such fleet") {
		t.Errorf("the service's refusal is not told: %v", err)
	}
	if _, _, err := s.run("proxy", "list", "--fleet", "crawl/news"); err == nil {
		t.Error("a service that the hub's authority has not signed was trusted")
	}
}
