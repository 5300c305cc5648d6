package hub_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/hub"
	"github.com/shoal-dev/shoal/hub/internal/identity"
	"github.com/shoal-dev/shoal/hub/internal/keeper/disk"
	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// TestRestartedHubGrantsAtOnce starts a hub on a journal that an earlier one has left a moment ago: it grants before any
// member has come back, from the proxies that the journal knows, and knows the lease that the earlier one granted.
func TestRestartedHubGrantsAtOnce(t *testing.T) {
	c, namespace := server.Client, server.Namespace(t, "hub-")
	fleetID, member := lease.FleetID(namespace+"/news"), lease.MemberID("east-"+namespace)
	fleet := &v1alpha1.ProxyFleet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "news"}}
	fleet.Spec.Template = &v1alpha1.ProxyTemplate{Spec: v1alpha1.ProxyTemplateSpec{Provider: "default"}}
	if err := c.Create(t.Context(), fleet); err != nil {
		t.Fatal(err)
	}
	cluster := &v1alpha1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: string(member)}, Spec: v1alpha1.MemberClusterSpec{Accepted: true}}
	if err := c.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	token, text, err := identity.NewAPIToken(time.Now(), "tester", []string{namespace + "/*"}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), token.Secret(namespace)); err != nil {
		t.Fatal(err)
	}
	directory := filepath.Join(t.TempDir(), "journal")
	onDisk := func(c *hub.Config) { c.JournalType, c.JournalDir = hub.JournalDisk, directory }

	first := startHub(t, namespace, onDisk)
	first.awaitReady()
	id := readIdentity(t, c, namespace)
	roots := id.Authority().Pool()
	acquire := func(r *running) (status int, body string) {
		return post(t, "https://"+r.leases+"/v1/leases", roots, text.Reveal(), fmt.Sprintf(`{"fleet":%q}`, fleetID))
	}
	eventually(t, "the fleet is known, without a proxy", func() string {
		if status, body := acquire(first); status == http.StatusOK || !strings.Contains(body, "NO_MATCH") {
			return fmt.Sprint(status, " ", body)
		}
		return ""
	})
	first.stopNow()

	// What the earlier hub would have written if a member had reported a proxy, and somebody had leased it.
	left := inJournal(t, directory, id.UID(), func(step func(lease.Command) lease.Result) lease.Lease {
		step(lease.SetMember{ID: member}) // that hub has never heard from it, and may have written so
		step(lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID("px-" + namespace), Fleet: fleetID, Member: member, Name: "news-1", Ready: true,
			Exits:     []netip.Addr{netip.MustParseAddr("203.0.113.9")},
			Endpoints: []lease.Endpoint{{Network: "HostPort", Host: "198.51.100.7", Port: 21007}},
		}})
		step(lease.Touch{ID: member})
		return step(lease.Acquire{Principal: "somebody", Fleet: fleetID}).(lease.Granted).Leases[0]
	})

	second := startHub(t, namespace, onDisk)
	second.awaitReady()
	status, body := acquire(second)
	var granted struct {
		Leases []struct{ ProxyURL, Token string }
	}
	if err := json.Unmarshal([]byte(body), &granted); status != http.StatusOK || err != nil || len(granted.Leases) != 1 {
		t.Fatalf("the restarted hub answers %d %s", status, body)
	}
	if !strings.HasSuffix(granted.Leases[0].ProxyURL, "@198.51.100.7:21007") {
		t.Errorf("it grants another proxy: %s", body)
	}
	if was := left.Token.String(); granted.Leases[0].Token <= was {
		t.Errorf("token %s after %s", granted.Leases[0].Token, was)
	}
	status, body = get(t, "https://"+second.leases+"/v1/proxies?fleet="+string(fleetID), roots, http.Header{"Authorization": {"Bearer " + text.Reveal()}})
	var page struct {
		Proxies []struct{ Leased int }
	}
	if err := json.Unmarshal([]byte(body), &page); status != http.StatusOK || err != nil || len(page.Proxies) != 1 || page.Proxies[0].Leased != 2 {
		t.Errorf("of the proxy it says %d %s, want the lease from before and the one of now", status, body)
	}
	for _, name := range []string{"shoal_journal_append_seconds_count", "shoal_journal_read_only 0", "shoal_journal_reserve_bytes", "shoal_journal_disk_bytes"} {
		if status, body := get(t, "http://"+second.health+"/metrics", nil, nil); status != http.StatusOK || !strings.Contains(body, name) {
			t.Errorf("metrics have no %s: %d", name, status)
		}
	}
	second.stopNow()
}

// inJournal steps the engine of a journal that no hub has open.
func inJournal(t *testing.T, directory, owner string, do func(step func(lease.Command) lease.Result) lease.Lease) lease.Lease {
	t.Helper()
	journal, err := disk.Open(disk.Options{Dir: directory, Owner: owner, Now: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	engine := lease.New(lease.Options{IDs: &lease.CountingIDs{}, Epoch: journal.Epoch(), HistoryComplete: true})
	if err := journal.Load(t.Context(), engine.Apply); err != nil {
		t.Fatal(err)
	}
	result := do(func(cmd lease.Command) lease.Result {
		out, err := engine.Step(time.Now(), cmd)
		if err != nil {
			t.Fatalf("%T: %v", cmd, err)
		}
		if err := journal.Append(t.Context(), out.Records); err != nil {
			t.Fatal(err)
		}
		return out.Result
	})
	if err := journal.Close(); err != nil {
		t.Fatal(err)
	}
	return result
}

// post returns the status and the body of a POST with a bearer token.
func post(t *testing.T, url string, roots *x509.CertPool, bearer, body string) (int, string) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+bearer)
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}
