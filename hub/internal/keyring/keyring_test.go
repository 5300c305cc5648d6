package keyring_test

import (
	"context"
	"crypto/ed25519"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/hub/internal/keyring"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/proto/credential"
)

// engine answers as a keeper would.
type engine struct{ *lease.Engine }

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func (e engine) Do(_ context.Context, cmd lease.Command) (lease.Result, error) {
	out, err := e.Step(now, cmd)
	return out.Result, err
}

func TestRingFollowsRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine{lease.New(lease.Options{IDs: &lease.CountingIDs{}, HistoryComplete: true})}
		do := func(cmd lease.Command) {
			if _, err := e.Do(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
		}
		do(lease.Revoke{Principal: "anna"})
		public := ed25519.PublicKey(make([]byte, ed25519.PublicKeySize))
		key := credential.Key{ID: credential.KeyIDOf(public), Public: public, Use: credential.UseLease}
		clock := clocktesting.NewFakeClock(now)
		ring, err := keyring.New(t.Context(), keyring.Options{Keys: []credential.Key{key}, Keeper: e, Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(want ...credential.Denial) {
			t.Helper()
			keys, denials, err := credential.Parse(ring.Document())
			if err != nil || len(keys) != 1 {
				t.Fatalf("%v %v", keys, err)
			}
			if diff := cmp.Diff(want, denials); diff != "" {
				t.Errorf("denials (-want +got):\n%s", diff)
			}
		}
		expect(credential.Denial{Principal: "anna"})

		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- ring.Run(ctx) }()
		changed, cancel := ring.Watch()
		signalled := func() bool {
			select {
			case <-changed:
				return true
			default:
				return false
			}
		}
		if !signalled() {
			t.Error("no signal at first: what changed before is lost")
		}
		do(lease.Revoke{Principal: "bert"})
		ring.Refresh()
		synctest.Wait()
		if !signalled() {
			t.Error("no signal after a change")
		}
		expect(credential.Denial{Principal: "anna"}, credential.Denial{Principal: "bert"})
		ring.Refresh()
		synctest.Wait()
		if signalled() {
			t.Error("a signal without a change")
		}
		do(lease.Reinstate{Principal: "anna"})
		clock.Step(time.Minute) // nobody has said so
		synctest.Wait()
		if !signalled() {
			t.Error("no signal after a minute")
		}
		expect(credential.Denial{Principal: "bert"})
		cancel()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
