package audit

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// queue is how many lines may wait for the writer: a second's worth on a busy hub, some 4 MB.
const queue = 8192

// look is how often the log looks whether its file was moved away, and begins a new one.
const look = time.Second

// Event is one line. What is empty is left out.
type Event struct {
	Time time.Time `json:"time"`
	// Event says what happened: see the constants.
	Event string `json:"event"`
	// Principal is who did it, or whose lease it is where nobody did.
	Principal string `json:"principal,omitempty"`
	Fleet     string `json:"fleet,omitempty"`
	Lease     string `json:"lease,omitempty"`
	// Fencing is the lease's fencing token, which is no secret.
	Fencing string   `json:"fencing,omitempty"`
	Proxy   string   `json:"proxy,omitempty"`
	Member  string   `json:"member,omitempty"`
	Exits   []string `json:"exits,omitempty"`
	Target  string   `json:"target,omitempty"`
	// Expires is when the lease, the rest or the revocation ends.
	Expires *time.Time `json:"expires,omitempty"`
	// Outcome is what was reported, State how a lease ended, Reason why a command was refused.
	Outcome string `json:"outcome,omitempty"`
	State   string `json:"state,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Guarded says that a ban was not acted upon.
	Guarded bool `json:"guarded,omitempty"`
	// Of is whom an operator acted on, Why the reason that the operator gave, Count how many leases, pauses or bans it
	// met.
	Of    string `json:"of,omitempty"`
	Why   string `json:"why,omitempty"`
	Count int    `json:"count,omitempty"`
}

// Options are what a [Log] is made with.
type Options struct {
	// Path is a file that is appended to, or "stdout". A file that was moved or removed is begun anew.
	Path string
	// Writer is used in place of Path, in tests.
	Writer io.Writer
	// Clock is required.
	Clock clock.Clock
	// Logger hears of what cannot be written: discarded by default.
	Logger *slog.Logger
}

// Log writes events. It is safe for concurrent use.
type Log struct {
	clock  clock.Clock
	log    *slog.Logger
	path   string
	file   *os.File // nil for a writer that is not ours
	to     io.Writer
	out    *bufio.Writer
	events chan Event
	looked time.Time
	broken bool

	written, lost prometheus.Counter
}

// Stdout is the Path of standard output.
const Stdout = "stdout"

// Open opens the log, or says why that cannot be.
func Open(o Options) (*Log, error) {
	if o.Clock == nil {
		return nil, errors.New("audit: Options.Clock is required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Log{
		clock: o.Clock, log: o.Logger, path: o.Path, events: make(chan Event, queue),
		written: prometheus.NewCounter(prometheus.CounterOpts{Name: "shoal_audit_lines_total", Help: "Lines of the audit log."}),
		lost: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "shoal_audit_lost_total", Help: "Lines that the audit log lacks, because its file or pipe was too slow or could not be written.",
		}),
	}
	switch {
	case o.Writer != nil:
		l.to, l.out = o.Writer, bufio.NewWriter(o.Writer)
	case o.Path == Stdout:
		l.to, l.out = os.Stdout, bufio.NewWriter(os.Stdout)
	default:
		if err := l.reopen(); err != nil {
			return nil, fmt.Errorf("open the audit log; choose another file with --audit-log: %w", err)
		}
	}
	return l, nil
}

// Describe implements [prometheus.Collector].
func (l *Log) Describe(descs chan<- *prometheus.Desc) {
	l.written.Describe(descs)
	l.lost.Describe(descs)
}

// Collect implements [prometheus.Collector].
func (l *Log) Collect(metrics chan<- prometheus.Metric) {
	l.written.Collect(metrics)
	l.lost.Collect(metrics)
}

// Write queues a line and returns at once. Without a time the event is of now.
func (l *Log) Write(e Event) {
	if e.Time.IsZero() {
		e.Time = l.clock.Now().UTC()
	}
	select {
	case l.events <- e:
	default:
		l.lost.Inc()
	}
}

// Run writes what is queued until ctx ends, and then what is left. What it cannot write is lost, and no error.
func (l *Log) Run(ctx context.Context) error {
	if l.file != nil {
		defer func() { _ = l.file.Close() }() // everything is flushed
	}
	for {
		select {
		case e := <-l.events:
			l.batch(ctx, e)
			continue
		default:
		}
		select {
		case e := <-l.events:
			l.batch(ctx, e)
		case <-ctx.Done():
			return nil
		}
	}
}

// batch writes an event and all that wait behind it.
func (l *Log) batch(ctx context.Context, e Event) {
	l.follow(ctx)
	lines := 0
	var err error
	for more := true; more; {
		data, encoding := json.Marshal(e)
		if encoding == nil && err == nil {
			_, err = l.out.Write(append(data, '\n'))
		}
		lines++
		select {
		case e = <-l.events:
		default:
			more = false
		}
	}
	if err == nil {
		err = l.out.Flush()
	}
	if err == nil {
		l.written.Add(float64(lines))
		l.broken = false
		return
	}
	l.lost.Add(float64(lines))
	if !l.broken {
		l.log.ErrorContext(ctx, "cannot write the audit log", "path", l.path, "err", err)
	}
	l.broken = true
	l.out.Reset(l.to) // a bufio.Writer remembers its error
}

// follow begins a new file where somebody has moved the old one away, as those do who rotate logs.
func (l *Log) follow(ctx context.Context) {
	if l.file == nil || l.clock.Since(l.looked) < look {
		return
	}
	l.looked = l.clock.Now()
	ours, err := l.file.Stat()
	if err != nil {
		return
	}
	if there, err := os.Stat(l.path); err == nil && os.SameFile(ours, there) {
		return
	}
	if err := l.reopen(); err != nil {
		l.log.ErrorContext(ctx, "cannot begin a new audit log; the old one goes on", "path", l.path, "err", err)
	}
}

// reopen opens the file and leaves the one that was open, if that works.
func (l *Log) reopen() error {
	file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file, l.to, l.looked = file, file, l.clock.Now()
	if l.out == nil {
		l.out = bufio.NewWriter(file)
	} else {
		l.out.Reset(file)
	}
	return nil
}
