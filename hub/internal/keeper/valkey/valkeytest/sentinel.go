package valkeytest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// StartSentinel starts a sentinel that watches a primary under a name. One is enough to decide.
func StartSentinel(tb testing.TB, name string, primary *Server) *Server {
	tb.Helper()
	dir, err := os.MkdirTemp("", "valkey-")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, dir: dir, Address: filepath.Join(dir, "s"), TCP: freeAddress(tb)}
	tb.Cleanup(func() {
		s.Kill()
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	host, port, err := net.SplitHostPort(s.TCP)
	if err != nil {
		tb.Fatal(err)
	}
	watched, watchedPort, err := net.SplitHostPort(primary.TCP)
	if err != nil {
		tb.Fatal(err)
	}
	config := filepath.Join(dir, "sentinel.conf") // it is written to
	text := fmt.Sprintf("bind %s\nport %s\nunixsocket %s\ndir %s\nsentinel monitor %s %s %s 1\nsentinel down-after-milliseconds %s 500\nsentinel failover-timeout %s 5000\n",
		host, port, s.Address, dir, name, watched, watchedPort, name, name)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	s.args = []string{config, "--sentinel"}
	s.Run()
	return s
}

// Failover has the sentinel let a replica take over, as soon as it knows one that could.
func (s *Server) Failover(name string) {
	s.tb.Helper()
	s.poll("the sentinel does not find a replica that could take over", func() bool {
		return s.Do("SENTINEL", "FAILOVER", name).Error() == nil
	})
}

// Leads waits until the sentinel leads to a server.
func (s *Server) Leads(name string, primary *Server) {
	s.tb.Helper()
	s.poll("the replica does not take over", func() bool {
		found, err := s.Do("SENTINEL", "GET-MASTER-ADDR-BY-NAME", name).AsStrSlice()
		return err == nil && len(found) == 2 && net.JoinHostPort(found[0], found[1]) == primary.TCP
	})
}

// Demoted waits until the server is a replica.
func (s *Server) Demoted() {
	s.tb.Helper()
	s.poll("the server stays a primary", func() bool {
		role, err := s.Do("ROLE").ToArray()
		if err != nil || len(role) == 0 {
			return false
		}
		kind, err := role[0].ToString()
		return err == nil && kind == "slave"
	})
}

func (s *Server) poll(what string, done func() bool) {
	s.tb.Helper()
	tick := wall.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range 1500 {
		if done() {
			return
		}
		<-tick.C()
	}
	s.tb.Fatal(what)
}
