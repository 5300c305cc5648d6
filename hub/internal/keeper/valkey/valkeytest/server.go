// Package valkeytest runs real servers for tests of what lives on one: Debian's redis-server, or valkey-server.
package valkeytest

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"k8s.io/utils/clock"
)

// wall is the clock that servers of another process go by.
var wall clock.RealClock

// Server is a server with a directory of its own, which lives until the test ends.
type Server struct {
	// Address is its socket, and TCP its address on the loopback interface.
	Address, TCP string

	tb   testing.TB
	dir  string
	args []string
	cmd  *exec.Cmd
}

// program finds the server's program.
func program(tb testing.TB) string {
	tb.Helper()
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Fatal("this test needs a Valkey or Redis server: apt-get install redis-server, or run hack/packages redis-server")
	return ""
}

// Start starts a server that is fit for a journal, with further settings in pairs, as in "maxmemory", "8mb".
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "valkey-") // a socket's path must be short
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, dir: dir, Address: filepath.Join(dir, "s"), TCP: freeAddress(tb)}
	host, port, err := net.SplitHostPort(s.TCP)
	if err != nil {
		tb.Fatal(err)
	}
	s.args = []string{
		"--bind", host, "--port", port, "--unixsocket", s.Address, "--dir", dir, "--save", "", "--appendonly", "yes", "--appendfsync", "always",
		"--maxmemory-policy", "noeviction", "--repl-diskless-sync-delay", "0", "--replica-announce-ip", host, "--repl-ping-replica-period", "1", "--enable-debug-command", "yes",
	}
	for i := 0; i+1 < len(settings); i += 2 {
		s.args = append(s.args, "--"+settings[i], settings[i+1])
	}
	tb.Cleanup(func() {
		s.Kill()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	s.Run()
	return s
}

// Loopback addresses of a test process are its own: several may run at once.
func freeAddress(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.%d:0", 1+os.Getpid()>>16&127, os.Getpid()>>8&255, os.Getpid()&255))
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// Run starts the server again after Kill, and waits until it answers.
func (s *Server) Run() {
	s.tb.Helper()
	s.cmd = exec.Command(program(s.tb), s.args...) //nolint:noctx // Kill ends it
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer log.Close()
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// It must not outlive a test that is killed.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.tb.Fatal(err)
	}
	s.await()
}

// await polls until the server has loaded its data.
func (s *Server) await() {
	s.tb.Helper()
	tick := wall.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		client, err := s.client()
		if answer, refused := rueidis.IsRedisErr(err); refused && !answer.IsLoading() {
			return // it wants a password
		}
		if err == nil {
			err = client.Do(context.Background(), client.B().Ping().Build()).Error()
			client.Close()
			if answer, refused := rueidis.IsRedisErr(err); err == nil || refused && !answer.IsLoading() {
				return
			}
		}
		<-tick.C()
	}
	log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // empty says enough
	s.tb.Fatalf("the server does not answer:\n%s", log)
}

// Kill ends the server at once, as a crash does.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
	s.cmd = nil
}

// Pause stops the server's process, and Resume lets it go on.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(signal); err != nil {
		s.tb.Fatal(err)
	}
}

func (s *Server) client() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Address}, ForceSingleClient: true, DisableCache: true, DisableRetry: true, AlwaysRESP2: true,
		PipelineMultiplex: -1, ConnWriteTimeout: 5 * time.Second,
		DialCtxFn: func(ctx context.Context, path string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		},
	})
}

// Do sends a command and returns the answer.
func (s *Server) Do(args ...string) rueidis.RedisResult {
	s.tb.Helper()
	client, err := s.client()
	if err != nil {
		s.tb.Fatal(err)
	}
	defer client.Close()
	return client.Do(context.Background(), client.B().Arbitrary(args...).Build())
}

// Must sends a command that must succeed.
func (s *Server) Must(args ...string) {
	s.tb.Helper()
	if err := s.Do(args...).Error(); err != nil && !rueidis.IsRedisNil(err) {
		s.tb.Fatalf("%v: %v", args, err)
	}
}

// Follow makes the server a replica of another and waits until it has all of its data.
func (s *Server) Follow(primary *Server) {
	s.tb.Helper()
	host, port, err := net.SplitHostPort(primary.TCP)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.Must("REPLICAOF", host, port)
	s.poll("the replica does not connect", func() bool {
		role, err := s.Do("ROLE").ToArray()
		if err != nil || len(role) != 5 {
			return false
		}
		state, err := role[3].ToString()
		return err == nil && state == "connected"
	})
}

// Port is that of the TCP address.
func (s *Server) Port() int {
	_, port, _ := net.SplitHostPort(s.TCP) // Start has seen to it
	n, _ := strconv.Atoi(port)
	return n
}

// Pipelined is how many entries of size bytes a second the server adds to a stream with one client that sends depth of
// them at once: what a journal on it can be measured by.
func (s *Server) Pipelined(ctx context.Context, size, depth int, rounds int) (perSecond float64, err error) {
	client, err := s.client()
	if err != nil {
		return 0, err
	}
	defer client.Close()
	value := string(make([]byte, size))
	began := wall.Now()
	for range rounds {
		commands := make(rueidis.Commands, 0, depth)
		for range depth {
			commands = append(commands, client.B().Arbitrary("XADD", "pipelined", "*", "r", value).Build())
		}
		for _, answer := range client.DoMulti(ctx, commands...) {
			if err := answer.Error(); err != nil {
				return 0, err
			}
		}
	}
	return float64(rounds*depth) / wall.Since(began).Seconds(), nil
}
