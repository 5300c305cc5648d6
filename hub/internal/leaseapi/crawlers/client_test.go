package crawlers_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/leaseclient"
)

// fetch gets a page, and says from where the site was asked and which lease it was.
func fetch(t *testing.T, browser *http.Client, url string) (status int, exit string, l *leaseclient.Lease, err error) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := browser.Do(request)
	if err != nil {
		return 0, "", nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	_, exit, _ = strings.Cut(string(text), "<title>")
	exit, _, _ = strings.Cut(exit, "</title>")
	return response.StatusCode, exit, leaseclient.LeaseOf(response), err
}

// outcomes are those that the hub was told of, until all leases are over: of Reports and of Releases.
func (w *world) outcomes(c *leaseclient.Client) (told []string) {
	w.t.Helper()
	if err := c.Close(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	for {
		select {
		case cmd := <-w.keeper.seen:
			switch cmd := cmd.(type) {
			case lease.Report:
				for _, o := range cmd.Observations {
					told = append(told, o.Outcome.String())
				}
			case lease.Release:
				if cmd.Outcome != nil {
					told = append(told, cmd.Outcome.Outcome.String())
				}
			}
		default:
			slices.Sort(told)
			return told
		}
	}
}

func TestLeasePerRequest(t *testing.T) {
	w := newWorld(t, good, good)
	c := w.client(leaseclient.Options{})
	browser := w.browser(c, leaseclient.TransportOptions{})
	seen := map[string]int{}
	for range 4 {
		for _, url := range []string{w.site.plain.URL, w.site.secure.URL} {
			status, exit, l, err := fetch(t, browser, url)
			if err != nil || status != http.StatusOK {
				t.Fatalf("%s: %d, %v", url, status, err)
			}
			if exit != l.Granted().GetExit() {
				t.Errorf("the site was asked from %s, the lease leaves by %s", exit, l.Granted().GetExit())
			}
			if !errors.Is(l.Err(), leaseclient.ErrReleased) {
				t.Errorf("after the body was read the lease is %v, want released", l.Err())
			}
			seen[exit]++
		}
	}
	if len(seen) != 2 {
		t.Errorf("exits: %v, want both in turn", seen)
	}
	w.site.awaitNoTunnel(t)
	if told := w.outcomes(c); !slices.Equal(told, slices.Repeat([]string{"ok"}, 8)) {
		t.Errorf("the hub was told %v, want eight pages", told)
	}
}

func TestSessionStays(t *testing.T) {
	w := newWorld(t, good, good)
	c := w.client(leaseclient.Options{})
	browser := w.browser(c, leaseclient.TransportOptions{Session: func(*http.Request) string { return "login-7" }})
	var leases, exits []string
	for range 5 {
		for _, url := range []string{w.site.plain.URL, w.site.secure.URL} {
			_, exit, l, err := fetch(t, browser, url)
			if err != nil {
				t.Fatal(err)
			}
			leases, exits = append(leases, l.ID()), append(exits, exit)
		}
	}
	if len(slices.Compact(leases)) != 1 || len(slices.Compact(exits)) != 1 {
		t.Errorf("leases %v, exits %v; want one of each", leases, exits)
	}
	// The session's connections end with its lease.
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.site.awaitNoTunnel(t)
	// Another process with the same token and key gets the same proxy.
	again, err := w.client(leaseclient.Options{}).Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", SessionKey: "login-7"})
	if err != nil || again.Granted().GetExit() != exits[0] {
		t.Errorf("the session elsewhere: %v, %v", again, err)
	}
}

func TestBlockedGoesOnElsewhere(t *testing.T) {
	w := newWorld(t, good, good)
	c := w.client(leaseclient.Options{Retry: leaseclient.Retry{Patience: -1}})
	browser := w.browser(c, leaseclient.TransportOptions{Retries: 1})
	w.site.ban(w.exits[0], http.StatusForbidden)
	w.site.ban(w.exits[1], http.StatusForbidden)
	_, _, _, err := fetch(t, browser, w.site.secure.URL)
	if visitors := w.site.visitors(); err != nil || len(visitors) != 2 || visitors[0] == visitors[1] {
		t.Fatalf("visitors %v, %v; want each exit to be tried once", visitors, err)
	}
	// Now every exit rests for this target, and the hub says until when.
	_, _, _, err = fetch(t, browser, w.site.secure.URL)
	var refusal *leaseclient.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != leasev1.Refusal_COOLING_DOWN || refusal.Cooling != 2 || refusal.RetryAfter < 4*time.Minute {
		t.Errorf("got %v, want COOLING_DOWN", err)
	}
	if visitors := w.site.visitors(); len(visitors) != 0 {
		t.Errorf("exits that rest were used: %v", visitors)
	}
	if told := w.outcomes(c); !slices.Equal(told, []string{"blocked", "blocked"}) {
		t.Errorf("the hub was told %v", told)
	}
}

func TestProxiesThatFail(t *testing.T) {
	tests := map[string]struct {
		reason string
		kind   proxyKind
		status int // of the proxy's answer
	}{
		"Credentials": {"a proxy that does not know this lease answers 407", strange, http.StatusProxyAuthRequired},
		"Down":        {"a proxy that does not listen", down, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.kind)
			c := w.client(leaseclient.Options{})
			for _, url := range []string{w.site.plain.URL, w.site.secure.URL} {
				_, _, _, err := fetch(t, w.browser(c, leaseclient.TransportOptions{Retries: 1}), url)
				var proxy *leaseclient.ProxyError
				if !errors.As(err, &proxy) || proxy.Status != tc.status {
					t.Errorf("%s: %s: %v, want a ProxyError of %d", tc.reason, url, err, tc.status)
				}
			}
			w.proxy(1, good)
			for _, url := range []string{w.site.plain.URL, w.site.secure.URL} {
				// Whichever comes first, it ends at the good one.
				for range 2 {
					if status, _, _, err := fetch(t, w.browser(c, leaseclient.TransportOptions{Retries: 1}), url); status != http.StatusOK {
						t.Errorf("%s: with another to go to: %d, %v", tc.reason, status, err)
					}
				}
			}
			if told := w.outcomes(c); !slices.Contains(told, "proxy_error") || !slices.Contains(told, "ok") || slices.Contains(told, "target_error") {
				t.Errorf("the hub was told %v", told)
			}
		})
	}
}

