package leaseapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// operator calls a hub with a token.
func (h *hub) operator(token string) leasev1connect.OperatorServiceClient {
	wire := connecthttp.NewTransport(&http.Client{Transport: withToken{h.http2.Transport, token}}, h.url)
	return leasev1connect.NewOperatorServiceClient(connect.NewClient(wire))
}

type withToken struct {
	next  http.RoundTripper
	token string
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if w.token != "" {
		r.Header.Set("Authorization", "Bearer "+w.token)
	}
	return w.next.RoundTrip(r)
}

// operators lets operatorToken operate, and fails for brokenOperator.
const (
	operatorToken  = "secret-of-the-operator"
	brokenOperator = "secret-of-an-operator-in-an-outage"
)

func operatorTokens(ctx context.Context, bearer string) (leaseapi.Caller, error) {
	nothing := func(context.Context, string) (bool, error) { return false, nil }
	switch bearer {
	case operatorToken:
		return leaseapi.Caller{
			Principal: "system:serviceaccount:shoal-system:operator", AllowsFleet: nothing,
			MayOperate: func(context.Context) (bool, error) { return true, nil },
		}, nil
	case brokenOperator:
		return leaseapi.Caller{
			Principal: "system:serviceaccount:shoal-system:operator", AllowsFleet: nothing,
			MayOperate: func(context.Context) (bool, error) { return false, errors.New("connection refused") },
		}, nil
	default:
		return tokens(ctx, bearer)
	}
}

// operated records the commands that a keeper is given.
type operated struct {
	leaseapi.Keeper
	by atomic.Value
}

func (o *operated) Do(ctx context.Context, cmd lease.Command) (lease.Result, error) {
	if revoke, ok := cmd.(lease.Revoke); ok {
		o.by.Store(revoke.By)
	}
	return o.Keeper.Do(ctx, cmd)
}

func TestOperatorsOnly(t *testing.T) {
	h := newHub(t, dials{tokens: operatorTokens})
	calls := map[string]func(leasev1connect.OperatorServiceClient) error{
		"Revoke": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.Revoke(t.Context(), &leasev1.RevokeRequest{Principal: "token:news"})
			return err
		},
		"Reinstate": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.Reinstate(t.Context(), &leasev1.ReinstateRequest{Principal: "token:news"})
			return err
		},
		"ListRevocations": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.ListRevocations(t.Context(), &leasev1.ListRevocationsRequest{})
			return err
		},
		"PauseTarget": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.PauseTarget(t.Context(), &leasev1.PauseTargetRequest{Target: "example.com"})
			return err
		},
		"ResumeTarget": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.ResumeTarget(t.Context(), &leasev1.ResumeTargetRequest{Target: "example.com"})
			return err
		},
		"ListPauses": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.ListPauses(t.Context(), &leasev1.ListPausesRequest{})
			return err
		},
		"ListBans": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.ListBans(t.Context(), &leasev1.ListBansRequest{})
			return err
		},
		"ClearBan": func(c leasev1connect.OperatorServiceClient) error {
			_, err := c.ClearBan(t.Context(), &leasev1.ClearBanRequest{Target: "example.com"})
			return err
		},
	}
	for name, call := range calls {
		for token, want := range map[string]leasev1.Refusal_Reason{
			"": leasev1.Refusal_UNAUTHENTICATED, "guess": leasev1.Refusal_UNAUTHENTICATED, newsToken: leasev1.Refusal_FORBIDDEN,
			brokenOperator: leasev1.Refusal_UNAVAILABLE, operatorToken: leasev1.Refusal_REASON_UNSPECIFIED,
		} {
			err := call(h.operator(token))
			if got := fault.ReasonOf(err); got != want || (err == nil) != (token == operatorToken) {
				t.Errorf("%s with %q: %v, want %s", name, token, err, want)
			}
		}
	}
}

