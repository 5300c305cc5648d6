package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/test/harness"
)

// stranger is an agent that the test plays itself.
const stranger = "stranger"

var strangerIdentity = &agentv1.MemberIdentity{ClusterUid: "5e000000-0000-4000-8000-000000000001", Namespace: harness.Namespace}

// tellMembership plays an agent: what it may not do is refused, with words that say what to do.
func tellMembership(t *testing.T, s *story) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	token, err := s.NewJoinToken(t.Context(), stranger)
	if err != nil {
		t.Fatal(err)
	}
	s.secret("a join token", token)
	register := func(token, member string) (*agentv1.RegisterResponse, error) {
		return s.agents(t).Register(t.Context(), &agentv1.RegisterRequest{
			Token: token, Csr: csr, Member: member, Identity: strangerIdentity, AgentVersion: "e2e",
		})
	}

	t.Run("WrongToken", func(t *testing.T) {
		id, _, _ := strings.Cut(token, ".")
		for _, wrong := range []string{"", "wrong", id + "." + strings.Repeat("a", len(token)-len(id)-1)} {
			_, err := register(wrong, stranger)
			wantCode(t, err, connect.CodeUnauthenticated, "shoalctl member join-token")
		}
		s.noMember(t, stranger)
	})
	t.Run("TokenOfAnotherMember", func(t *testing.T) {
		_, err := register(token, "east")
		wantCode(t, err, connect.CodePermissionDenied, "east")
		s.noMember(t, stranger)
	})
	t.Run("NotAccepted", func(t *testing.T) {
		_, err := register(token, stranger)
		wantCode(t, err, connect.CodeFailedPrecondition, `member "stranger" waits to be accepted`, "kubectl patch membercluster stranger")
		var m v1alpha1.MemberCluster
		if err := s.Hub.Client.Get(t.Context(), client.ObjectKey{Name: stranger}, &m); err != nil {
			t.Fatal(err)
		}
		if m.Spec.Accepted || m.Spec.AgentRef != nil || m.Status.Identity != nil {
			t.Errorf("a member that waits has accepted %t, agentRef %v and identity %v", m.Spec.Accepted, m.Spec.AgentRef, m.Status.Identity)
		}
	})
	t.Run("SessionWithoutCertificate", func(t *testing.T) {
		wantCode(t, s.session(t, stranger), connect.CodeUnauthenticated, "certificate")
	})
	t.Run("SessionWhileNotAccepted", func(t *testing.T) {
		if _, err := s.Ctl(t.Context(), "member", "accept", stranger); err != nil {
			t.Fatal(err)
		}
		response, err := register(token, stranger)
		if err != nil {
			t.Fatalf("an accepted member with a good token: %v", err)
		}
		certificate := chain(t, response.GetCertificateChain(), key)
		// Accepted, it may speak for itself and for nobody else.
		wantCode(t, s.session(t, "east", certificate), connect.CodePermissionDenied, `does not speak for member "east"`)
		if _, err := s.Hub.Kubectl(t.Context(), "patch", "membercluster", stranger, "--type", "merge", "--patch", `{"spec":{"accepted":false}}`); err != nil {
			t.Fatal(err)
		}
		harness.Eventually(t, 10*time.Second, "a session of a member that is no longer accepted is refused", func(context.Context) error {
			err := s.session(t, stranger, certificate)
			if connect.CodeOf(err) != connect.CodeFailedPrecondition {
				return fmt.Errorf("the hub said: %w", err)
			}
			wantCode(t, err, connect.CodeFailedPrecondition, "waits to be accepted", "kubectl patch membercluster stranger")
			return nil
		})
	})
	if _, err := s.Hub.Kubectl(t.Context(), "delete", "membercluster", stranger, "--timeout=30s"); err != nil {
		t.Error(err)
	}
}

// agents returns a client of the agents' listener. It does not check the hub's certificate: what is tried here is what
// the hub takes.
func (s *story) agents(t *testing.T, certificates ...tls.Certificate) agentv1connect.AgentServiceClient {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates, MinVersion: tls.VersionTLS12},
		Protocols:       protocols,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return agentv1connect.NewAgentServiceClient(connect.NewClient(connecthttp.NewTransport(&http.Client{Transport: transport}, s.AgentsURL)))
}

// session says Hello for a member and returns the hub's refusal. A Welcome is an error too, of no code.
func (s *story) session(t *testing.T, member string, certificates ...tls.Certificate) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	stream, err := s.agents(t, certificates...).Session(ctx)
	if err != nil {
		return err
	}
	defer stream.Close()
	hello := &agentv1.Frame{Kind: &agentv1.Frame_Hello{Hello: &agentv1.Hello{
		Member: member, Identity: strangerIdentity, Instance: "e2e", AgentVersion: "e2e",
	}}}
	if err := stream.Send(&agentv1.SessionRequest{Frame: hello}); err != nil && connect.CodeOf(err) != connect.CodeUnknown {
		return err
	}
	answer, err := stream.Receive()
	if err == nil {
		return fmt.Errorf("the hub let %s in with %T", member, answer.GetFrame().GetKind())
	}
	return err
}

func wantCode(t *testing.T, err error, code connect.Code, parts ...string) {
	t.Helper()
	var refused *connect.Error
	if !errors.As(err, &refused) || refused.Code() != code {
		t.Errorf("want %s, got %v", code, err)
		return
	}
	says(t, refused.Message(), parts...)
}

func (s *story) noMember(t *testing.T, name string) {
	t.Helper()
	if err := s.Hub.Client.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.MemberCluster{}); !apierrors.IsNotFound(err) {
		t.Errorf("a refused registration has left MemberCluster %s (%v)", name, err)
	}
}

func chain(t *testing.T, text []byte, key *ecdsa.PrivateKey) tls.Certificate {
	t.Helper()
	certificate := tls.Certificate{PrivateKey: key}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		certificate.Certificate = append(certificate.Certificate, block.Bytes)
	}
	if len(certificate.Certificate) == 0 {
		t.Fatal("the hub gave no certificate")
	}
	return certificate
}
