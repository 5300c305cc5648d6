package engine

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/hoststate"
)

func TestDockers(t *testing.T) {
	ours := []netip.Prefix{netip.MustParsePrefix("172.31.0.0/24")}
	cases := map[string]struct {
		reason, rule string
		want         bool
	}{
		"Jump":      {"a way into Docker's chains", "-A FORWARD -j DOCKER-USER", true},
		"Bridge":    {"about a bridge of Docker's", "-A FORWARD -o br-shoal -j ACCEPT", true},
		"Published": {"a published port's, which names a container", "-A POSTROUTING -s 172.31.0.2/32 -d 172.31.0.2/32 -p tcp -j MASQUERADE", true},
		"Other":     {"somebody else's, about somebody else's addresses", "-A POSTROUTING -s 172.30.0.0/24 -j MASQUERADE", false},
		"Wider":     {"a rule for a range that only contains ours is not about ours", "-A INPUT -s 172.16.0.0/12 -j DROP", false},
		"Plain":     {"an ordinary rule", "-A INPUT -p tcp --dport 22 -j ACCEPT", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := dockers(tc.rule, ours); got != tc.want {
				t.Errorf("%s: dockers(%q) = %v", tc.reason, tc.rule, got)
			}
		})
	}
}

func TestSplitRule(t *testing.T) {
	got := splitRule(`FORWARD -m comment --comment "two words" -j ACCEPT`)
	want := []string{"FORWARD", "-m", "comment", "--comment", "two words", "-j", "ACCEPT"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPoliciesBefore(t *testing.T) {
	before := &hoststate.Snapshot{Rules: []string{
		"iptables-save *filter", "iptables-save :FORWARD DROP", "iptables-save *nat", "iptables-save :OUTPUT ACCEPT",
		"ip6tables-save *filter", "ip6tables-save :INPUT DROP",
	}}
	got := policiesBefore("iptables", before)
	if len(got) != 2 || got["filter FORWARD"] != "DROP" || got["nat OUTPUT"] != "ACCEPT" {
		t.Errorf("got %v", got)
	}
}

func TestDropCapability(t *testing.T) {
	cases := map[string]struct{ reason, in, want string }{
		"Container": {
			"every set loses it, and numbers beyond a float's reach stay exact",
			`{"process":{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"effective":["CAP_SYS_RESOURCE"]}},"n":18446744073709551615}`,
			`{"n":18446744073709551615,"process":{"capabilities":{"bounding":["CAP_CHOWN"],"effective":[]}}}`,
		},
		"Exec": {
			"a process's own description has no process inside",
			`{"args":["sh"],"capabilities":{"bounding":["CAP_SYS_RESOURCE","CAP_KILL"]}}`,
			`{"args":["sh"],"capabilities":{"bounding":["CAP_KILL"]}}`,
		},
		"None": {"an exec without sets stays as it is", `{"args":["sh"]}`, `{"args":["sh"]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			if err := os.WriteFile(path, []byte(tc.in), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := dropCapability(path, "CAP_SYS_RESOURCE"); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != tc.want {
				t.Errorf("%s: got\n%s, want\n%s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestPathsFitASocket(t *testing.T) {
	cases := map[string]struct{ reason, cache, run string }{
		"Short": {"everything lies in the cache", "/home/u/.cache/shoal", "/home/u/.cache/shoal/docker/run"},
		"Long":  {"a socket's path is limited, so the run directory moves", "/home/" + strings.Repeat("u", 80), "/run/shoal-"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := (&Finder{Cache: cache.Dir(tc.cache)}).private()
			if !strings.HasPrefix(p.run, tc.run) {
				t.Errorf("%s: it is %s", tc.reason, p.run)
			}
			if longest := p.execRoot() + "/containerd/containerd-debug.sock.ttrpc"; len(longest) > 107 {
				t.Errorf("%s: %s has %d bytes", tc.reason, longest, len(longest))
			}
		})
	}
}

// After `eval "$(hack/clusters.sh env)"` the first docker in PATH is a link of ours, which is made from what is found.
func TestClientsAreNoLinks(t *testing.T) {
	real, links, loop := t.TempDir(), t.TempDir(), t.TempDir()
	client := filepath.Join(real, "docker")
	if err := os.WriteFile(client, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(client, filepath.Join(links, "docker")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(loop, "docker"), filepath.Join(loop, "docker")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", loop+":"+links+":"+real)
	found := clients()
	if len(found) == 0 || found[0] != client || slices.Contains(found[1:], client) {
		t.Errorf("got %q, want %q once and first", found, client)
	}
}
