package ctl_test

import (
	"context"
	"encoding/pem"
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
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// operatorHub answers operators and notes what it was asked.
type operatorHub struct {
	leasev1connect.UnimplementedOperatorServiceHandler
	t             *testing.T
	asked         []string
	authorization []string
}

func (h *operatorHub) note(ctx context.Context, request proto.Message) {
	info, _ := connect.CallInfoForServerContext(ctx)
	h.authorization = append(h.authorization, info.RequestHeader().Get("Authorization"))
	text, err := protojson.Marshal(request)
	if err != nil {
		h.t.Error(err)
	}
	h.asked = append(h.asked, strings.ReplaceAll(string(text), " ", ""))
}

func (h *operatorHub) Revoke(ctx context.Context, r *leasev1.RevokeRequest) (*leasev1.RevokeResponse, error) {
	h.note(ctx, r)
	return &leasev1.RevokeResponse{
		Revocation: &leasev1.Revocation{Principal: r.GetPrincipal(), Until: timestamppb.New(now.Add(time.Hour))}, LeaseIds: []string{"lse_1"},
	}, nil
}

func (h *operatorHub) Reinstate(ctx context.Context, r *leasev1.ReinstateRequest) (*leasev1.ReinstateResponse, error) {
	h.note(ctx, r)
	return &leasev1.ReinstateResponse{Lifted: r.GetPrincipal() == "news"}, nil
}

func (h *operatorHub) ListRevocations(ctx context.Context, r *leasev1.ListRevocationsRequest) (*leasev1.ListRevocationsResponse, error) {
	h.note(ctx, r)
	return &leasev1.ListRevocationsResponse{Revocations: []*leasev1.Revocation{
		{Principal: "news", Since: timestamppb.New(now.Add(-time.Minute)), Until: timestamppb.New(now.Add(time.Hour)), Why: "leaked"},
		{Principal: "news", ProxyId: "p1", Since: timestamppb.New(now), Until: timestamppb.New(now.Add(time.Hour))},
	}}, nil
}

func (h *operatorHub) PauseTarget(ctx context.Context, r *leasev1.PauseTargetRequest) (*leasev1.PauseTargetResponse, error) {
	h.note(ctx, r)
	return &leasev1.PauseTargetResponse{Pause: &leasev1.Pause{Target: r.GetTarget()}}, nil
}

func (h *operatorHub) ResumeTarget(ctx context.Context, r *leasev1.ResumeTargetRequest) (*leasev1.ResumeTargetResponse, error) {
	h.note(ctx, r)
	return &leasev1.ResumeTargetResponse{}, nil
}

func (h *operatorHub) ListPauses(ctx context.Context, r *leasev1.ListPausesRequest) (*leasev1.ListPausesResponse, error) {
	h.note(ctx, r)
	return &leasev1.ListPausesResponse{Pauses: []*leasev1.Pause{{Target: "example.com", Since: timestamppb.New(now), Why: "they asked"}}}, nil
}

func (h *operatorHub) ListBans(ctx context.Context, r *leasev1.ListBansRequest) (*leasev1.ListBansResponse, error) {
	h.note(ctx, r)
	return &leasev1.ListBansResponse{Total: 5, Bans: []*leasev1.Ban{
		{Target: "example.com", Exit: "203.0.113.9", Active: true, Banned: true, Strikes: 2, Until: timestamppb.New(now.Add(10 * time.Minute)), Fleets: []string{"a/b", "c/d"}},
		{Target: "example.com", Exit: "203.0.113.10", Strikes: 1, Until: timestamppb.New(now.Add(-time.Minute))},
	}}, nil
}

func (h *operatorHub) ClearBan(ctx context.Context, r *leasev1.ClearBanRequest) (*leasev1.ClearBanResponse, error) {
	h.note(ctx, r)
	return &leasev1.ClearBanResponse{Count: 1}, nil
}

func TestOperatorCommands(t *testing.T) {
	service := &operatorHub{t: t}
	server := connect.NewServer()
	leasev1connect.RegisterOperatorServiceHandler(server, service)
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
	t.Setenv("SHOAL_URL", web.URL)
	s := newShell(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: "shoal-operator"}})
	for name, c := range map[string]struct {
		args             []string
		asked, out, says string
	}{
		"Revoke": {[]string{"principal", "revoke", "news", "--why", "leaked"}, `{"principal":"news","why":"leaked"}`, "", "1 leases were ended"},
		"RevokeOne": {
			[]string{"principal", "revoke", "news", "--proxy", "p1", "--for", "2h"},
			`{"principal":"news","proxyId":"p1","for":"7200s"}`, "",
			"on proxy p1 until 2026-03-01T13:00:00Z",
		},
		"Reinstate": {[]string{"principal", "reinstate", "news"}, `{"principal":"news"}`, "", "news may lease again everywhere"},
		"Revoked": {[]string{"principal", "list"}, `{}`, `PRINCIPAL   PROXY   ENDS IN   AGE   WHY
news        all     60m       60s   leaked
news        p1      60m       0s    -
`, ""},
		"Pause":  {[]string{"target", "pause", "example.com"}, `{"target":"example.com"}`, "", "paused until it is resumed"},
		"Paused": {[]string{"target", "list"}, `{}`, "TARGET        ENDS IN   AGE   WHY\nexample.com   never     0s    they asked\n", ""},
		"Bans": {[]string{"ban", "list", "--target", "example.com"}, `{"target":"example.com"}`, `TARGET        EXIT           KIND      RESTS FOR   STRIKES   FLEETS
example.com   203.0.113.9    ban       10m         2         a/b,c/d
example.com   203.0.113.10   strikes   -           1         -
`, "# 3 more"},
		"Clear":    {[]string{"ban", "clear", "example.com", "--exit", "203.0.113.9"}, `{"target":"example.com","exit":"203.0.113.9"}`, "", "1 bans on example.com are cleared"},
		"ClearAll": {[]string{"ban", "clear", "example.com", "--all"}, `{"target":"example.com"}`, "", "cleared"},
	} {
		t.Run(name, func(t *testing.T) {
			service.asked = nil
			out, notes := s.must(append(c.args, "--ca-file", caFile)...)
			if diff := cmp.Diff([]string{c.asked}, service.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.out, out); diff != "" || !strings.Contains(notes, c.says) {
				t.Errorf("printed (-want +got):\n%s\nnotes %q, want %q", diff, notes, c.says)
			}
		})
	}
	for _, header := range service.authorization {
		if !strings.HasPrefix(header, "Bearer ") || len(header) < 10 {
			t.Errorf("authorized with %q", header)
		}
	}
	tokenFile := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte("of.my.own\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	service.authorization = nil
	s.must("ban", "list", "--ca-file", caFile, "--token-file", tokenFile)
	if diff := cmp.Diff([]string{"Bearer of.my.own"}, service.authorization); diff != "" {
		t.Errorf("with a token of one's own (-want +got):\n%s", diff)
	}
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"NotRevoked": {[]string{"principal", "reinstate", "other"}, "other is not revoked everywhere"},
		"NotPaused":  {[]string{"target", "resume", "example.com"}, "is not paused"},
		"ClearWhat":  {[]string{"ban", "clear", "example.com"}, "--exit"},
		"ClearBoth":  {[]string{"ban", "clear", "example.com", "--all", "--exit", "203.0.113.9"}, "--exit"},
		"NoAccount":  {[]string{"ban", "list", "--as-account", "nobody"}, "there is no ServiceAccount nobody"},
		"NoURL":      {[]string{"ban", "list", "--url", "http://hub"}, "https://"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := s.run(append(c.args, "--ca-file", caFile)...); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
