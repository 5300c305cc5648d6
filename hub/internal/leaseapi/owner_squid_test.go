package leaseapi_test

import (
	"crypto/md5" //nolint:gosec // as Squid's helper keeps passwords
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

// squidUser is the user that Debian's squid runs as.
const squidUser = 13

// someonesSquid runs a Squid that asks for basic authentication, with none of ours about it, and gives its port.
func someonesSquid(t *testing.T, username, password string) uint16 {
	t.Helper()
	program, err := exec.LookPath("squid")
	if err != nil {
		t.Fatalf("this test needs Squid: apt-get install squid (%v)", err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().(*net.TCPAddr)
	free.Close()
	// The helper runs as another user, which does not get into the test's own directory.
	dir, err := os.MkdirTemp("", "squid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sum := md5.Sum([]byte(password)) //nolint:gosec // as Squid's helper keeps passwords
	users, conf := filepath.Join(dir, "users"), filepath.Join(dir, "squid.conf")
	for path, text := range map[string]string{
		users: username + ":" + hex.EncodeToString(sum[:]) + "\n",
		conf: fmt.Sprintf("http_port %s\nauth_param basic program /usr/lib/squid/basic_ncsa_auth %s\nauth_param basic children 1\n"+
			"acl known proxy_auth REQUIRED\nhttp_access allow known\nhttp_access deny all\ncache deny all\naccess_log none\n"+
			"cache_log stdio:/dev/null\npid_filename none\nnetdb_filename none\ncoredump_dir none\npinger_enable off\n", address, users),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "-N", "-f", conf)
	cmd.Dir = "/"
	var said strings.Builder
	cmd.Stderr = &said
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: squidUser, Gid: squidUser}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(30 * time.Second)
	for {
		conn, err := net.Dial("tcp", address.String())
		if err == nil {
			conn.Close()
			return uint16(address.Port)
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("squid ended with %v: %s", err, said.String())
		case <-timeout:
			t.Fatal("squid does not listen")
		case <-tick.C:
		}
	}
}

// TestLeaseOfSomeonesSquid leases a real Squid that someone else runs and fetches through it, by nothing but what the
// answer holds: with the owner's credentials pages come, and after its owner has changed them those of old answers fail
// while those of new ones work.
func TestLeaseOfSomeonesSquid(t *testing.T) {
	const username, password = "fish@acme", `p@ss: w/rd?#%25+&"пароль`
	port := someonesSquid(t, username, password)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "a page") }))
	t.Cleanup(page.Close)

	given := password
	h := newHub(t, dials{owners: leaseapi.OwnersFunc(func(lease.FleetID, string, uint16) (string, string, bool) { return username, given, true })})
	h.news(t, 0, 2)
	p := newsProxy(0)
	p.Endpoints = []lease.Endpoint{{Network: "External", Host: "127.0.0.1", Port: port}}
	h.do(t, lease.UpsertProxy{Proxy: p})
	rest := h.protocols()["REST"]
	status := func(l *leasev1.Lease) int {
		t.Helper()
		through, err := url.Parse(l.ProxyUrl)
		if err != nil {
			t.Fatal(err)
		}
		transport := &http.Transport{Proxy: http.ProxyURL(through), DisableKeepAlives: true}
		response, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Get(page.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	l := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	if got := status(l); got != http.StatusOK {
		t.Errorf("through %s: %d", l.Server, got)
	}
	// The header for clients that take one.
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Proxy-Authorization", l.ProxyAuthorization)
	plain := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}), DisableKeepAlives: true}
	response, err := plain.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.Errorf("with proxyAuthorization: %d", response.StatusCode)
	}
	given = "wrong"
	other := must(t, rest, newsToken, &leasev1.AcquireRequest{Fleet: "crawl/news"}, &leasev1.AcquireResponse{}).Leases[0]
	if got := status(other); got != http.StatusProxyAuthRequired {
		t.Errorf("with what is not the owner's: %d", got)
	}
	if got := status(l); got != http.StatusOK {
		t.Errorf("the first lease, whose credentials are good: %d", got)
	}
}
