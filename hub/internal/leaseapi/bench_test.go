package leaseapi_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
	"github.com/shoal-dev/shoal/hub/internal/keeper/disk"
	"github.com/shoal-dev/shoal/hub/internal/lease"
	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/proto/credential"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// The bench's hub: TLS on a real socket, the disk journal, 10,000 proxies, signed credentials, tokens known by their hash.
const (
	benchProxies = 10_000
	benchWorkers = 64
	benchRound   = 1500 * time.Millisecond
	benchRounds  = 3
)

// empty answers with messages of the same sizes and does nothing.
type empty struct {
	leasev1connect.UnimplementedLeaseServiceHandler
	granted *leasev1.AcquireResponse
}

func (e empty) Acquire(context.Context, *leasev1.AcquireRequest) (*leasev1.AcquireResponse, error) {
	return e.granted, nil
}

func (empty) Release(context.Context, *leasev1.ReleaseRequest) (*leasev1.ReleaseResponse, error) {
	return &leasev1.ReleaseResponse{}, nil
}

// benchRig is a hub and, beside it, the empty handler on a server of the same kind.
type benchRig struct {
	dir        string
	lease      leasev1connect.LeaseServiceClient
	empty      leasev1connect.LeaseServiceClient
	url        string
	cert       tls.Certificate
	httpClient *http.Client
}

