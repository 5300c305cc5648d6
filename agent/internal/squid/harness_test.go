package squid_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/proto/credential"
)

// squidUser is the user that Debian's squid runs as, in the image as well; Squid started by root would change to it.
const squidUser = 13

// running is a Squid in the foreground, on loopback.
type running struct {
	addr string
	log  <-chan string // access log lines
	stop func()        // ends it, once; the end of the test does as well
}

// logLine is what the tests read of an access log line.
type logLine struct {
	User      string `json:"user"`
	Principal string `json:"principal"`
	Method    string `json:"method"`
	Status    int    `json:"status"`
}

// startSquid runs the real program with a rendered configuration, and with lines that a test adds to break something,
// and returns once it accepts connections.
func startSquid(t *testing.T, dir string, c squid.Config, added ...string) running {
	t.Helper()
	text, err := squid.Render(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range added {
		text = append(text, line+"\n"...)
	}
	path := filepath.Join(dir, fmt.Sprintf("squid-%d.conf", c.Port))
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	cmd := exec.CommandContext(ctx, squidProgram(t), "-N", "-f", path)
	cmd.Dir = "/"
	stdout, stdoutW := pipe(t)
	stderr, stderrW := pipe(t)
	cmd.Stdout, cmd.Stderr = stdoutW, stderrW
	if os.Getuid() == 0 {
		// As in the image. Squid opens /dev/stdout by name, so the pipes must belong to the user that it runs as.
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: squidUser, Gid: squidUser}}
		for _, f := range []*os.File{stdoutW, stderrW} {
			if err := f.Chown(squidUser, squidUser); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stdoutW.Close()
	stderrW.Close()
	var drained chan struct{} // closed once all that Squid said has been looked at
	end := sync.OnceFunc(func() {
		// SIGINT ends Squid at once; SIGTERM would wait for its shutdown lifetime.
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("stopping squid: %v", err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("squid ended with %v", err)
		}
		cancel()
		if drained != nil {
			<-drained
		}
	})
	t.Cleanup(end)

	messages, said := lines(stderr), []string(nil)
	for line := range messages {
		said = append(said, line)
		if strings.Contains(line, "Accepting HTTP Socket connections") {
			done := make(chan struct{})
			go func() {
				defer close(done)
				for line := range messages {
					if strings.Contains(line, "ERROR") || strings.Contains(line, "FATAL") || strings.Contains(line, "from-helper annotation") {
						t.Errorf("squid says: %s", line)
					}
				}
			}()
			drained = done
			addr := fmt.Sprintf("127.0.0.1:%d", c.Port)
			awaitListener(t, addr)
			return running{addr: addr, log: lines(stdout), stop: end}
		}
	}
	t.Fatalf("squid did not begin to listen; it said:\n%s", strings.Join(said, "\n"))
	return running{}
}

// awaitListener waits until somebody listens: Squid says that it accepts connections a moment before it does.
func awaitListener(t *testing.T, addr string) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for timeout := time.After(20 * time.Second); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("squid does not listen: %v", err)
		}
	}
}

func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func lines(r io.Reader) <-chan string {
	out := make(chan string, 1024)
	go func() {
		defer close(out)
		for s := bufio.NewScanner(r); s.Scan(); {
			out <- s.Text()
		}
	}()
	return out
}

// nextLog returns the next access log line.
func (r running) nextLog(t *testing.T) logLine {
	t.Helper()
	select {
	case text := <-r.log:
		var line logLine
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("log line %q: %v", text, err)
		}
		return line
	case <-time.After(10 * time.Second):
		t.Fatal("no log line")
	}
	return logLine{}
}

// reply is how Squid answered a CONNECT.
type reply struct {
	status int
	err    string // the first word of X-Squid-Error
	conn   net.Conn
}

func basic(user, pass string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass))
}

// connect asks for a tunnel. An empty authorization sends none.
func (r running) connect(t *testing.T, target, authorization string) reply {
	t.Helper()
	conn, err := net.DialTimeout("tcp", r.addr, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if authorization != "" {
		request += "Proxy-Authorization: " + authorization + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatalf("CONNECT %s: %v", target, err)
	}
	resp.Body.Close()
	name, _, _ := strings.Cut(resp.Header.Get("X-Squid-Error"), " ")
	return reply{status: resp.StatusCode, err: name, conn: conn}
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

// buildHelper compiles shoal-auth as the image does.
func buildHelper(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "shoal-auth")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/shoal-dev/shoal/agent/cmd/shoal-auth")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building shoal-auth: %v\n%s", err, out)
	}
	return path
}

// worldReadable returns a directory that the squid user can read.
func worldReadable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shoal-squid-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newSigner(t *testing.T, name string, use credential.Use) *credential.Signer {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	s, err := credential.NewSigner(credential.SignerOptions{Key: ed25519.NewKeyFromSeed(seed[:]), Use: use, Window: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
