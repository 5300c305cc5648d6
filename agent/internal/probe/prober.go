package probe

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// Probe is one probe in full: the result for the judge, and how it came about.
type Probe struct {
	Result
	// Observation is what was classified.
	Observation Observation
	// Started is when it began.
	Started time.Time
	// Dial, Connect, TLS and FirstByte are how long the stages took; zero for those that were not reached.
	Dial, Connect, TLS, FirstByte time.Duration
}

// ProberOptions configures a [Prober].
type ProberOptions struct {
	// Roots returns the certificate authorities of echo targets that are current: those of a hub are replaced while the
	// agent runs. While it returns nil nothing is known of them, and probes are AgentFaults. It is called for each probe,
	// from several goroutines.
	Roots func() *x509.CertPool
	// Clock times the stages.
	Clock clock.PassiveClock
	// DialTimeout bounds the connection to the proxy. Default 3 s.
	DialTimeout time.Duration
	// ConnectTimeout bounds the proxy's answer to CONNECT. It must be longer than the proxy's own timeout for
	// connecting, or dead targets look like stuck proxies. Default 12 s, for Squid's 10 s.
	ConnectTimeout time.Duration
	// TargetTimeout bounds all that goes through the tunnel. Default 5 s.
	TargetTimeout time.Duration
	// UserAgent is sent to proxy and target. Default "shoal-probe".
	UserAgent string
}

// Prober does probes. It is safe for concurrent use.
type Prober struct {
	options ProberOptions
	dialer  net.Dialer

	mu       sync.Mutex // guards what follows
	sessions map[EchoID]tls.ClientSessionCache
}

// NewProber returns a prober, or an error if something it needs is missing.
func NewProber(o ProberOptions) (*Prober, error) {
	if o.Roots == nil || o.Clock == nil {
		return nil, errors.New("prober: roots and clock are required")
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 3 * time.Second
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 12 * time.Second
	}
	if o.TargetTimeout == 0 {
		o.TargetTimeout = 5 * time.Second
	}
	if o.UserAgent == "" {
		o.UserAgent = "shoal-probe"
	}
	return &Prober{options: o, sessions: make(map[EchoID]tls.ClientSessionCache)}, nil
}

// sessionsOf lets later handshakes with a target resume earlier ones, through whatever proxy: a full handshake costs
// both sides more than all the rest of a probe. Each target has a cache of its own, because crypto/tls keys sessions by
// server name, which targets may share while each has a key of its own for tickets. Its certificate was verified in the
// handshake that is resumed, and only its owner can resume it.
func (p *Prober) sessionsOf(echo EchoID) tls.ClientSessionCache {
	p.mu.Lock()
	defer p.mu.Unlock()
	cache, ok := p.sessions[echo]
	if !ok {
		cache = tls.NewLRUClientSessionCache(1)
		p.sessions[echo] = cache
	}
	return cache
}

// Probe fetches the echo through the proxy and says what came of it. It never fails: whatever goes wrong is a class.
// Cancelling the context ends it as an AgentFault.
func (p *Prober) Probe(ctx context.Context, proxy Proxy, echo Echo) Probe {
	probe := Probe{Started: p.options.Clock.Now()}
	probe.UID, probe.Echo = proxy.UID, echo.ID
	limit := proxy.HealthCheck.Timeout
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	err := p.run(ctx, proxy, echo, &probe)
	var answered *answerError
	if probe.Observation.Fault == FaultNone && !errors.As(err, &answered) {
		probe.Observation.Fault = faultOf(ctx, err)
	}
	probe.Class = Classify(probe.Observation)
	if proxy.External && probe.Class == ClassAuthFailed {
		probe.Class = ClassOwnerRefused
	}
	if err != nil {
		probe.Detail = shorten(err.Error())
		if limit > 0 && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			probe.Detail += fmt.Sprintf("; the whole probe may take %v", limit)
		}
	}
	probe.Latency = p.since(probe.Started)
	return probe
}

func (p *Prober) since(t time.Time) time.Duration { return p.options.Clock.Since(t) }

// curves are the classic ones. The hybrid that Go prefers (X25519MLKEM768) keeps what is recorded today from being read by
// quantum computers to come; what a probe carries is an address that the target sees anyway, and the hybrid's keys are a
// sixth of what a probe costs, resumed or not.
var curves = []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384}

// maxHeader and maxBody bound what proxies and targets can make the agent read.
const (
	maxHeader = 64 << 10
	maxBody   = 4 << 10
)

