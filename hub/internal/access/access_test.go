package access_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/access"
	"github.com/shoal-dev/shoal/hub/internal/identity"
)

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fakeKubernetes knows tokens by their last part and counts questions.
type fakeKubernetes struct {
	mu    sync.Mutex
	users map[string]access.User
	roles map[string]bool // "user verb namespace/name"
	down  error
	// hold, if set, keeps questions until it is closed.
	hold  chan struct{}
	asked map[string]int
}

func newFake() *fakeKubernetes {
	return &fakeKubernetes{
		users: map[string]access.User{"anna": {Name: "system:serviceaccount:crawl:anna", UID: "1", Groups: []string{"system:serviceaccounts"}}},
		roles: map[string]bool{"system:serviceaccount:crawl:anna lease crawl/news": true},
		asked: map[string]int{},
	}
}

func (f *fakeKubernetes) WhoIs(ctx context.Context, token, audience string) (access.User, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["who"]++
	if hold := f.hold; hold != nil {
		f.mu.Unlock()
		select {
		case <-hold:
		case <-ctx.Done():
		}
		f.mu.Lock()
	}
	if f.down != nil {
		return access.User{}, f.down
	}
	user, known := f.users[token[strings.LastIndexByte(token, '.')+1:]]
	if !known || audience != access.Audience {
		return access.User{}, fmt.Errorf("%w: nobody's", access.ErrRefused)
	}
	return user, nil
}

func (f *fakeKubernetes) May(_ context.Context, who access.User, verb, namespace, name string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked["may"]++
	return f.roles[who.Name+" "+verb+" "+namespace+"/"+name], f.down
}

func (f *fakeKubernetes) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[what]
}

func (f *fakeKubernetes) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

// noTokens is a store without API tokens.
type noTokens struct{}

func (noTokens) Authenticate(context.Context, string) (identity.Caller, error) {
	return identity.Caller{}, identity.ErrUnknownToken
}

