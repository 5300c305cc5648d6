package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
	"github.com/shoal-dev/shoal/test/harness"
)

// tellLeases leases over every protocol, and fetches pages through what was leased, exactly as returned.
func tellLeases(t *testing.T, s *story) {
	t.Run("REST", func(t *testing.T) {
		// No Content-Type of JSON, as curl -d sends it.
		lease := s.acquire(t, fmt.Sprintf(`{"fleet":"crawl/news","target":%q,"ttl":"600s"}`, s.Target))[0]
		s.usable(t, lease)
		s.release(t, lease)
	})
	t.Run("ConnectJSON", func(t *testing.T) {
		reply, err := s.crawler.Curl(t.Context(), http.MethodPost, leasev1connect.LeaseServiceAcquireProcedure,
			fmt.Sprintf(`{"fleet":"crawl/news","target":%q}`, s.Target), "--header", "Content-Type: application/json")
		if err != nil {
			t.Fatal(err)
		}
		if reply.Status != http.StatusOK {
			t.Fatal(reply)
		}
		var answer harness.Leases
		if err := reply.JSON(&answer); err != nil || len(answer.Leases) != 1 {
			t.Fatalf("%d leases, %v", len(answer.Leases), err)
		}
		s.keep(answer.Leases...)
		s.usable(t, answer.Leases[0])
		s.release(t, answer.Leases[0])
	})
	t.Run("GRPC", func(t *testing.T) {
		crawler, done, err := s.crawler.GRPC()
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		answer, err := crawler.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", Count: proto.Int32(2)})
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.GetLeases()) != 2 {
			t.Fatalf("%d leases, not 2", len(answer.GetLeases()))
		}
		for _, l := range answer.GetLeases() {
			lease := harness.Lease{
				LeaseID: l.GetLeaseId(), ProxyID: l.GetProxyId(), Fleet: l.GetFleet(), Exit: l.GetExit(), Network: l.GetNetwork(),
				ProxyURL: l.GetProxyUrl(), Server: l.GetServer(), Username: l.GetUsername(), Password: l.GetPassword(),
				TTLSeconds: int(l.GetTtlSeconds()),
			}
			s.keep(lease)
			s.usable(t, lease)
			if _, err := crawler.Release(t.Context(), &leasev1.ReleaseRequest{LeaseId: l.GetLeaseId()}); err != nil {
				t.Error(err)
			}
		}
	})
}

// usable fetches pages through a lease: plain HTTP, and HTTPS over CONNECT. What the target saw must be the lease's exit,
// which is the node's address.
func (s *story) usable(t *testing.T, l harness.Lease) {
	t.Helper()
	_, m, err := s.findProxy(t.Context(), l.ProxyID)
	if err != nil {
		t.Fatalf("lease %s: %v", l.LeaseID, err)
	}
	if l.Exit != m.NodeIPs[0].String() {
		t.Errorf("lease %s has exit %s; its proxy is on %s, whose node has %s", l.LeaseID, l.Exit, m.Name, m.NodeIPs[0])
	}
	if l.TTLSeconds != 600 || l.Network != "HostPort" {
		t.Errorf("lease %s has ttlSeconds %d and network %q, not 600 and HostPort", l.LeaseID, l.TTLSeconds, l.Network)
	}
	for _, scheme := range []string{"http", "https"} {
		path := fmt.Sprintf("/%s/%s", scheme, l.LeaseID)
		seen, err := s.Fetch(t.Context(), l.ProxyURL, scheme, path)
		switch {
		case err != nil:
			t.Errorf("lease %s: %v", l.LeaseID, err)
			continue
		case seen.RemoteIP != l.Exit:
			t.Errorf("over %s the target saw %s, the lease's exit is %s", scheme, seen.RemoteIP, l.Exit)
		case seen.Path != path || seen.TLS != (scheme == "https"):
			t.Errorf("over %s the target saw path %s and TLS %t", scheme, seen.Path, seen.TLS)
		}
		// Nothing tells the target of a proxy.
		for _, name := range []string{"Via", "X-Forwarded-For", "Forwarded", "Proxy-Authorization", "Proxy-Connection", "Cache-Control"} {
			if value := seen.Header.Get(name); value != "" {
				t.Errorf("over %s the target was sent %s: %s", scheme, name, strings.ReplaceAll(value, l.Password, "…"))
			}
		}
	}
}

