package leaseapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

const (
	benchWatches = 10_000
	// benchWatchesURL tells a process of this test that it is the client of BenchmarkWatches.
	benchWatchesURL = "SHOAL_BENCH_WATCHES_URL"
)

// TestWatchesClient is the client of BenchmarkWatches, in a process of its own: it opens the watches, says so, and holds
// them until its input ends.
func TestWatchesClient(t *testing.T) {
	url := os.Getenv(benchWatchesURL)
	if url == "" {
		t.Skip("only as a part of BenchmarkWatches")
	}
	// A connection has 250 calls at most; the transport opens as many as it needs.
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}} //nolint:gosec // the bench's server
	service := leasev1connect.NewLeaseServiceClient(connect.NewClient(connecthttp.NewTransport(c, url)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var opened sync.WaitGroup
	turn := make(chan struct{}, 64)
	for i := range benchWatches {
		opened.Add(1)
		go func() {
			turn <- struct{}{}
			watch, err := service.WatchLeases(asBench(ctx, i%benchTokens), &leasev1.WatchLeasesRequest{})
			if err == nil {
				_, err = watch.Receive()
			}
			<-turn
			opened.Done()
			for err == nil {
				_, err = watch.Receive()
			}
			if ctx.Err() == nil {
				t.Errorf("watch %d ended: %v", i, err)
			}
		}()
	}
	opened.Wait()
	fmt.Println("open") // that is how the other process hears of it
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// resident is how much memory this process has, in bytes.
func resident(b *testing.B) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip("needs /proc: ", err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return float64(pages * os.Getpagesize())
}

// BenchmarkWatches prints how much memory the hub has with 10,000 open watches, against 1 GiB, and the p99 of Acquire at a
// quarter of the greatest rate with them, against the p99 without.
func BenchmarkWatches(b *testing.B) {
	r := newBenchRig(b)
	rate(b, r.lease)
	quarter := rate(b, r.lease) / 4 / 2 // pairs
	p99s := func() time.Duration {
		var all []time.Duration
		for range benchRounds {
			all = append(all, p99(latencies(b, r.lease, quarter)))
		}
		slices.Sort(all)
		return all[benchRounds/2]
	}
	b.ResetTimer()
	without := p99s()
	client := exec.CommandContext(b.Context(), os.Args[0], "-test.run=^TestWatchesClient$", "-test.v")
	client.Env = append(os.Environ(), benchWatchesURL+"="+r.url)
	client.Stderr = os.Stderr
	output, err := client.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	input, err := client.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := client.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() && !strings.HasSuffix(lines.Text(), "open") {
		b.Log(lines.Text())
	}
	opening := time.Since(began)
	with := p99s()
	runtime.GC()
	memory := resident(b)
	_ = input.Close()
	for lines.Scan() {
		b.Log(lines.Text())
	}
	if err := client.Wait(); err != nil {
		b.Errorf("the client: %v", err)
	}
	fmt.Fprintf(os.Stdout, "\nBENCH watches_opened %.1f s 1.00\nBENCH watches_memory %.0f MiB %.2f\nBENCH watches %.2f ms %.2f\n",
		opening.Seconds(), memory/(1<<20), memory/(1<<30), with.Seconds()*1e3, float64(with)/float64(without))
}