func newBenchRig(b *testing.B) *benchRig {
	b.Helper()
	r := &benchRig{dir: b.TempDir()}
	now := time.Now()
	journal, err := disk.Open(disk.Options{Dir: filepath.Join(r.dir, "journal"), Owner: "bench", Now: now, New: true})
	if err != nil {
		b.Fatal(err)
	}
	engine := lease.New(lease.Options{IDs: lease.NewRandomIDs(rand.Reader), Epoch: 1, StartedAt: now, HistoryComplete: true})
	k := keeper.New(keeper.Options{Engine: engine, Journal: journal})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- k.Run(ctx) }()
	<-k.Ready()
	b.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, journal.Close()); err != nil {
			b.Error(err)
		}
	})
	must := func(cmd lease.Command) {
		if _, err := k.Do(ctx, cmd); err != nil {
			b.Fatal(err)
		}
	}
	must(lease.SetFleet{Fleet: lease.Fleet{ID: "crawl/news", Policy: lease.Policy{
		MaxLeasesPerProxy: 5, DefaultTTL: 10 * time.Minute, MaxTTL: 30 * time.Minute, MaxLifetime: time.Hour,
	}}})
	var filled sync.WaitGroup
	for part := range 100 {
		filled.Go(func() {
			for i := part; i < benchProxies; i += 100 {
				p := newsProxy(i)
				p.Endpoints = []lease.Endpoint{{Network: "HostPort", Host: fmt.Sprintf("198.51.100.%d", i%250), Port: uint16(20000 + i)}}
				p.Exits = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}
				must(lease.UpsertProxy{Proxy: p})
			}
		})
	}
	filled.Wait()

	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	signer, err := credential.NewSigner(credential.SignerOptions{Key: private, Use: credential.UseLease, Window: time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	shared, err := leaseapi.NewSharedSigner(signer, 2*benchProxies)
	if err != nil {
		b.Fatal(err)
	}
	known := map[[32]byte]string{}
	for i := range benchTokens {
		known[sha256.Sum256([]byte(benchToken(i)))] = fmt.Sprintf("token:bench-%d", i)
	}
	handler, err := leaseapi.New(leaseapi.Options{
		Keeper: k, Notices: k, Signer: shared,
		Authenticator: leaseapi.AuthenticatorFunc(func(_ context.Context, bearer string) (leaseapi.Caller, error) {
			principal, ok := known[sha256.Sum256([]byte(bearer))]
			if !ok {
				return leaseapi.Caller{}, leaseapi.ErrUnknownToken
			}
			return leaseapi.Caller{Principal: principal, AllowsFleet: func(context.Context, string) (bool, error) { return true, nil }}, nil
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	r.cert = benchCertificate(b)
	r.url = r.serve(b, handler, handler.Shutdown)
	pool := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true} //nolint:gosec // its own server
	r.httpClient = &http.Client{Transport: pool}
	b.Cleanup(pool.CloseIdleConnections)
	r.lease = leasev1connect.NewLeaseServiceClient(connect.NewClient(connecthttp.NewTransport(r.httpClient, r.url)))

	granted, err := r.lease.Acquire(asBench(ctx, 0), &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"})
	if err != nil {
		b.Fatal(err)
	}
	nothing := connect.NewServer()
	leasev1connect.RegisterLeaseServiceHandler(nothing, empty{granted: granted})
	mux := http.NewServeMux()
	connecthttp.Mount(mux, nothing, connecthttp.WithCompressMinBytes(16<<10))
	r.empty = leasev1connect.NewLeaseServiceClient(connect.NewClient(connecthttp.NewTransport(r.httpClient, r.serve(b, mux, nil))))
	return r
}

func (r *benchRig) serve(b *testing.B, handler http.Handler, before func(context.Context) error) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := leaseapi.NewServer(handler, &tls.Config{Certificates: []tls.Certificate{r.cert}})
	go func() { _ = server.ServeTLS(listener, "", "") }()
	b.Cleanup(func() {
		if before != nil {
			_ = before(context.Background())
		}
		_ = server.Close()
	})
	return "https://" + listener.Addr().String()
}

const benchTokens = 20

func benchToken(i int) string {
	return fmt.Sprintf("shoal_benchmark-token-number-%02d-with-a-usual-length", i)
}

func asBench(ctx context.Context, i int) context.Context {
	ctx, info := connect.NewClientContext(ctx)
	info.RequestHeader().Set("Authorization", "Bearer "+benchToken(i))
	return ctx
}

// pair is an Acquire and the Release of what it gave.
func pair(ctx context.Context, c leasev1connect.LeaseServiceClient) error {
	granted, err := c.Acquire(asBench(ctx, 0), &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"})
	if err != nil {
		return err
	}
	_, err = c.Release(asBench(ctx, 0), &leasev1.ReleaseRequest{LeaseId: granted.Leases[0].LeaseId})
	return err
}

// rate returns requests a second of many workers at once.
func rate(b *testing.B, c leasev1connect.LeaseServiceClient) float64 {
	b.Helper()
	var done atomic.Int64
	began := time.Now()
	var workers sync.WaitGroup
	for range benchWorkers {
		workers.Go(func() {
			for time.Since(began) < benchRound {
				if err := pair(context.Background(), c); err != nil {
					b.Error(err)
					return
				}
				done.Add(2)
			}
		})
	}
	workers.Wait()
	return float64(done.Load()) / time.Since(began).Seconds()
}

// inTurns measures two things in turns, so that other work on the machine meets both alike, and returns the medians and
// the median of the ratios of neighbours.
func inTurns(reference, thing func() float64) (atReference, atThing, ratio float64) {
	var references, things, ratios []float64
	for range benchRounds {
		references = append(references, reference())
		things = append(things, thing())
		ratios = append(ratios, things[len(things)-1]/references[len(references)-1])
	}
	for _, s := range [][]float64{references, things, ratios} {
		slices.Sort(s)
	}
	return references[benchRounds/2], things[benchRounds/2], ratios[benchRounds/2]
}

// BenchmarkLeaseUnary prints the rates of Acquire and Release over Connect and of the empty handler.
func BenchmarkLeaseUnary(b *testing.B) {
	r := newBenchRig(b)
	rate(b, r.empty)
	rate(b, r.lease)
	b.ResetTimer()
	nothing, leases, ratio := inTurns(func() float64 { return rate(b, r.empty) }, func() float64 { return rate(b, r.lease) })
	fmt.Fprintf(os.Stdout, "\nBENCH lease_unary_empty %.0f req/s 1.00\nBENCH lease_unary %.0f req/s %.2f\n", nothing, leases, ratio)
}

// BenchmarkLeaseStream prints the rate of the same commands pipelined over one stream.
func BenchmarkLeaseStream(b *testing.B) {
	r := newBenchRig(b)
	rate(b, r.empty)
	b.ResetTimer()
	_, commands, ratio := inTurns(func() float64 { return rate(b, r.empty) }, func() float64 { return streamRate(b, r) })
	fmt.Fprintf(os.Stdout, "\nBENCH lease_stream %.0f req/s %.2f\n", commands, ratio)
}

// streamRate returns commands a second over one stream with its window full: each Acquire that is answered makes a
// Release, and each Release an Acquire.
func streamRate(b *testing.B, r *benchRig) float64 {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := r.lease.Stream(asBench(ctx, 0))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	if err := stream.SendHeaders(); err != nil {
		b.Fatal(err)
	}
	first, err := stream.Receive()
	if err != nil {
		b.Fatal(err)
	}
	seq := uint64(0)
	next := func(answer *leasev1.StreamAnswer) *leasev1.StreamCommand {
		seq++
		if granted := answer.GetAcquire().GetLeases(); len(granted) > 0 {
			return &leasev1.StreamCommand{Seq: seq, Command: &leasev1.StreamCommand_Release{Release: &leasev1.ReleaseRequest{LeaseId: granted[0].GetLeaseId()}}}
		}
		return &leasev1.StreamCommand{Seq: seq, Command: &leasev1.StreamCommand_Acquire{Acquire: &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"}}}
	}
	send := func(commands []*leasev1.StreamCommand) {
		for some := range slices.Chunk(commands, leaseapi.MaxCommands) {
			if err := stream.Send(&leasev1.StreamRequest{Commands: some}); err != nil {
				b.Error(err)
			}
		}
	}
	begin := make([]*leasev1.StreamCommand, first.GetWindow())
	for i := range begin {
		begin[i] = next(nil)
	}
	send(begin)
	done, began := 0, time.Now()
	for time.Since(began) < benchRound {
		response, err := stream.Receive()
		if err != nil {
			b.Fatal(err)
		}
		commands := make([]*leasev1.StreamCommand, len(response.GetAnswers()))
		for i, answer := range response.GetAnswers() {
			if answer.GetError() != nil {
				b.Fatal(answer)
			}
			commands[i] = next(answer)
		}
		done += len(commands)
		send(commands)
	}
	return float64(done) / time.Since(began).Seconds()
}

// latencies returns how long Acquires take at a steady rate of pairs a second, sorted.
func latencies(b *testing.B, c leasev1connect.LeaseServiceClient, pairs float64) []time.Duration {
	b.Helper()
	var mu sync.Mutex
	var all []time.Duration
	var calls sync.WaitGroup
	began := time.Now()
	every := time.Duration(float64(time.Second) / pairs)
	for due := began; due.Sub(began) < benchRound; due = due.Add(every) {
		time.Sleep(time.Until(due))
		calls.Go(func() {
			at := time.Now()
			granted, err := c.Acquire(asBench(context.Background(), 0), &leasev1.AcquireRequest{Fleet: "crawl/news", Target: "example.com"})
			took := time.Since(at)
			if err == nil {
				_, err = c.Release(asBench(context.Background(), 0), &leasev1.ReleaseRequest{LeaseId: granted.Leases[0].LeaseId})
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.Error(err)
			}
			all = append(all, took)
		})
	}
	calls.Wait()
	slices.Sort(all)
	return all
}

func p99(sorted []time.Duration) time.Duration { return sorted[len(sorted)*99/100] }

// fsyncs measures appends of a page with their sync, beside the journal.
func fsyncs(b *testing.B, dir string) []time.Duration {
	b.Helper()
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var all []time.Duration
	for range 200 {
		at := time.Now()
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		all = append(all, time.Since(at))
	}
	slices.Sort(all)
	return all
}

// BenchmarkLeaseP99 prints the p99 of Acquire at half of the greatest rate, and its ratio to that of the empty handler at
// the same rate plus one fsync.
func BenchmarkLeaseP99(b *testing.B) {
	r := newBenchRig(b)
	rate(b, r.lease)
	half := rate(b, r.lease) / 2 / 2 // pairs
	b.ResetTimer()
	var empties, leases, syncs []time.Duration
	for range benchRounds {
		empties = append(empties, p99(latencies(b, r.empty, half)))
		leases = append(leases, p99(latencies(b, r.lease, half)))
		syncs = append(syncs, p99(fsyncs(b, r.dir)))
	}
	for _, s := range [][]time.Duration{empties, leases, syncs} {
		slices.Sort(s)
	}
	nothing, acquire, sync := empties[benchRounds/2], leases[benchRounds/2], syncs[benchRounds/2]
	fmt.Fprintf(os.Stdout, "\nBENCH lease_p99_empty %.2f ms 1.00\nBENCH fsync_p99 %.2f ms 1.00\nBENCH lease_p99 %.2f ms %.2f\n",
		nothing.Seconds()*1e3, sync.Seconds()*1e3, acquire.Seconds()*1e3, acquire.Seconds()/(nothing+sync).Seconds())
}

// benchCertificate makes a certificate that nobody checks.
func benchCertificate(b *testing.B) tls.Certificate {
	b.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		b.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}
