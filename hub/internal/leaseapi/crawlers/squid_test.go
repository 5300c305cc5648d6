package crawlers_test

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/proto/credential"
)

// squidUser is the user that Debian's squid runs as.
const squidUser = 13

// built is where the auth program of Shoal's proxies is, for all tests, or why not.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "shoal-crawlers-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	// The module of the agents, by its place: the hub's does not know it.
	path := filepath.Join(dir, "shoal-auth")
	build := exec.Command("go", "build", "-C", "../../../../agent", "-o", path, "./cmd/shoal-auth")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return path, fmt.Errorf("building shoal-auth: %w\n%s", err, out)
	}
	return path, os.Chmod(dir, 0o755)
})

// builtIn is the directory of it, once there is one.
var builtIn string

func TestMain(m *testing.M) {
	code := m.Run()
	if builtIn != "" {
		os.RemoveAll(builtIn)
	}
	os.Exit(code)
}

func helper(t *testing.T) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// squids is what the Squids of a test share.
type squids struct {
	dir, keys, helper string
}

func newSquids(t *testing.T, key credential.Key) *squids {
	t.Helper()
	// Squid and its helper run as another user, which does not get into the test's own directory.
	dir, err := os.MkdirTemp("", "shoal-crawlers-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &squids{dir: dir, keys: filepath.Join(dir, "keys"), helper: helper(t)}
	keys, err := credential.Marshal([]credential.Key{key}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Chmod(dir, 0o755), os.Mkdir(s.keys, 0o755), os.WriteFile(filepath.Join(s.keys, "keys.json"), keys, 0o644),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// run runs a Squid that lets in who has a lease of the proxy, leaves by the exit, and may go everywhere; it gives its
// port. What a proxy of a fleet refuses is tested where its configuration is made.
func (s *squids) run(t *testing.T, uid string, exit netip.Addr) uint16 {
	t.Helper()
	program, err := exec.LookPath("squid")
	if err != nil {
		t.Fatalf("this test needs Squid: apt-get install squid (%v)", err)
	}
	port := freePort(t)
	conf := filepath.Join(s.dir, fmt.Sprintf("squid-%d.conf", port))
	text := fmt.Sprintf(`http_port 127.0.0.1:%d
tcp_outgoing_address %s
auth_param basic program %s --proxy-uid %s --keys %s
auth_param basic children 1 startup=1 idle=1 concurrency=256
auth_param basic realm shoal
auth_param basic casesensitive on
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all
via off
forwarded_for delete
cache deny all
access_log none
cache_log stdio:/dev/null
pid_filename none
netdb_filename none
coredump_dir none
pinger_enable off
max_filedescriptors 1024
`, port, exit, s.helper, uid, s.keys)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
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
		_ = cmd.Process.Signal(syscall.SIGINT) // SIGTERM would wait for open tunnels.
		<-ended
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	timeout := time.After(time.Minute)
	for {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			conn.Close()
			return port
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

// freePort returns a port that nobody listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}
