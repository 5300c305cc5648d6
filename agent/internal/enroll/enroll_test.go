package enroll_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/shoal-dev/shoal/agent/internal/enroll"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

func TestEnrollRegistersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		a := newAgent(t, h, nil)
		if err := a.Enroll(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := &agentv1.RegisterRequest{
			Token: token, Member: "east", Identity: &agentv1.MemberIdentity{ClusterUid: "uid", Namespace: "shoal-system"},
			AgentVersion: "v1", Region: "r1", Country: "DE",
		}
		if diff := cmp.Diff(want, h.firstRegistration(), protocmp.Transform(), protocmp.IgnoreFields(want, "csr")); diff != "" {
			t.Errorf("the request (-want +got):\n%s", diff)
		}
		if a.Agent() != "east-01" || a.HubUID() != "hub-uid" || time.Until(a.NotAfter()) != agentLife {
			t.Errorf("enrolled as %q at %q until %v", a.Agent(), a.HubUID(), a.NotAfter())
		}

		// The hub is away: what was saved is enough.
		h.set(func(h *hub) { h.down = true })
		again := newAgent(t, h, func(o *enroll.Options) { o.Store, o.Token, o.CAPin = a.store, "", "" })
		if err := again.Enroll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if again.Agent() != "east-01" || h.registrations() != 1 || a.store.saved() != 1 {
			t.Errorf("after a restart: %q, %d registrations, %d saves", again.Agent(), h.registrations(), a.store.saved())
		}
	})
}

func TestEnrollDiscardsWhatIsOfNoUse(t *testing.T) {
	cases := map[string]struct {
		reason string
		spoil  func(*testing.T, *enroll.State)
		wait   time.Duration
	}{
		"Expired":   {"the hub would not let it in", nil, agentLife},
		"OtherHub":  {"the agent was pointed at another hub", func(_ *testing.T, s *enroll.State) { s.Pin = "sha256:" + strings.Repeat("0", 64) }, 0},
		"NoKey":     {"somebody has edited the Secret", func(_ *testing.T, s *enroll.State) { s.Key = nil }, 0},
		"NoBundle":  {"there is nothing to trust the hub by", func(_ *testing.T, s *enroll.State) { s.Bundle = nil }, 0},
		"BadBundle": {"the Secret is damaged", func(_ *testing.T, s *enroll.State) { s.Bundle = []byte("hello") }, 0},
		"OtherKey": {"the two were mixed up", func(t *testing.T, s *enroll.State) {
			h := startHub(t, newAuthority(t))
			other := newAgent(t, h, nil)
			if err := other.Enroll(t.Context()); err != nil {
				t.Fatal(err)
			}
			s.Key = other.store.state.Key
		}, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, newAuthority(t))
				a := newAgent(t, h, nil)
				if err := a.Enroll(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c.spoil != nil {
					c.spoil(t, a.store.state)
				}
				if c.wait > 0 {
					<-time.After(c.wait)
				}
				again := newAgent(t, h, func(o *enroll.Options) { o.Store = a.store })
				if err := again.Enroll(t.Context()); err != nil {
					t.Fatal(err)
				}
				if h.registrations() != 2 {
					t.Errorf("%s: registered %d times, want 2", c.reason, h.registrations())
				}
			})
		})
	}
}

func TestEnrollGivesUp(t *testing.T) {
	cases := map[string]struct {
		reason string
		hub    func(*hub)
		agent  func(*enroll.Options)
		want   error
		says   string
	}{
		"WrongPin":     {"another hub answers, or somebody in between", nil, func(o *enroll.Options) { o.CAPin = "sha256:" + strings.Repeat("ab", 32) }, enroll.ErrWrongHub, "check hub.url"},
		"WrongName":    {"the certificate is for another name", nil, func(o *enroll.Options) { o.HubURL = "https://other.example:8443" }, enroll.ErrWrongHub, "other.example"},
		"WrongAddress": {"the certificate is for a name, not for this address", nil, func(o *enroll.Options) { o.HubURL = "https://192.0.2.1:8443" }, enroll.ErrWrongHub, "192.0.2.1"},
		"NoToken":      {"somebody installed the chart by hand", nil, func(o *enroll.Options) { o.Token = "" }, enroll.ErrNoToken, "shoalctl member join-token east"},
		"NoPin":        {"nothing says which hub is the right one", nil, func(o *enroll.Options) { o.CAPin = "" }, enroll.ErrWrongHub, "hub.caPin"},
		"ExpiredToken": {"the hub says so", func(h *hub) { h.refuse = connect.NewError(connect.CodeUnauthenticated, "ended at noon") }, nil, enroll.ErrRefused, "ended at noon"},
		"OtherMember":  {"the hub says so", func(h *hub) { h.refuse = connect.NewError(connect.CodePermissionDenied, "for west") }, nil, enroll.ErrRefused, "for west"},
		"Claimed":      {"the hub says so", func(h *hub) { h.refuse = connect.NewError(connect.CodeAlreadyExists, "is cluster x") }, nil, enroll.ErrRefused, "is cluster x"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startHub(t, newAuthority(t))
				if c.hub != nil {
					h.set(c.hub)
				}
				a := newAgent(t, h, c.agent)
				err := a.Enroll(t.Context())
				if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: got %v; want %v and %q", c.reason, err, c.want, c.says)
				}
				if a.store.saved() != 0 || a.Agent() != "" {
					t.Error("an agent that was refused has kept something")
				}
				if errors.Is(c.want, enroll.ErrWrongHub) && h.registrations() != 0 {
					t.Error("a stranger was given the join token")
				}
				checkHidden(t, a, err)
			})
		})
	}
}

func TestEnrollTrustsAnAddressInTheCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		h.set(func(h *hub) { h.serving = h.authority.serving("192.0.2.1") })
		a := newAgent(t, h, func(o *enroll.Options) { o.HubURL = "https://192.0.2.1:8443" })
		if err := a.Enroll(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAPinnedCertificateAloneIsNotTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The hub's certificate is no secret: a stranger can show it beside a leaf of their own.
		pinned, stranger := newAuthority(t), newAuthority(t)
		h := startHub(t, stranger)
		h.set(func(h *hub) {
			h.serving = stranger.serving(hubName)
			h.serving.Certificate = append(h.serving.Certificate, pinned.cert.Raw)
		})
		a := newAgent(t, h, func(o *enroll.Options) { o.CAPin = pinned.pin() })
		if err := a.Enroll(t.Context()); !errors.Is(err, enroll.ErrWrongHub) {
			t.Errorf("got %v, want ErrWrongHub", err)
		}
		if h.registrations() != 0 {
			t.Error("a stranger was given the join token")
		}
	})
}

func TestEnrollWaitsToBeAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		h.set(func(h *hub) { h.refuse = connect.NewError(connect.CodeFailedPrecondition, "run kubectl patch") })
		a := newAgent(t, h, nil)
		done := make(chan error, 1)
		begin := time.Now()
		go func() { done <- a.Enroll(t.Context()) }()
		<-time.After(95 * time.Second)
		if got := h.registrations(); got != 4 {
			t.Errorf("asked %d times in 95 s, want every 30 s", got)
		}
		if !strings.Contains(a.log.String(), "run kubectl patch") {
			t.Errorf("the log does not say what to do:\n%s", a.log)
		}
		h.set(func(h *hub) { h.refuse = nil })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if got := time.Since(begin); got != 120*time.Second {
			t.Errorf("enrolled after %v, want at the next attempt", got)
		}
		checkHidden(t, a, nil)
	})
}

func TestEnrollWaitsForTheHubAndTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		h.set(func(h *hub) { h.down = true })
		a := newAgent(t, h, nil)
		a.store.set(func(s *memoryStore) { s.fail = errors.New("the API server is away") })
		done := make(chan error, 1)
		go func() { done <- a.Enroll(t.Context()) }()
		<-time.After(10 * time.Minute)
		if h.dials() != 0 {
			t.Error("registered although what was saved could not be read")
		}
		a.store.set(func(s *memoryStore) { s.fail = nil })
		<-time.After(10 * time.Minute)
		if got := h.dials(); got < 20 || got > 100 {
			t.Errorf("dialled %d times in 10 min", got)
		}
		h.set(func(h *hub) { h.down = false })
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

func TestEnrollEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		h.set(func(h *hub) { h.down = true })
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		a := newAgent(t, h, nil)
		if err := a.Enroll(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Enroll = %v", err)
		}
		if err := a.Run(ctx); err != nil {
			t.Errorf("Run = %v", err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	good := enroll.Options{
		HubURL: "https://hub.example:8443", Member: "east", Store: &memoryStore{},
		Identity: &agentv1.MemberIdentity{ClusterUid: "uid", Namespace: "ns"},
	}
	cases := map[string]struct {
		change func(*enroll.Options)
		says   string
	}{
		"PlainURL":   {func(o *enroll.Options) { o.HubURL = "http://hub.example" }, "hub.url"},
		"NoScheme":   {func(o *enroll.Options) { o.HubURL = "hub.example:8443" }, "hub.url"},
		"Path":       {func(o *enroll.Options) { o.HubURL = "https://hub.example/agents" }, "hub.url"},
		"ShortPin":   {func(o *enroll.Options) { o.CAPin = "sha256:abcd" }, "hub.caPin"},
		"BarePin":    {func(o *enroll.Options) { o.CAPin = strings.Repeat("ab", 32) }, "hub.caPin"},
		"NoMember":   {func(o *enroll.Options) { o.Member = "" }, "member.name"},
		"NoIdentity": {func(o *enroll.Options) { o.Identity = nil }, "Identity"},
		"NoStore":    {func(o *enroll.Options) { o.Store = nil }, "Store"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := good
			c.change(&o)
			if _, err := enroll.New(o); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v; want an error that names %s", err, c.says)
			}
		})
	}
	if _, err := enroll.New(good); err != nil {
		t.Errorf("good options: %v", err)
	}
}

