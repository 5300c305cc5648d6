package crash

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1/agentv1connect"
	"github.com/shoal-dev/shoal/proto/session"
	"github.com/shoal-dev/shoal/proto/session/pump"
)

// again is how long a member waits before it calls the next hub; agents wait longer.
const again = 50 * time.Millisecond

// member is a simulated agent of one member: it makes the proxies that the hub wants, at once and for good, and reports
// them over a session, which it begins anew whenever it ends.
type member struct {
	name     string
	identity *agentv1.MemberIdentity
	number   int
	url      func() string // of the hub that leads
	roots    *x509.CertPool
	cert     tls.Certificate

	epoch    uint64
	sequence uint64
	sets     map[string]*v1alpha1.ProxySetSpec
	upserts  map[string]*agentv1.Upsert // of desired items, for what is held
	proxies  map[string][]string        // names by placement

	mu       sync.Mutex
	sessions int
	last     error
}

func newMember(number int, name string, url func() string, roots *x509.CertPool) *member {
	return &member{
		name: name, number: number, url: url, roots: roots,
		identity: &agentv1.MemberIdentity{ClusterUid: "cluster-of-" + name, Namespace: "shoal-agent"},
		sets:     map[string]*v1alpha1.ProxySetSpec{}, upserts: map[string]*agentv1.Upsert{}, proxies: map[string][]string{},
	}
}

// dial returns a client with a connection of its own, and a function that closes it.
func (m *member) dial() (agentv1connect.AgentServiceClient, func()) {
	config := &tls.Config{RootCAs: m.roots, MinVersion: tls.VersionTLS13}
	if m.cert.PrivateKey != nil {
		config.Certificates = []tls.Certificate{m.cert}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	transport := &http.Transport{TLSClientConfig: config, Protocols: protocols}
	wire := connecthttp.NewTransport(&http.Client{Transport: transport}, m.url())
	return agentv1connect.NewAgentServiceClient(connect.NewClient(wire)), transport.CloseIdleConnections
}

// join trades a token for a certificate, as an agent does.
func (m *member) join(t *testing.T, token string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	client, done := m.dial()
	defer done()
	answer, err := client.Register(t.Context(), &agentv1.RegisterRequest{
		Token: token, Csr: csr, Member: m.name, Identity: m.identity, AgentVersion: "v0.0.0-crash", Region: "region-of-" + m.name, Country: "DE",
	})
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	m.cert, err = tls.X509KeyPair(answer.GetCertificateChain(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	if err != nil {
		t.Fatal(err)
	}
}

// run holds sessions until the context ends.
func (m *member) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.converse(ctx)
		m.mu.Lock()
		m.last = err
		m.mu.Unlock()
		wait := time.NewTimer(again)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// converse holds one session.
func (m *member) converse(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, done := m.dial()
	defer done()
	stream, err := client.Session(ctx)
	if err != nil {
		return err
	}
	var held []session.Version
	for uid, u := range m.upserts {
		held = append(held, session.Version{UID: uid, Generation: u.GetGeneration(), Hash: u.GetHash()})
	}
	s := session.NewAgent(time.Now(), session.Config{Known: held}, &agentv1.Hello{
		Member: m.name, Identity: m.identity, Instance: "one", AgentVersion: "v0.0.0-crash", LastEpoch: m.epoch,
		Providers: []string{"default"}, Networks: []string{"PodIP"},
	})
	s.StartAfter(m.sequence)
	m.report(s)
	s.Complete()
	err = pump.Run(ctx, pump.Options{
		Stream: pump.Stream{
			Send: func(f *agentv1.Frame) error { return stream.Send(&agentv1.SessionRequest{Frame: f}) },
			Receive: func() (*agentv1.Frame, error) {
				answer, err := stream.Receive()
				return answer.GetFrame(), err
			},
			StopReceive: func() { cancel(); _ = stream.CloseSend() },
			Abort:       cancel,
		},
		Session: s, Handle: m.handle,
	})
	cancel()
	_ = stream.Close()
	m.sequence, m.epoch = s.Sequence(), max(m.epoch, s.Epoch())
	return err
}

func (m *member) handle(now time.Time, s *session.Session, e session.Event) error {
	switch e := e.(type) {
	case session.Welcomed:
		m.mu.Lock()
		m.sessions++
		m.mu.Unlock()
	case session.Apply:
		spec := &v1alpha1.ProxySetSpec{}
		if err := json.Unmarshal(e.Upsert.GetProxySetSpec(), spec); err != nil {
			return err
		}
		uid := e.Upsert.GetUid()
		m.sets[uid], m.upserts[uid] = spec, e.Upsert
		for n := len(m.proxies[uid]); n < int(spec.Replicas); n++ {
			m.proxies[uid] = append(m.proxies[uid], fmt.Sprintf("px-%s-%02d", m.name, n))
		}
		m.report(s)
		s.Applied(now, uid, e.Upsert.GetSequence(), "")
	case session.Delete:
		// No test of this package deletes anything; were the hub to ask for it, leases would end.
		return fmt.Errorf("the hub wants %s deleted", e.UID)
	}
	return nil
}

// report puts everything there is. Two proxies each share an exit, as pods on a node do.
func (m *member) report(s *session.Session) {
	placements := make([]string, 0, len(m.sets))
	for uid := range m.sets {
		placements = append(placements, uid)
	}
	slices.Sort(placements)
	for _, uid := range placements {
		spec := m.sets[uid]
		count := int32(len(m.proxies[uid]))
		s.Put(&agentv1.Upsert{
			Uid: uid, Generation: 1, Hash: fmt.Sprint(spec.PlacementGeneration, count),
			Body: &agentv1.Upsert_ProxySet{ProxySet: &agentv1.ProxySetReport{
				PlacementUid: uid, PlacementGeneration: spec.PlacementGeneration, Replicas: count, Ready: count,
			}},
		})
		for n, name := range m.proxies[uid] {
			s.Put(&agentv1.Upsert{
				Uid: "uid-of-" + name, Generation: 1, Hash: "1",
				Body: &agentv1.Upsert_Proxy{Proxy: &agentv1.ProxyReport{
					PlacementUid: uid, Name: name, Phase: string(v1alpha1.PhaseReady), Ready: true, ReadyAge: durationpb.New(time.Second),
					Endpoints: []*agentv1.Endpoint{{Network: "PodIP", Host: fmt.Sprintf("10.%d.0.%d", m.number, n+1), Port: 3128}},
					Exits:     []string{fmt.Sprintf("198.51.%d.%d", 100+m.number, n/2+1)},
					CreatedAt: timestamppb.New(time.Unix(1_700_000_000, 0)),
				}},
			})
		}
	}
}