// tellProxyRefuses tries what a proxy must never do.
func tellProxyRefuses(t *testing.T, s *story) {
	leases := s.acquire(t, `{"fleet":"crawl/news","count":2}`)
	if len(leases) != 2 || leases[0].ProxyID == leases[1].ProxyID {
		t.Fatalf("want 2 leases on proxies of their own, have %d", len(leases))
	}
	defer s.release(t, leases...)
	lease := leases[0]
	_, m, err := s.findProxy(t.Context(), lease.ProxyID)
	if err != nil {
		t.Fatal(err)
	}
	other := s.Members[0]
	if other == m {
		other = s.Members[1]
	}
	pod, err := s.podOf(t.Context(), m, lease.ProxyID)
	if err != nil {
		t.Fatal(err)
	}

	target := s.Target.String()
	flipped := []byte(lease.Password)
	flipped[len(flipped)/2] ^= 1
	if c := flipped[len(flipped)/2]; !strings.ContainsRune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-", rune(c)) {
		flipped[len(flipped)/2] = 'A'
	}
	for name, test := range map[string]struct {
		user, password string
	}{
		"NoCredentials":    {"", ""},
		"WrongPassword":    {lease.Username, "wrong"},
		"ChangedPassword":  {lease.Username, string(flipped)},
		"OfAnotherProxy":   {leases[1].Username, leases[1].Password},
		"APITokenInstead":  {"e2e", "shoal_0000000000_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},
		"PasswordSwitched": {lease.Password, lease.Username},
	} {
		t.Run("407/"+name, func(t *testing.T) {
			proxy := url.URL{Scheme: "http", Host: lease.HostPort()}
			if test.user != "" {
				proxy.User = url.UserPassword(test.user, test.password)
			}
			for _, scheme := range []string{"http", "https"} {
				reply, err := harness.Curl(t.Context(), "--insecure", "--proxy", proxy.String(), scheme+"://"+target+"/")
				if err != nil {
					t.Fatal(err)
				}
				if got := proxyStatus(reply, scheme); got != http.StatusProxyAuthRequired {
					t.Errorf("over %s the proxy answered %d, not 407: %s", scheme, got, reply)
				}
			}
		})
	}

	const destination, policy = "ERR_SHOAL_DST", "ERR_SHOAL_POLICY"
	for name, test := range map[string]struct {
		host, says string
	}{
		"Metadata":       {"169.254.169.254", destination},
		"OwnPod":         {pod.Status.PodIP, destination},
		"PodRange":       {m.Pods.Addr().Next().Next().String(), destination},
		"ServiceRange":   {m.Services.Addr().Next().String(), destination},
		"NodeAddress":    {m.NodeIPs[0].String(), destination},
		"OtherMember":    {other.NodeIPs[0].String(), destination},
		"Loopback":       {"127.0.0.1", destination},
		"KubernetesName": {"kubernetes.default.svc", policy},
		"SingleName":     {"kubernetes", policy},
	} {
		t.Run("403/"+name, func(t *testing.T) {
			for _, scheme := range []string{"http", "https"} {
				reply, err := harness.Curl(t.Context(), "--insecure", "--proxy", lease.ProxyURL, scheme+"://"+test.host+"/")
				if err != nil {
					t.Fatal(err)
				}
				if got := proxyStatus(reply, scheme); got != http.StatusForbidden {
					t.Errorf("over %s the proxy answered %d for %s, not 403: %s", scheme, got, test.host, reply)
				}
				// curl shows the headers of a refused CONNECT to nobody.
				if header := reply.Header.Get("X-Squid-Error"); scheme == "http" && !strings.HasPrefix(header, test.says) {
					t.Errorf("the refusal of %s says %q, not %s", test.host, header, test.says)
				}
			}
		})
	}
	// What is refused must be refused for what it is, not because nothing works.
	s.usable(t, harness.Lease{
		LeaseID: lease.LeaseID, ProxyID: lease.ProxyID, Exit: lease.Exit, Network: lease.Network, TTLSeconds: lease.TTLSeconds,
		ProxyURL: lease.ProxyURL, Password: lease.Password,
	})
}

// proxyStatus is what the proxy itself answered: to CONNECT with https.
func proxyStatus(r harness.Reply, scheme string) int {
	if scheme == "https" {
		return r.Connect
	}
	return r.Status
}

// tellExclusive takes the one proxy of a fleet for one alone, and gives it back.
func tellExclusive(t *testing.T, s *story) {
	const exclusive = `{"fleet":"crawl/solo","exclusive":true,"ttl":"300s"}`
	first := s.acquire(t, exclusive)[0]
	for name, body := range map[string]string{"SecondExclusive": exclusive, "SecondShared": `{"fleet":"crawl/solo"}`} {
		t.Run(name, func(t *testing.T) {
			reply, err := s.crawler.Curl(t.Context(), http.MethodPost, "/v1/leases", body)
			if err != nil {
				t.Fatal(err)
			}
			var refusal harness.Refusal
			if err := reply.JSON(&refusal); err != nil {
				t.Fatal(err)
			}
			if reply.Status != http.StatusTooManyRequests || refusal.Reason != "NO_CAPACITY" || refusal.Code != "resource_exhausted" {
				t.Errorf("want 429, resource_exhausted, NO_CAPACITY: %s", reply)
			}
			after, err := time.ParseDuration(refusal.RetryAfter)
			if err != nil || after <= 0 || after > 300*time.Second {
				t.Errorf("retryAfter is %q; the lease ends within 300s", refusal.RetryAfter)
			}
			header, err := strconv.Atoi(reply.Header.Get("Retry-After"))
			if err != nil || header < 1 || header > 300 {
				t.Errorf("Retry-After is %q; the lease ends within 300s", reply.Header.Get("Retry-After"))
			}
			if !strings.Contains(refusal.Message, "crawl/solo") {
				t.Errorf("the message names no fleet: %s", refusal.Message)
			}
		})
	}
	s.release(t, first)
	// At once: nothing is left of the first.
	second := s.acquire(t, exclusive)[0]
	if second.ProxyID != first.ProxyID || second.LeaseID == first.LeaseID {
		t.Errorf("the second lease is %s on %s, after %s on %s", second.LeaseID, second.ProxyID, first.LeaseID, first.ProxyID)
	}
	s.release(t, second, second) // twice is no error
}