// run fills in the probe and returns the error that ended it, nil if the target's answer was read whole.
func (p *Prober) run(ctx context.Context, proxy Proxy, echo Echo, probe *Probe) error {
	o := &probe.Observation
	authorization, err := p.authorization(proxy)
	if err != nil {
		o.Fault = FaultLocal
		return err
	}

	// Without a pool crypto/tls would trust whom the machine trusts.
	roots := p.options.Roots()
	if roots == nil {
		o.Fault = FaultLocal
		return errors.New("it is not known yet which authorities the probe targets' certificates are by")
	}

	o.Stage = StageDial
	conn, err := p.dial(ctx, proxy)
	if err != nil {
		return err
	}
	defer conn.Close()
	probe.Dial = p.since(probe.Started)

	o.Stage = StageConnect
	at := p.options.Clock.Now()
	err = within(ctx, conn, p.options.ConnectTimeout, func() error {
		return p.connect(conn, echo, authorization, o)
	})
	if err != nil {
		return err
	}
	probe.Connect = p.since(at)

	o.Stage = StageTLS
	return within(ctx, conn, p.options.TargetTimeout, func() error {
		at := p.options.Clock.Now()
		secure := tls.Client(conn, &tls.Config{
			RootCAs: roots, ServerName: echo.ServerName, MinVersion: tls.VersionTLS12, Time: p.options.Clock.Now,
			NextProtos: []string{"http/1.1"}, ClientSessionCache: p.sessionsOf(echo.ID), CurvePreferences: curves,
		})
		if err := secure.HandshakeContext(ctx); err != nil {
			return fmt.Errorf("TLS with %s through the proxy: %w", echo.Target(), plainly(err))
		}
		probe.TLS = p.since(at)
		o.Stage = StageRead
		at = p.options.Clock.Now()
		body, err := p.get(secure, echo, o, func() { probe.FirstByte = p.since(at) })
		if err != nil {
			return fmt.Errorf("GET of %s through the proxy: %w", echo.Target(), plainly(err))
		}
		o.Stage = StageDone
		return readEcho(body, o, probe)
	})
}

func (p *Prober) authorization(proxy Proxy) (string, error) {
	if proxy.Credential == nil {
		return "", nil
	}
	user, pass, err := proxy.Credential(p.options.Clock.Now())
	if err != nil {
		return "", fmt.Errorf("the probe's credential: %w", err)
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+pass)), nil
}

func (p *Prober) dial(ctx context.Context, proxy Proxy) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, p.options.DialTimeout)
	defer cancel()
	dialer := p.dialer
	if proxy.Allow != nil {
		dialer.Control = func(_, address string, _ syscall.RawConn) error { return allow(proxy.Allow, address) }
	}
	return dialer.DialContext(ctx, "tcp", proxy.Endpoint)
}

// connect asks for the tunnel. An answer other than 200 is an error, with status and Squid's account of it noted.
func (p *Prober) connect(conn net.Conn, echo Echo, authorization string, o *Observation) error {
	target := echo.Target()
	request := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\nUser-Agent: " + p.options.UserAgent + "\r\n"
	if authorization != "" {
		request += "Proxy-Authorization: " + authorization + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		return fmt.Errorf("asking the proxy: %w", err)
	}
	r := bufio.NewReader(&bounded{from: conn, left: maxHeader})
	resp, err := http.ReadResponse(r, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return fmt.Errorf("the proxy's answer: %w", plainly(err))
	}
	defer resp.Body.Close()
	o.ConnectStatus = resp.StatusCode
	said := resp.Header.Get("X-Squid-Error")
	if ParseSquidError(said).Name != "" {
		o.SquidError = said
	}
	switch {
	case resp.StatusCode != http.StatusOK && said != "":
		return &answerError{what: fmt.Sprintf("the proxy answered %d with %s", resp.StatusCode, describe(said))}
	case resp.StatusCode != http.StatusOK:
		return &answerError{what: fmt.Sprintf("the proxy answered %d", resp.StatusCode)}
	case r.Buffered() > 0:
		return &answerError{what: "the proxy answered 200 with a body"}
	}
	return nil
}

// describe adds the meaning of the error number that Squid reports.
func describe(header string) string {
	squid := ParseSquidError(header)
	switch {
	case squid.Name == "":
		return "an X-Squid-Error that is none"
	case squid.Errno != 0:
		return fmt.Sprintf("%s (%v)", squid.Name, squid.Errno)
	}
	return squid.Name
}

// answerError is an answer that ends a probe: a fault of nobody's I/O.
type answerError struct{ what string }

func (e *answerError) Error() string { return e.what }

func (p *Prober) get(conn net.Conn, echo Echo, o *Observation, firstByte func()) ([]byte, error) {
	request := "GET / HTTP/1.1\r\nHost: " + echo.ServerName + "\r\nUser-Agent: " + p.options.UserAgent +
		"\r\nAccept: application/json\r\nConnection: close\r\n\r\n"
	if _, err := io.WriteString(conn, request); err != nil {
		return nil, err
	}
	r := bufio.NewReader(&bounded{from: conn, left: maxHeader + maxBody})
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	firstByte()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	o.TargetStatus = resp.StatusCode
	return io.ReadAll(io.LimitReader(resp.Body, maxBody))
}

// readEcho takes the exit address out of a target's answer.
func readEcho(body []byte, o *Observation, probe *Probe) error {
	if o.TargetStatus != http.StatusOK {
		return &answerError{what: fmt.Sprintf("the target answered %d", o.TargetStatus)}
	}
	var answer struct {
		Remote netip.Addr `json:"remote"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || !answer.Remote.IsValid() {
		return &answerError{what: `the target's answer is not {"remote":"<address>"}`}
	}
	o.Exit, probe.Exit = true, answer.Remote.Unmap()
	return nil
}

// within runs f, whose reads and writes on conn fail once the time is over or the context is done.
func within(ctx context.Context, conn net.Conn, limit time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	stop := context.AfterFunc(ctx, func() {
		// Any time in the past wakes up whoever waits for the connection. An error means that it is closed already.
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	defer cancel()
	err := f()
	if !stop() && err == nil {
		// The time ran out at the very end: the connection is of no use for what comes next.
		return context.Cause(ctx)
	}
	return err
}