// checkHidden checks that neither the log nor an error shows the join token or the agent's key.
func checkHidden(t *testing.T, a *agent, err error) {
	t.Helper()
	secrets := []string{strings.Split(token, ".")[1]}
	state, loadErr := a.store.Load(t.Context())
	if loadErr == nil {
		block, _ := pem.Decode(state.Key)
		secrets = append(secrets, string(block.Bytes), strings.Split(string(state.Key), "\n")[1])
	}
	shown := a.log.String() + fmt.Sprint(err) + fmt.Sprintf("%v %+v %#v", state, state, state)
	for _, secret := range secrets {
		if strings.Contains(shown, secret) {
			t.Errorf("a secret is shown in:\n%s", shown)
		}
	}
}

func TestTLSConfigFollowsTheCredential(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		a := newAgent(t, h, nil)
		config := a.TLSConfig()
		shake := func() error {
			t.Helper()
			raw, err := h.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			conn := tls.Client(raw, config)
			if err := conn.HandshakeContext(t.Context()); err != nil {
				_ = raw.Close()
				return err
			}
			// With TLS 1.3 the client learns only later whether its certificate was taken.
			go func() { _, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") }()
			_, err = io.ReadAll(conn)
			_ = raw.Close()
			return err
		}
		if err := shake(); err == nil {
			t.Error("a handshake succeeded before the agent was enrolled")
		}
		if err := a.Enroll(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := shake(); err != nil {
			t.Errorf("a configuration made before the agent was enrolled: %v", err)
		}
		stranger := newAuthority(t)
		h.set(func(h *hub) { h.serving = stranger.serving(hubName) })
		var unknown x509.UnknownAuthorityError
		if err := shake(); !errors.As(err, &unknown) {
			t.Errorf("a stranger at the hub's address: %v, want UnknownAuthorityError", err)
		}
	})
}

// TestJoinAsksByTheCertificate adds a member to an agent that is enrolled. Whatever comes of it, the agent's own certificate
// stays the one it has.
func TestJoinAsksByTheCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startHub(t, newAuthority(t))
		a := newAgent(t, h, nil)
		m := enroll.Member{Name: "gce-eu", Identity: &agentv1.MemberIdentity{ClusterUid: "uid", Namespace: "shoal-system", Project: "p", Region: "eu"}, Region: "eu"}
		if err := a.Join(t.Context(), m, ""); err == nil {
			t.Error("an agent without a certificate has joined")
		}
		if err := a.Enroll(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.set(func(h *hub) { h.speaksAs = "east-01" })
		if err := a.Join(t.Context(), m, "a-token"); err != nil {
			t.Fatal(err)
		}
		last, certified := h.lastRegistration()
		if last.GetMember() != "gce-eu" || last.GetToken() != "a-token" || last.GetIdentity().GetProject() != "p" || last.GetRegion() != "eu" {
			t.Errorf("asked with %v", last)
		}
		if !certified {
			t.Error("the call showed no certificate")
		}
		if a.store.saved() != 1 {
			t.Errorf("%d saves; joining must replace nothing", a.store.saved())
		}
		h.set(func(h *hub) { h.speaksAs = "west-01" })
		if err := a.Join(t.Context(), m, ""); !errors.Is(err, enroll.ErrRefused) {
			t.Errorf("the member is another agent's: %v, want ErrRefused", err)
		}
		h.set(func(h *hub) {
			h.refuse = connect.NewError(connect.CodeFailedPrecondition, "run shoalctl member accept gce-eu")
		})
		if err := a.Join(t.Context(), m, ""); err == nil || errors.Is(err, enroll.ErrRefused) || !strings.Contains(err.Error(), "shoalctl member accept gce-eu") {
			t.Errorf("waiting for a person: %v", err)
		}
	})
}
