package crawlers_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/leaseclient"
)

// snippets is where docs/leasing.md takes its programs from.
const snippets = "../../../../docs/snippets"

// snippetPatience bounds one run: a browser on a busy machine takes its time.
const snippetPatience = 3 * time.Minute

// snippet is a program of the docs.
type snippet struct {
	// command is what a reader would type, without the URLs. It runs in a copy of dir.
	dir     string
	command []string
	// prepare is run once before, in the copy.
	prepare []string
	// many says that it takes several URLs; join how they are written into one argument, if they are.
	many bool
	join string
	// once says that it gives up when the site answers 403.
	once bool
}

var programs = map[string]snippet{
	"curl":     {command: []string{"bash", "curl.sh"}, once: true},
	"requests": {command: []string{"/usr/bin/python3", "requests_lease.py"}, many: true, once: true},
	"aiohttp":  {command: []string{"/usr/bin/python3", "aiohttp_lease.py"}, many: true, once: true},
	"scrapy": {
		dir: "scrapy", command: []string{"/usr/bin/python3", "-m", "scrapy", "runspider", "-L", "WARNING", "-o", "-:jsonlines", "spider.py", "-a"},
		many: true, join: "urls=",
	},
	"playwright": {
		dir: "playwright", command: []string{"node", "lease.mjs"},
		prepare: []string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"}, once: true,
	},
}

// TestSnippets runs each program of the docs as a reader would, with what its environment says and nothing else. It needs
// many packages, so `make test-clients` asks for it by SHOAL_TEST_CLIENTS.
func TestSnippets(t *testing.T) {
	if os.Getenv("SHOAL_TEST_CLIENTS") == "" {
		t.Skip("make test-clients runs this, and installs what it needs")
	}
	for name, s := range programs {
		t.Run(name, func(t *testing.T) {
			dir := copied(t, filepath.Join(snippets, s.dir))
			if s.prepare != nil {
				run(t, dir, os.Environ(), s.prepare...)
			}
			for _, scheme := range []string{"http", "https"} {
				t.Run(scheme, func(t *testing.T) { s.fetches(t, dir, scheme) })
			}
			t.Run("Banned", func(t *testing.T) { s.isBanned(t, dir) })
		})
	}
}

// fetches runs the program for pages that are there.
func (s snippet) fetches(t *testing.T, dir, scheme string) {
	w := newWorld(t, good, good)
	said := s.run(t, w, dir, scheme)
	pages := 1
	if s.many {
		pages = 2
	}
	visitors := w.site.visitors()
	if len(visitors) != pages || len(slices.Compact(visitors)) != 1 || !slices.Contains(w.exits, visitors[0]) {
		t.Fatalf("the site was asked from %v, want %d times from one of %v; the program said:\n%s", visitors, pages, w.exits, said)
	}
	if s.join == "" && !strings.Contains(said, "200") || s.join != "" && strings.Count(said, `"status": 200`) != pages {
		t.Errorf("the program said:\n%s", said)
	}
	// Released, not left to expire: and what came of it is told.
	if n := w.leased(t.Context()); n != 0 {
		t.Errorf("%d leases are held after the program's end; it said:\n%s", n, said)
	}
	if told := w.told(t); !slices.Equal(told, slices.Repeat([]string{"ok"}, pages)) {
		t.Errorf("the hub was told %v; the program said:\n%s", told, said)
	}
}

// isBanned runs the program against a site that refuses every exit.
func (s snippet) isBanned(t *testing.T, dir string) {
	if !s.once {
		return
	}
	w := newWorld(t, good)
	w.site.ban(w.exits[0], http.StatusForbidden)
	said := s.run(t, w, dir, "https")
	if n := w.leased(t.Context()); n != 0 {
		t.Errorf("%d leases are held after the program's end; it said:\n%s", n, said)
	}
	// Pages that are fetched at the same time are each blocked.
	if told := w.told(t); len(told) == 0 || len(slices.Compact(told)) != 1 || told[0] != "blocked" {
		t.Errorf("the hub was told %v; the program said:\n%s", told, said)
	}
}

