// Package progress tells a person at a terminal, or a reader of a CI log, what long steps are doing.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Log writes one line when a step starts, one every so often while it runs, and one when it ends. Safe for concurrent
// use; parallel steps interleave by whole lines.
type Log struct {
	mu sync.Mutex
	w  io.Writer
	// every is the time between two signs of life of a running step.
	every time.Duration
}

// New returns a log on w.
func New(w io.Writer) *Log {
	return &Log{w: w, every: 15 * time.Second}
}

// Printf writes one line.
func (l *Log) Printf(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.w, format+"\n", args...)
}

// Step runs fn under a name. Expect says how long it usually takes and may be empty.
func (l *Log) Step(name, expect string, fn func() error) error {
	started := time.Now()
	if expect != "" {
		l.Printf("==> %s (%s)", name, expect)
	} else {
		l.Printf("==> %s", name)
	}
	done := make(chan struct{})
	var ticking sync.WaitGroup
	ticking.Go(func() {
		ticker := time.NewTicker(l.every)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				l.Printf("    %s ... %s", name, seconds(started))
			}
		}
	})
	err := fn()
	close(done)
	ticking.Wait()
	if err != nil {
		l.Printf("    %s: failed after %s", name, seconds(started))
		return err
	}
	l.Printf("    %s: %s", name, seconds(started))
	return nil
}

func seconds(since time.Time) string {
	d := time.Since(since)
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
}
