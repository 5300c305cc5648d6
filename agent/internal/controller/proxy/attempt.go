package proxy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// settle is how long after a request a zoned provider may know nothing of its instance, neither by name nor in a list.
// Compute Engine shows an instance within seconds of the insert; its lists have been seen to lag for longer.
const settle = time.Minute

// plan writes the next attempt ahead: nothing more is asked for in this pass, and the update asks for the next one. It is
// called only where nothing of a former attempt can be left.
func (r *Reconciler) plan(s *scope, want provider.Request) (time.Duration, error) {
	if s.draining() {
		s.wait(v1alpha1.ReasonNotProvisioned, "a draining proxy gets no instance")
		return 0, nil
	}
	if s.next.specHash != want.SpecHash {
		// Another spec owes nothing to what went wrong with the former one.
		s.next.setback = nil
	}
	if left := r.heldBack(s); left > 0 {
		return left, nil
	}
	zone, left, err := r.chooseZone(s)
	switch {
	case err != nil:
		return 0, fail(s, err)
	case left > 0:
		return left, nil
	}
	r.asks.remove(s.proxy.UID, "", 0)
	number := int64(1)
	if s.next.attempt != nil {
		number += s.next.attempt.Number
	}
	s.seen = true
	s.next.instanceName, s.next.specHash, s.next.hostPort = want.Name, want.SpecHash, want.HostPort
	s.next.attempt = &v1alpha1.Attempt{
		Number: number, State: v1alpha1.AttemptPlanned, RequestID: requestID(string(s.proxy.UID), number), Zone: zone, StartedAt: r.now(),
	}
	s.wait(v1alpha1.ReasonProvisioning, "the instance is about to be made")
	return 0, nil
}

// chooseZone gives the first zone, in the provider's order for this proxy, in which nothing is known to stand against a
// request. Where all are blocked it gives the time until the first of them is not.
func (r *Reconciler) chooseZone(s *scope) (zone string, left time.Duration, err error) {
	zones := []string{""}
	if zoned, ok := s.entry.Provider.(provider.Zoned); ok {
		if zones, err = zoned.Zones(s.proxy.Spec.ProxySettings, string(s.proxy.UID)); err != nil {
			return "", 0, err
		}
		if len(zones) == 0 {
			return "", 0, provider.Errorf(provider.KindInvalidSpec, "choose a zone", "provider %q offers none for this proxy", s.proxy.Spec.Provider)
		}
	}
	var first *Block
	for _, zone := range zones {
		b, blocked := r.blocks.standing(r.o.Clock.Now(), s.place(), zone)
		if !blocked || s.forced {
			return zone, 0, nil
		}
		if first == nil || b.Until.Before(first.Until) {
			first = &b
		}
	}
	return "", r.waitFor(s, *first), nil
}

// free says whether a request could be made in another zone than the one that was written down.
func (r *Reconciler) free(s *scope) bool {
	zoned, ok := s.entry.Provider.(provider.Zoned)
	if !ok {
		return false
	}
	zones, err := zoned.Zones(s.proxy.Spec.ProxySettings, string(s.proxy.UID))
	if err != nil {
		return false
	}
	for _, zone := range zones {
		if _, blocked := r.blocks.standing(r.o.Clock.Now(), s.place(), zone); !blocked && zone != s.next.attempt.Zone {
			return true
		}
	}
	return false
}

// accepted notes that the provider took the request of the attempt, or that its instance is there.
func (r *Reconciler) accepted(s *scope) {
	if a := s.next.attempt; a.State != v1alpha1.AttemptAccepted {
		now := r.now()
		a.State, a.AcceptedAt = v1alpha1.AttemptAccepted, &now
	}
}

// ended notes that nothing of the attempt is left.
func (s *scope) ended() {
	if s.next.attempt != nil {
		s.next.attempt.State, s.next.attempt.Operation = v1alpha1.AttemptEnded, ""
	}
	s.instance = nil
	s.seen = true
}

// settled is when what a provider does not show can be taken for absent.
func (r *Reconciler) settled(s *scope) time.Time {
	a := s.next.attempt
	if _, ok := s.entry.Provider.(provider.Zoned); !ok || a == nil || a.State == v1alpha1.AttemptEnded {
		return time.Time{}
	}
	last := a.StartedAt.Time
	if a.AcceptedAt != nil {
		last = a.AcceptedAt.Time
	} else if at, known := r.asks.asked(s.proxy.UID); known {
		last = later(last, at)
	} else {
		// Whoever led the proxy before may have asked until this process took over.
		last = later(last, r.started)
	}
	return last.Add(settle)
}

// requestID is the UUID of an attempt: the same however often it is asked for, in the form of RFC 9562's version 5 (a
// hash of a name; here SHA-256, for SHA-1 serves no purpose of ours).
func requestID(proxyUID string, number int64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64([]byte("shoal attempt/"+proxyUID+"/"), uint64(number))) //nolint:gosec // counts from 1
	sum[6] = sum[6]&0x0f | 0x50
	sum[8] = sum[8]&0x3f | 0x80
	text := hex.EncodeToString(sum[:16])
	return fmt.Sprintf("%s-%s-%s-%s-%s", text[:8], text[8:12], text[12:16], text[16:20], text[20:])
}

// ref names the instance of the attempt that is written down.
func (s *scope) ref() provider.Ref {
	ref := provider.Ref{Name: s.next.instanceName}
	if a := s.next.attempt; a != nil {
		ref.Zone, ref.Operation = a.Zone, a.Operation
	}
	return ref
}

// now is the time as the API keeps it.
func (r *Reconciler) now() metav1.Time { return metav1.NewTime(r.o.Clock.Now()).Rfc3339Copy() }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