// TestOperatorsStory has an operator act on a crawler's leases.
func TestOperatorsStory(t *testing.T) {
	var told atomic.Int32
	keeper := &operated{}
	h := newHub(t, dials{tokens: operatorTokens, revoked: func() { told.Add(1) }, wrap: func(k leaseapi.Keeper) leaseapi.Keeper {
		keeper.Keeper = k
		return keeper
	}})
	h.news(t, 2, 5)
	o := h.operator(operatorToken)
	acquire := func(body string) (int, string) {
		t.Helper()
		answer, text := h.send(t, h.http2, "POST", "/v1/leases", newsToken, http.Header{}, []byte(body))
		return answer.StatusCode, string(text)
	}
	expect := func(body string, status int, says string) {
		t.Helper()
		if got, text := acquire(body); got != status || !strings.Contains(text, says) {
			t.Errorf("acquire %s: %d %s, want %d and %q", body, got, text, status, says)
		}
	}
	const plain, shop = `{"fleet":"crawl/news"}`, `{"fleet":"crawl/news","target":"shop.example.com"}`
	expect(plain, 200, "lse_")

	revoked, err := o.Revoke(t.Context(), &leasev1.RevokeRequest{Principal: "token:news", Why: "lost its token"})
	if err != nil || len(revoked.GetLeaseIds()) != 1 || told.Load() != 1 {
		t.Fatalf("%v %v, told %d times", revoked, err, told.Load())
	}
	if by := keeper.by.Load(); by != lease.Principal("system:serviceaccount:shoal-system:operator") {
		t.Errorf("revoked by %v", by)
	}
	expect(plain, 403, `"reason":"REVOKED"`)
	if list, err := o.ListRevocations(t.Context(), &leasev1.ListRevocationsRequest{}); err != nil || len(list.GetRevocations()) != 1 ||
		list.GetRevocations()[0].GetWhy() != "lost its token" {
		t.Errorf("%v %v", list, err)
	}
	if lifted, err := o.Reinstate(t.Context(), &leasev1.ReinstateRequest{Principal: "token:news"}); err != nil || !lifted.GetLifted() || told.Load() != 2 {
		t.Errorf("%v %v, told %d times", lifted, err, told.Load())
	}
	expect(plain, 200, "lse_")

	paused, err := o.PauseTarget(t.Context(), &leasev1.PauseTargetRequest{Target: "www.example.com", For: durationpb.New(60e9)})
	if err != nil || paused.GetPause().GetTarget() != "example.com" {
		t.Fatalf("%v %v", paused, err)
	}
	expect(shop, 429, `"reason":"TARGET_PAUSED","retryAfter":"60s"`)
	if resumed, err := o.ResumeTarget(t.Context(), &leasev1.ResumeTargetRequest{Target: "example.com"}); err != nil || resumed.GetCount() != 1 {
		t.Errorf("%v %v", resumed, err)
	}
	if list, err := o.ListPauses(t.Context(), &leasev1.ListPausesRequest{}); err != nil || len(list.GetPauses()) != 0 {
		t.Errorf("%v %v", list, err)
	}

	_, text := acquire(shop)
	_, rest, _ := strings.Cut(text, `"leaseId":"`)
	id, _, _ := strings.Cut(rest, `"`)
	if answer, text := h.send(t, h.http2, "POST", "/v1/leases/"+id+":report", newsToken, http.Header{}, []byte(`{"outcome":{"kind":"BLOCKED"}}`)); answer.StatusCode != http.StatusOK {
		t.Fatalf("report: %s", text)
	}
	bans, err := o.ListBans(t.Context(), &leasev1.ListBansRequest{Target: "example.com", Limit: 1})
	if err != nil || bans.GetTotal() != 2 || len(bans.GetBans()) != 1 || !bans.GetBans()[0].GetBanned() || bans.GetBans()[0].GetFleets()[0] != "crawl/news" {
		t.Fatalf("%v %v", bans, err)
	}
	if cleared, err := o.ClearBan(t.Context(), &leasev1.ClearBanRequest{Target: "example.com", Exit: bans.GetBans()[0].GetExit()}); err != nil || cleared.GetCount() != 1 {
		t.Errorf("%v %v", cleared, err)
	}
	for name, err := range map[string]error{
		"Target": func() error {
			_, err := o.PauseTarget(t.Context(), &leasev1.PauseTargetRequest{Target: "https://example.com/"})
			return err
		}(),
		"Exit": func() error {
			_, err := o.ClearBan(t.Context(), &leasev1.ClearBanRequest{Target: "example.com", Exit: "nowhere"})
			return err
		}(),
		"NoPrincipal": func() error { _, err := o.Revoke(t.Context(), &leasev1.RevokeRequest{}); return err }(),
	} {
		if refusal, _ := fault.From(err); refusal.GetReason() != leasev1.Refusal_INVALID_REQUEST || len(refusal.GetFields()) != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
}
