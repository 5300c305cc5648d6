package hub_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey/valkeytest"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// several are hubs on one journal, whose fleet has one proxy of ten slots that an earlier hub wrote down.
type several struct {
	t         *testing.T
	namespace string
	server    *valkeytest.Server
	roots     *x509.CertPool
	bearer    string
}

func newSeveral(t *testing.T) *several {
	t.Helper()
	s := &several{t: t, namespace: server.Namespace(t, "hub-"), server: valkeytest.Start(t)}
	fleet := &v1alpha1.ProxyFleet{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "news"}}
	fleet.Spec.Template = &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}}
	member := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: "east-" + s.namespace}, Spec: v1alpha1.MemberClusterSpec{Accepted: true}}
	token, text, err := identity.NewAPIToken(time.Now(), "tester", []string{s.namespace + "/*"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	s.bearer = text.Reveal()
	for _, object := range []client.Object{fleet, member, token.Secret(s.namespace)} {
		if err := server.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = server.Client.Delete(t.Context(), member) })
	id, _, err := identity.EnsureHub(t.Context(), server.Client, s.namespace, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s.roots = id.Authority().Pool()

	now := time.Now()
	journal, err := valkey.Open(t.Context(), valkey.Options{
		Server: valkey.Server{Addresses: []string{s.server.Address}}, Owner: id.UID(), Now: now.Add(-time.Minute), New: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	engine := lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: journal.Epoch(), HistoryComplete: true})
	for _, cmd := range []lease.Command{
		lease.SetFleet{Fleet: lease.Fleet{ID: lease.FleetID(s.namespace + "/news"), Created: fleet.CreationTimestamp.Time, Policy: lease.Policy{MaxLeasesPerProxy: 10}}},
		lease.Touch{ID: lease.MemberID(member.Name)},
		lease.UpsertProxy{Proxy: lease.Proxy{
			UID: "px-1", Fleet: lease.FleetID(s.namespace + "/news"), Member: lease.MemberID(member.Name), Ready: true,
			Exits:     []netip.Addr{netip.MustParseAddr("203.0.113.1")},
			Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "203.0.113.1", Port: 3128}},
		}},
	} {
		out, err := engine.Step(now, cmd)
		if err == nil {
			err = journal.Append(t.Context(), out.Records)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// hub starts a hub in a pod, over ways that can be cut.
func (s *several) hub(pod string) (*running, *ways) {
	s.t.Helper()
	err := server.Client.Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: pod},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "hub", Image: "hub"}}},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	w := newWays(s.t, s.server.Address)
	return startHub(s.t, s.namespace, func(c *hub.Config) {
		c.LeaderElection, c.LeaderLease = true, 6*time.Second
		c.PodName = pod
		c.JournalType, c.Valkey.Addresses = hub.JournalValkey, []string{w.address}
		c.RestConfig = rest.CopyConfig(c.RestConfig)
		c.RestConfig.Wrap(func(inner http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				if w.cut.Load() {
					return nil, errors.New("the way is cut")
				}
				return inner.RoundTrip(req)
			})
		})
	}), w
}

// post calls a hub's lease service.
func (s *several) post(r *running, path string, request any) (int, http.Header, string) {
	s.t.Helper()
	body, err := json.Marshal(request)
	if err != nil {
		s.t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, "https://"+r.leases+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+s.bearer)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: 5 * time.Second}).Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return resp.StatusCode, resp.Header, string(answer)
}

// acquire leases once it can, and returns the lease's id.
func (s *several) acquire(r *running, request string) string {
	s.t.Helper()
	var id string
	eventually(s.t, "a lease is granted", func() string {
		status, _, body := s.post(r, "/v1/leases", map[string]string{"fleet": s.namespace + "/news", "target": "www.example.com", "requestId": request})
		var answer struct{ Leases []struct{ LeaseID string } }
		if status != http.StatusOK || json.Unmarshal([]byte(body), &answer) != nil || len(answer.Leases) != 1 {
			return fmt.Sprint(status, " ", body)
		}
		id = answer.Leases[0].LeaseID
		return ""
	})
	return id
}

func (s *several) renew(r *running, id string) {
	s.t.Helper()
	eventually(s.t, "the lease is renewed", func() string {
		if status, _, body := s.post(r, "/v1/leases/"+id+":renew", struct{}{}); status != http.StatusOK {
			return fmt.Sprint(status, " ", body)
		}
		return ""
	})
}

