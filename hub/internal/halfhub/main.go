// Command halfhub is the half of a hub that leases depend on: a journal, the keeper, the lease API. It has no cluster
// around it: its fleet and proxies are always the same, a caller's token is its name, and whoever starts two on one journal
// decides which of them leads. Crash tests kill it; nobody else runs it.
package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/disk"
	"github.com/shoal-dev/shoal/hub/internal/keeper/valkey"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/credential"
)

const (
	owner = "halfhub"
	fleet = lease.FleetID("crawl/news")
)

// options are the flags.
type options struct {
	leases, health     string
	certFile, keyFile  string
	journal            string
	dir, server        string
	compactAfter       int
	proxies, slots     int
	ttl, maxTTL, quiet time.Duration
}

// history is what the two journals have in common beyond the keeper's contract.
type history interface {
	keeper.Journal
	io.Closer
	Epoch() uint64
	Since() (since time.Time, complete bool)
}

func main() {
	var o options
	flag.StringVar(&o.leases, "leases-address", "", "host:port of the lease API")
	flag.StringVar(&o.health, "health-address", "", "host:port of /readyz")
	flag.StringVar(&o.certFile, "leases-cert-file", "", "certificate of the lease API")
	flag.StringVar(&o.keyFile, "leases-key-file", "", "its key")
	flag.StringVar(&o.journal, "journal", "disk", "disk or valkey")
	flag.StringVar(&o.dir, "journal-dir", "", "directory of the disk journal")
	flag.StringVar(&o.server, "journal-server", "", "host:port or socket of the valkey journal")
	flag.IntVar(&o.compactAfter, "journal-compact-after", 0, "records before a snapshot")
	flag.IntVar(&o.proxies, "proxies", 24, "how many proxies there are; each two share an exit")
	flag.IntVar(&o.slots, "slots", 3, "how many leases a proxy carries")
	flag.DurationVar(&o.ttl, "default-ttl", 4*time.Second, "life of a lease that asks for none")
	flag.DurationVar(&o.maxTTL, "max-ttl", 8*time.Second, "longest life of a lease")
	flag.DurationVar(&o.quiet, "cooldown", 30*time.Second, "first rest of a banned exit")
	flag.Parse()
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if err := run(context.Background(), o, log, clock.RealClock{}); err != nil {
		log.Error("the half hub ends", "err", err)
		os.Exit(1)
	}
}

// run serves until something fails.
func run(ctx context.Context, o options, log *slog.Logger, c clock.WithTicker) error {
	// As a hub does: listeners first, so that calls wait for the start and are not refused.
	leases, err := net.Listen("tcp", o.leases)
	if err != nil {
		return err
	}
	journal, err := o.open(ctx, log, c)
	if err != nil {
		return err
	}
	defer journal.Close()
	since, complete := journal.Since()
	log.Info("lease journal opened", "since", since, "complete", complete, "epoch", journal.Epoch())
	k := keeper.New(keeper.Options{
		Engine: lease.New(lease.Options{
			IDs: lease.NewRandomIDs(bufio.NewReader(rand.Reader)), Epoch: journal.Epoch(), StartedAt: since, HistoryComplete: complete,
			// Nobody is heard here.
			Freshness: 24 * time.Hour,
		}),
		Journal: journal, Clock: c, Logger: log,
	})
	ended := make(chan error, 3)
	go func() { ended <- k.Run(ctx) }()
	select {
	case <-k.Ready():
	case err := <-ended:
		return err
	}
	if err := o.stock(ctx, k); err != nil {
		return err
	}
	server, err := o.api(k, log)
	if err != nil {
		return err
	}
	go func() { ended <- server.ServeTLS(leases, "", "") }()
	health := &http.Server{Addr: o.health, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Second}
	go func() { ended <- health.ListenAndServe() }()
	log.Info("hub is ready")
	return <-ended
}

func (o options) open(ctx context.Context, log *slog.Logger, c clock.WithTicker) (history, error) {
	switch o.journal {
	case "disk":
		return disk.Open(disk.Options{Dir: o.dir, Owner: owner, Now: c.Now(), New: true, CompactAfter: o.compactAfter, Logger: log})
	case "valkey":
		return valkey.Open(ctx, valkey.Options{
			Server: valkey.Server{Addresses: []string{o.server}}, Owner: owner, Now: c.Now(), New: true, CompactAfter: o.compactAfter, Logger: log,
		})
	}
	return nil, fmt.Errorf("there is no journal %q; write disk or valkey", o.journal)
}

// stock tells the keeper of the fleet and its proxies.
func (o options) stock(ctx context.Context, k *keeper.Keeper) error {
	policy := lease.Policy{
		MaxLeasesPerProxy: o.slots, DefaultTTL: o.ttl, MaxTTL: o.maxTTL, MaxLifetime: 2 * time.Hour,
		Cooldown: lease.Cooldown{Base: o.quiet, Factor: 2, Max: time.Hour},
	}
	_, err := k.Do(ctx, lease.SetFleet{Fleet: lease.Fleet{ID: fleet, Policy: policy}})
	for i := range o.proxies {
		_, failed := k.Do(ctx, lease.UpsertProxy{Proxy: lease.Proxy{
			UID: lease.ProxyUID(fmt.Sprintf("px-%02d", i)), Fleet: fleet, Member: "east", Ready: true,
			Endpoints: []lease.Endpoint{{Network: "PodIP", Host: fmt.Sprintf("10.0.0.%d", i+1), Port: 3128}},
			Exits:     []netip.Addr{netip.AddrFrom4([4]byte{203, 0, 113, byte(i/2 + 1)})},
		}})
		err = errors.Join(err, failed)
	}
	return err
}

// api is the lease API over TLS.
func (o options) api(k *keeper.Keeper, log *slog.Logger) (*http.Server, error) {
	certificate, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
	if err != nil {
		return nil, err
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	signing, err := credential.NewSigner(credential.SignerOptions{Key: key, Use: credential.UseLease, Window: time.Minute})
	if err != nil {
		return nil, err
	}
	signer, err := leaseapi.NewSharedSigner(signing, 1000)
	if err != nil {
		return nil, err
	}
	handler, err := leaseapi.New(leaseapi.Options{
		Keeper: k, Signer: signer, Logger: log,
		Authenticator: leaseapi.AuthenticatorFunc(func(_ context.Context, bearer string) (leaseapi.Caller, error) {
			return leaseapi.Caller{
				Principal:   bearer,
				AllowsFleet: func(_ context.Context, name string) (bool, error) { return name == string(fleet), nil },
			}, nil
		}),
	})
	if err != nil {
		return nil, err
	}
	return leaseapi.NewServer(handler, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), nil
}
