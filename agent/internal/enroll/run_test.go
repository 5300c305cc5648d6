package enroll_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
)

// start runs an agent to the end of the test.
func start(t *testing.T, a *agent) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestRunRenewsWithAFifthToAQuarterLeft(t *testing.T) {
	for _, spread := range []float64{0, 0.5, 0.999} {
		synctest.Test(t, func(t *testing.T) {
			h := startHub(t, newAuthority(t))
			a := newAgent(t, h, func(o *enroll.Options) { o.Rand = func() float64 { return spread } })
			start(t, a)
			synctest.Wait()
			first := a.NotAfter()
			due := first.Add(-time.Duration((0.20 + 0.05*spread) * float64(agentLife)))
			<-time.After(time.Until(due) - time.Minute)
			if len(h.renewals()) != 0 {
				t.Errorf("spread %v: renewed before it was due", spread)
			}
			<-time.After(2 * time.Minute)
			if len(h.renewals()) != 1 || !a.NotAfter().After(first) {
				t.Errorf("spread %v: renewed %d times at its time", spread, len(h.renewals()))
			}
			if a.store.saved() != 2 || h.registrations() != 1 {
				t.Errorf("spread %v: %d saves, %d registrations", spread, a.store.saved(), h.registrations())
			}
			// A week is seven to nine renewals, each by the certificate before.
			<-time.After(7 * 24 * time.Hour)
			if got := len(h.renewals()); got < 9 || got > 11 {
				t.Errorf("spread %v: renewed %d times in eight days", spread, got)
			}
			for i, by := range h.renewals()[1:] {
				if by.Equal(h.renewals()[i]) {
					t.Errorf("spread %v: one certificate was used for two renewals", spread)
				}
			}
			checkHidden(t, a, nil)
		})
	}
}

func TestRunFollowsTheAuthority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, after := newAuthority(t), newAuthority(t)
		h := startHub(t, before)
		a := newAgent(t, h, nil)
		start(t, a)
		synctest.Wait()
		// The hub signs with a new key already, and still shows the old certificate.
		h.set(func(h *hub) { h.authority = after; h.clients = before.pool(); h.clients.AddCert(after.cert) })
		<-time.After(20 * time.Hour)
		if len(h.renewals()) != 1 {
			t.Fatalf("renewed %d times", len(h.renewals()))
		}
		h.set(func(h *hub) { h.serving = after.serving(hubName) })
		<-time.After(20 * time.Hour)
		if len(h.renewals()) != 2 {
			t.Errorf("renewed %d times: the new authority is not trusted", len(h.renewals()))
		}
	})
}

func TestRunOutlivesAHubThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		a := newAgent(t, h, nil)
		start(t, a)
		synctest.Wait()
		h.set(func(h *hub) { h.down = true; h.attempts = nil })
		<-time.After(23 * time.Hour)
		if got := h.dials(); got < 20 || got > 200 {
			t.Errorf("dialled %d times in the hours that were left", got)
		}
		h.set(func(h *hub) { h.down = false })
		<-time.After(10 * time.Minute)
		if len(h.renewals()) != 1 {
			t.Errorf("renewed %d times once the hub was back", len(h.renewals()))
		}
	})
}

func TestRunRegistersAgainWhenEverythingHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		a := newAgent(t, h, nil)
		start(t, a)
		synctest.Wait()
		h.set(func(h *hub) { h.down = true })
		<-time.After(48 * time.Hour)
		h.set(func(h *hub) {
			h.down = false
			h.refuse = connect.NewError(connect.CodeUnauthenticated, "make another with `shoalctl member join-token east`")
		})
		<-time.After(time.Hour)
		if got := h.registrations(); got < 10 || got > 30 {
			t.Errorf("registered %d times in an hour, want every few minutes", got)
		}
		if log := a.log.String(); !strings.Contains(log, "level=ERROR") || !strings.Contains(log, "shoalctl member join-token east") {
			t.Error("the log does not say what to do")
		}
		h.set(func(h *hub) { h.refuse = nil })
		<-time.After(10 * time.Minute)
		if !a.NotAfter().After(time.Now()) {
			t.Error("not registered again")
		}
		checkHidden(t, a, nil)
	})
}