func TestTargetsThatFail(t *testing.T) {
	w := newWorld(t, good)
	c := w.client(leaseclient.Options{})
	browser := w.browser(c, leaseclient.TransportOptions{Retries: 3})
	plain, secure := w.site.plain.URL, w.site.secure.URL
	w.site.plain.Close()
	w.site.secure.Close()
	for _, url := range []string{plain, secure} {
		_, _, _, err := fetch(t, browser, url)
		var proxy *leaseclient.ProxyError
		if !errors.As(err, &proxy) || proxy.Status != http.StatusServiceUnavailable || proxy.Name != "ERR_CONNECT_FAIL" {
			t.Errorf("%s: %v, want what Squid says of the target", url, err)
		}
	}
	if told := w.outcomes(c); !slices.Equal(told, []string{"target_error", "target_error"}) {
		t.Errorf("the hub was told %v, and nothing is worth trying elsewhere", told)
	}
}

// TestTunnelsOutliveLeases is what docs/leasing.md says of the end of a lease.
func TestTunnelsOutliveLeases(t *testing.T) {
	w := newWorld(t, good)
	c := w.client(leaseclient.Options{})
	response, err := w.browser(c, leaseclient.TransportOptions{}).Get(w.site.secure.URL + "/slow")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := w.leased(t.Context()); n != 0 {
		t.Errorf("%d leases after Close", n)
	}
	close(w.site.hold)
	text, err := io.ReadAll(response.Body)
	if err != nil || !strings.HasSuffix(string(text), "the end") {
		t.Errorf("the page that was under way: %q, %v", text, err)
	}
}

func TestRenewal(t *testing.T) {
	w := newWorld(t, good)
	c := w.client(leaseclient.Options{})
	l, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", Ttl: durationpb.New(4 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	granted := l.State().Expires
	for renewals := 0; renewals < 3; {
		select {
		case cmd := <-w.keeper.seen:
			if _, ok := cmd.(lease.Renew); ok {
				renewals++
			}
		case <-l.Done():
			t.Fatalf("the lease has ended: %v", l.Err())
		}
	}
	if !l.State().Expires.After(granted) {
		t.Errorf("expires %v, as when it was granted", l.State().Expires)
	}
	// The proxy begins to drain: the next renewal tells.
	changed := l.Changed()
	w.do(lease.Drain{UID: lease.ProxyUID(l.Granted().GetProxyId()), Deadline: time.Now().Add(time.Hour)})
	select {
	case <-changed:
	case <-l.Done():
	}
	if !l.State().Draining {
		t.Errorf("state = %+v, %v", l.State(), l.Err())
	}
}

// TestWatch drains a proxy: the holder hears of it at once, minutes before it would renew.
func TestWatch(t *testing.T) {
	w := newWorld(t, good)
	c := w.client(leaseclient.Options{Watch: true})
	l, err := c.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news"})
	if err != nil {
		t.Fatal(err)
	}
	changed := l.Changed()
	w.do(lease.Drain{UID: lease.ProxyUID(l.Granted().GetProxyId()), Deadline: time.Now().Add(time.Hour)})
	select {
	case <-changed:
	case <-time.After(time.Minute):
		t.Fatal("not told within a minute")
	}
	if !l.State().Draining {
		t.Errorf("state = %+v, %v", l.State(), l.Err())
	}
}

func TestGivenUpRequestsLeakNothing(t *testing.T) {
	w := newWorld(t, good)
	c := w.client(leaseclient.Options{})
	browser := w.browser(c, leaseclient.TransportOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.site.secure.URL+"/slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := browser.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	l := leaseclient.LeaseOf(response)
	cancel()
	<-l.Done()
	if !errors.Is(l.Err(), leaseclient.ErrReleased) {
		t.Errorf("the lease of a request that was given up: %v", l.Err())
	}
	close(w.site.hold)
}