// labelled checks which pod Services lead to.
func (s *several) labelled(pod string) {
	s.t.Helper()
	eventually(s.t, pod+" alone has the label", func() string {
		var pods corev1.PodList
		if err := server.Client.List(s.t.Context(), &pods, client.InNamespace(s.namespace), client.MatchingLabels{hub.LabelLeader: "true"}); err != nil {
			return err.Error()
		}
		if len(pods.Items) != 1 || pods.Items[0].Name != pod {
			return fmt.Sprintf("%d pods have it", len(pods.Items))
		}
		return ""
	})
}

// TestTakeover has three hubs on one journal. The first stops, the second is cut off from everything as if its machine had
// gone: each time the next one answers for leases that the one before granted, and grants from the journaled inventory.
func TestTakeover(t *testing.T) {
	s := newSeveral(t)
	first, _ := s.hub("hub-a")
	first.awaitReady()
	s.labelled("hub-a")
	id := s.acquire(first, "one")

	second, secondWays := s.hub("hub-b")
	second.awaitReady() // a hub that stands by is ready
	status, header, body := s.post(second, "/v1/leases", map[string]string{"fleet": s.namespace + "/news", "target": "www.example.com"})
	var refusal struct{ Code, RetryAfter string }
	if err := json.Unmarshal([]byte(body), &refusal); err != nil || status != http.StatusServiceUnavailable || refusal.Code != "unavailable" ||
		refusal.RetryAfter == "" || header.Get("Retry-After") == "" {
		t.Errorf("a hub that stands by answers %d %v %s", status, header, body)
	}
	if status, _ := get(t, "https://"+second.echo+"/", s.roots, nil); status != http.StatusOK {
		t.Errorf("its echo answers %d", status)
	}

	begin := time.Now()
	first.stop()
	s.renew(second, id)
	s.acquire(second, "two")
	report("takeover_graceful", time.Since(begin), 3*time.Second)
	if again := s.acquire(second, "one"); again != id {
		t.Errorf("a request that is sent again gets lease %s, and had %s", again, id)
	}
	s.labelled("hub-b")
	first.stopNow()

	third, _ := s.hub("hub-c")
	third.awaitReady()
	begin = time.Now()
	secondWays.sever()
	s.renew(third, id)
	s.acquire(third, "three")
	report("takeover", time.Since(begin), 10*time.Second)
	s.labelled("hub-c")
	select {
	case err := <-second.done:
		if err == nil {
			t.Error("the hub that was cut off ends without an error")
		}
	case <-time.After(30 * time.Second):
		t.Error("the hub that was cut off does not end")
	}
	third.stopNow()
}

// report prints a figure against its bar.
func report(name string, took, bar time.Duration) {
	fmt.Fprintf(os.Stdout, "\nBENCH %s %.2f s %.2f\n", name, took.Seconds(), took.Seconds()/bar.Seconds())
}

// TestDeposedHubEnds takes the fence from under a hub that does not notice: its next append fails, and it ends.
func TestDeposedHubEnds(t *testing.T) {
	s := newSeveral(t)
	r, _ := s.hub("hub-a")
	r.awaitReady()
	id := s.acquire(r, "one")
	thief, err := valkey.Open(t.Context(), valkey.Options{
		Server: valkey.Server{Addresses: []string{s.server.Address}}, Owner: readIdentity(t, server.Client, s.namespace).UID(), Now: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer thief.Close()
	if status, _, body := s.post(r, "/v1/leases/"+id+":renew", struct{}{}); status == http.StatusOK {
		t.Errorf("it renews: %s", body)
	}
	var deposed *valkey.Deposed
	select {
	case err := <-r.done:
		if !errors.As(err, &deposed) {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("it does not end")
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// ways lead a hub to its API server and its journal until they are cut.
type ways struct {
	address string
	cut     atomic.Bool
	mu      sync.Mutex
	conns   []net.Conn
}

func newWays(t *testing.T, target string) *ways {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	w := &ways{address: listener.Addr().String()}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("unix", target)
			if err != nil || w.cut.Load() {
				_ = conn.Close()
				continue
			}
			w.mu.Lock()
			w.conns = append(w.conns, conn, there)
			w.mu.Unlock()
			go func() { defer conn.Close(); _, _ = io.Copy(there, conn); _ = there.Close() }()
			go func() { defer there.Close(); _, _ = io.Copy(conn, there); _ = conn.Close() }()
		}
	}()
	return w
}

func (w *ways) sever() {
	w.cut.Store(true)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close()
	}
}