// jwt makes a token that nobody has signed.
func jwt(claims, signature string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"RS256"}`)) + "." + part([]byte(claims)) + "." + signature
}

func tokenOf(who string) string {
	return jwt(fmt.Sprintf(`{"aud":["shoal"],"exp":%d}`, now.Add(time.Hour).Unix()), who)
}

func newGate(f *fakeKubernetes) (*access.Gate, *clocktesting.FakePassiveClock) {
	clock := clocktesting.NewFakePassiveClock(now)
	return access.New(access.Options{Kubernetes: f, APITokens: noTokens{}, Clock: clock}), clock
}

func TestAnswersAreRemembered(t *testing.T) {
	f := newFake()
	gate, clock := newGate(f)
	for range 5 {
		caller, err := gate.Authenticate(t.Context(), tokenOf("anna"))
		if err != nil || caller.Principal != "system:serviceaccount:crawl:anna" {
			t.Fatalf("%+v %v", caller, err)
		}
		for fleet, want := range map[string]bool{"crawl/news": true, "crawl/other": false, "crawl": false, "/news": false, "crawl/": false, "": false} {
			if got, err := caller.AllowsFleet(t.Context(), fleet); got != want || err != nil {
				t.Errorf("AllowsFleet(%q) = %v %v", fleet, got, err)
			}
		}
		if may, err := caller.MayOperate(t.Context()); may || err != nil {
			t.Errorf("may operate: %v %v", may, err)
		}
		if _, err := gate.Authenticate(t.Context(), tokenOf("stranger")); !errors.Is(err, access.ErrRefused) {
			t.Errorf("a stranger: %v", err)
		}
	}
	if f.count("who") != 2 || f.count("may") != 3 {
		t.Errorf("asked %v; want each token and each right once", f.asked)
	}

	// Everything is taken away. It counts when the memory ends, not before and not later.
	f.change(func() { clear(f.users); clear(f.roles) })
	clock.SetTime(now.Add(access.Remembered - time.Nanosecond))
	caller, err := gate.Authenticate(t.Context(), tokenOf("anna"))
	if err != nil {
		t.Fatal(err)
	}
	clock.SetTime(now.Add(access.Remembered))
	if allowed, err := caller.AllowsFleet(t.Context(), "crawl/news"); allowed || err != nil {
		t.Errorf("a right that is gone: %v %v", allowed, err)
	}
	if _, err := gate.Authenticate(t.Context(), tokenOf("anna")); !errors.Is(err, access.ErrRefused) {
		t.Errorf("a revoked token: %v", err)
	}
}

func TestTokensEndOnTime(t *testing.T) {
	gate, clock := newGate(newFake())
	token := jwt(fmt.Sprintf(`{"aud":"shoal","exp":%d}`, now.Add(3*time.Second).Unix()), "anna")
	if _, err := gate.Authenticate(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	clock.SetTime(now.Add(3 * time.Second))
	if _, err := gate.Authenticate(t.Context(), token); !errors.Is(err, access.ErrRefused) {
		t.Errorf("remembered as good beyond its end: %v", err)
	}
}

func TestWhatIsNoTokenOfOursCostsNothing(t *testing.T) {
	f := newFake()
	gate, _ := newGate(f)
	later := fmt.Sprint(now.Add(time.Hour).Unix())
	for name, token := range map[string]string{
		"Empty": "", "Opaque": "abc", "TwoParts": "a.b", "NotBase64": "a.!.anna", "NotJSON": "a.YQ.anna",
		"OtherAudience": jwt(`{"aud":["https://kubernetes.default.svc"],"exp":`+later+`}`, "anna"),
		"NoAudience":    jwt(`{"exp":`+later+`}`, "anna"),
		"OddAudience":   jwt(`{"aud":{"shoal":true},"exp":`+later+`}`, "anna"),
		"Expired":       jwt(`{"aud":["shoal"],"exp":`+fmt.Sprint(now.Unix())+`}`, "anna"),
		"NoEnd":         jwt(`{"aud":["shoal"]}`, "anna"),
		"APIToken":      "shoal_0123456789ab_secret",
	} {
		t.Run(name, func(t *testing.T) {
			if caller, err := gate.Authenticate(t.Context(), token); !errors.Is(err, access.ErrRefused) {
				t.Errorf("let in as %+v, %v", caller, err)
			}
		})
	}
	if f.count("who") != 0 {
		t.Errorf("the API server was asked %d times", f.count("who"))
	}
}

func TestOnlyServiceAccounts(t *testing.T) {
	f := newFake()
	f.users["admin"] = access.User{Name: "news"} // as an API token's principal
	gate, _ := newGate(f)
	if caller, err := gate.Authenticate(t.Context(), tokenOf("admin")); !errors.Is(err, access.ErrRefused) {
		t.Errorf("let in as %+v, %v", caller, err)
	}
}

func TestOutagesAreNotRemembered(t *testing.T) {
	f := newFake()
	f.down = errors.New("connection refused")
	gate, _ := newGate(f)
	if _, err := gate.Authenticate(t.Context(), tokenOf("anna")); err == nil || errors.Is(err, access.ErrRefused) {
		t.Fatalf("an outage is told as %v; the token is not to blame", err)
	}
	f.change(func() { f.down = nil })
	caller, err := gate.Authenticate(t.Context(), tokenOf("anna"))
	if err != nil {
		t.Fatal(err)
	}
	f.change(func() { f.down = errors.New("connection refused") })
	if allowed, err := caller.AllowsFleet(t.Context(), "crawl/news"); allowed || err == nil {
		t.Errorf("allowed %v, %v", allowed, err)
	}
}

// TestAskedOnceForAll has many ask at once. Strangers can fill their own share of the questions only.
func TestAskedOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		gate, clock := newGate(f)
		if _, err := gate.Authenticate(t.Context(), tokenOf("anna")); err != nil {
			t.Fatal(err)
		}
		clock.SetTime(now.Add(access.Remembered))
		f.hold = make(chan struct{})
		var busy, refused, known int
		var mu sync.Mutex
		var calls sync.WaitGroup
		for i := range 300 {
			calls.Go(func() {
				_, err := gate.Authenticate(t.Context(), tokenOf(fmt.Sprint("stranger", i)))
				mu.Lock()
				defer mu.Unlock()
				if errors.Is(err, access.ErrRefused) {
					refused++
				} else if err != nil {
					busy++
				}
			})
		}
		synctest.Wait()
		for range 50 {
			calls.Go(func() {
				_, err := gate.Authenticate(t.Context(), tokenOf("anna"))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					known++
				}
			})
		}
		synctest.Wait()
		// One who loses patience does not take the question along.
		impatient, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := gate.Authenticate(impatient, tokenOf("anna")); !errors.Is(err, context.Canceled) {
			t.Errorf("impatient: %v", err)
		}
		close(f.hold)
		calls.Wait()
		if known != 50 || refused != 64 || busy != 300-64 {
			t.Errorf("%d known, %d strangers refused, %d told to come back", known, refused, busy)
		}
		if got := f.count("who"); got != 1+64+1 {
			t.Errorf("asked %d times", got)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	f := newFake()
	gate, _ := newGate(f)
	if _, err := gate.Authenticate(t.Context(), tokenOf("anna")); err != nil {
		t.Fatal(err)
	}
	for i := range 9000 { // more than there is room for
		if _, err := gate.Authenticate(t.Context(), tokenOf(fmt.Sprint("stranger", i))); !errors.Is(err, access.ErrRefused) {
			t.Fatal(err)
		}
	}
	before := f.count("who")
	if _, err := gate.Authenticate(t.Context(), tokenOf("anna")); err != nil || f.count("who") != before {
		t.Errorf("strangers have pushed out a caller: %v", err)
	}
	if _, err := gate.Authenticate(t.Context(), tokenOf("stranger0")); err == nil || f.count("who") != before+1 {
		t.Error("the oldest stranger is still remembered")
	}
}