// TestScrapyMovesOn lets the site ban the first exit that comes: the spider goes on by the other one.
func TestScrapyMovesOn(t *testing.T) {
	if os.Getenv("SHOAL_TEST_CLIENTS") == "" {
		t.Skip("make test-clients runs this, and installs what it needs")
	}
	w := newWorld(t, good, good)
	s := programs["scrapy"]
	// The least recently used is next: the first.
	w.site.ban(w.exits[0], http.StatusForbidden)
	w.site.ban(w.exits[1], 0)
	said := s.run(t, w, copied(t, filepath.Join(snippets, s.dir)), "https")
	if strings.Count(said, `"status": 200`) != 2 {
		t.Errorf("the spider said:\n%s", said)
	}
	if told := w.told(t); !slices.Contains(told, "blocked") || slices.Contains(told, "proxy_error") {
		t.Errorf("the hub was told %v", told)
	}
	if n := w.leased(t.Context()); n != 0 {
		t.Errorf("%d leases are held after the spider's end", n)
	}
}

// run runs the program and returns what it said.
func (s snippet) run(t *testing.T, w *world, dir, scheme string) string {
	t.Helper()
	base := map[string]string{"http": w.site.plain.URL, "https": w.site.secure.URL}[scheme]
	urls := []string{base + "/a"}
	if s.many {
		urls = append(urls, base+"/b")
	}
	if s.join != "" {
		urls = []string{s.join + strings.Join(urls, ",")}
	}
	home := t.TempDir()
	environment := []string{
		"PATH=/usr/bin:/bin:" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1",
		"SHOAL=" + w.hub, "SHOAL_CA=" + w.caFile, "SHOAL_TOKEN=" + token, "NODE_EXTRA_CA_CERTS=" + w.caFile,
		// Whom to trust for the site, by each client's own way. Chromium has none that is not a database.
		"CURL_CA_BUNDLE=" + w.caFile, "REQUESTS_CA_BUNDLE=" + w.caFile, "SSL_CERT_FILE=" + w.caFile,
		"CHROMIUM_ARGS=--no-sandbox --ignore-certificate-errors",
	}
	return run(t, dir, environment, append(slices.Clone(s.command), urls...)...)
}

// run runs a command that has to succeed.
func run(t *testing.T, dir string, environment []string, command ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), snippetPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = dir, environment
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v; it said:\n%s", strings.Join(command, " "), err, said.String())
	}
	return said.String()
}

// copied copies a folder, so that nothing is written into the tree.
func copied(t *testing.T, from string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// told are the outcomes that the hub was told of.
func (w *world) told(t *testing.T) []string {
	t.Helper()
	return w.outcomes(w.client(leaseclient.Options{}))
}

// TestRequestsOfTheDocs reads every request body of the docs' shell lines as the hub would: a field that the protocol has
// not is refused.
func TestRequestsOfTheDocs(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/leasing.md")
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, good)
	acquired, err := w.service.Acquire(t.Context(), &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	id := acquired.GetLeases()[0].GetLeaseId()
	sent := 0
	for line := range strings.Lines(string(text)) {
		_, body, found := strings.Cut(line, " -d '")
		body, _, ended := strings.Cut(body, "'")
		if !found || !ended || !strings.HasPrefix(body, "{") || strings.Contains(line, `"'"`) {
			continue
		}
		path := "/v1/leases"
		switch {
		case strings.Contains(line, ":renew"):
			path += "/" + id + ":renew"
		case strings.Contains(line, ":report"):
			path += "/" + id + ":report"
		case strings.Contains(line, "DELETE"):
			continue // It would end the lease; its body is that of a report.
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.hub+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := w.http.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer, _ := io.ReadAll(response.Body)
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s", path, body, answer)
		}
		sent++
	}
	if sent < 3 {
		t.Errorf("%d requests in docs/leasing.md, want an Acquire, a Renew and a Report at least", sent)
	}
}
