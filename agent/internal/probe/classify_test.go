package probe_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/probe"
)

func TestClassify(t *testing.T) {
	connect := func(status int, squid string) probe.Observation {
		return probe.Observation{Stage: probe.StageConnect, ConnectStatus: status, SquidError: squid}
	}
	fault := func(stage probe.Stage, fault probe.Fault) probe.Observation {
		o := probe.Observation{Stage: stage, Fault: fault}
		if stage > probe.StageConnect {
			o.ConnectStatus = 200
		}
		return o
	}
	answer := func(status int, exit bool) probe.Observation {
		return probe.Observation{Stage: probe.StageDone, ConnectStatus: 200, TargetStatus: status, Exit: exit}
	}
	cases := map[string]struct {
		reason string
		seen   probe.Observation
		class  probe.Class
		blame  probe.Blame
	}{
		"OK": {"the echo came through", answer(200, true), probe.ClassOK, probe.BlameNobody},

		"DialRefused":     {"nobody listens", fault(probe.StageDial, probe.FaultRefused), probe.ClassProxyDown, probe.BlameProxy},
		"DialUnreachable": {"no route", fault(probe.StageDial, probe.FaultUnreachable), probe.ClassProxyDown, probe.BlameProxy},
		"DialTimeout":     {"no answer from the host", fault(probe.StageDial, probe.FaultTimeout), probe.ClassProxyDown, probe.BlameProxy},
		"DialLocal":       {"the agent has no sockets left", fault(probe.StageDial, probe.FaultLocal), probe.ClassAgentFault, probe.BlameAgent},

		"NoStatusInTime":  {"out of file descriptors, or slower DNS than the deadline", fault(probe.StageConnect, probe.FaultTimeout), probe.ClassProxyStuck, probe.BlameProxy},
		"ClosedUnasked":   {"accepted by the kernel, dropped by the proxy", fault(probe.StageConnect, probe.FaultClosed), probe.ClassProxyDown, probe.BlameProxy},
		"ResetUnasked":    {"accepted by the kernel, dropped by the proxy", fault(probe.StageConnect, probe.FaultReset), probe.ClassProxyDown, probe.BlameProxy},
		"NotHTTP":         {"something else listens there", fault(probe.StageConnect, probe.FaultProtocol), probe.ClassUnexpected, probe.BlameProxy},
		"ConnectLocal":    {"cancelled", fault(probe.StageConnect, probe.FaultLocal), probe.ClassAgentFault, probe.BlameAgent},
		"AuthFailed":      {"keys have not arrived yet", connect(407, "ERR_CACHE_ACCESS_DENIED 0"), probe.ClassAuthFailed, probe.BlameConfig},
		"PolicyName":      {"our denial by name", connect(403, "ERR_SHOAL_POLICY 0"), probe.ClassPolicyDenied, probe.BlameConfig},
		"PolicyAddress":   {"our denial by address", connect(403, "ERR_SHOAL_DST 0"), probe.ClassPolicyDenied, probe.BlameConfig},
		"PolicyRequest":   {"our denial by port", connect(403, "ERR_SHOAL_REQUEST 0"), probe.ClassPolicyDenied, probe.BlameConfig},
		"PolicySquid":     {"a stock denial", connect(403, "ERR_ACCESS_DENIED 0"), probe.ClassPolicyDenied, probe.BlameConfig},
		"PolicyNotSquid":  {"a foreign proxy's denial", connect(403, ""), probe.ClassPolicyDenied, probe.BlameConfig},
		"Overloaded":      {"the limit of connections", connect(429, "429:ERR_SHOAL_TOO_MANY 0"), probe.ClassOverloaded, probe.BlameProxy},
		"DNSFail":         {"our rule for names that do not resolve", connect(502, "502:ERR_DNS_FAIL 0"), probe.ClassDNSFail, probe.BlameEither},
		"DNSFailOld":      {"Squid 5.7 without our rule", connect(500, "ERR_CANNOT_FORWARD 0"), probe.ClassDNSFail, probe.BlameEither},
		"DNSFailNew":      {"Squid 6.4 without our rule", connect(503, "ERR_DNS_FAIL 0"), probe.ClassDNSFail, probe.BlameEither},
		"TargetRefused":   {"errno 111", connect(503, "ERR_CONNECT_FAIL 111"), probe.ClassConnectFail, probe.BlameEither},
		"TargetTimeout":   {"errno 110", connect(503, "ERR_CONNECT_FAIL 110"), probe.ClassConnectFail, probe.BlameEither},
		"TargetNoHost":    {"errno 113", connect(503, "ERR_CONNECT_FAIL 113"), probe.ClassConnectFail, probe.BlameEither},
		"TargetNoNet":     {"errno 101", connect(503, "ERR_CONNECT_FAIL 101"), probe.ClassConnectFail, probe.BlameEither},
		"TargetReset":     {"errno 104", connect(503, "ERR_CONNECT_FAIL 104"), probe.ClassConnectFail, probe.BlameEither},
		"TargetNotSquid":  {"a foreign proxy whose target is down", connect(502, ""), probe.ClassConnectFail, probe.BlameEither},
		"TargetReadTime":  {"the proxy gave up waiting", connect(504, "ERR_READ_TIMEOUT 0"), probe.ClassTargetSlow, probe.BlameTarget},
		"SquidBroken":     {"an internal error", connect(500, "ERR_CANNOT_FORWARD_X 0"), probe.ClassUnexpected, probe.BlameProxy},
		"NoWayOut":        {"Squid has tried every way", connect(503, "ERR_CANNOT_FORWARD 0"), probe.ClassConnectFail, probe.BlameEither},
		"NoSocketLeft":    {"Squid is out of file descriptors or ports", connect(500, "ERR_SOCKET_FAILURE 24"), probe.ClassOverloaded, probe.BlameProxy},
		"BadRequest":      {"not a forward proxy", connect(400, ""), probe.ClassUnexpected, probe.BlameProxy},
		"TunnelWithBody":  {"a web server that says 200 to everything", connect(200, ""), probe.ClassUnexpected, probe.BlameProxy},
		"HandshakeFailed": {"the target, or somebody between", fault(probe.StageTLS, probe.FaultProtocol), probe.ClassTargetTLS, probe.BlameTarget},
		"HandshakeReset":  {"a target that resets right after accepting", fault(probe.StageTLS, probe.FaultReset), probe.ClassTargetTLS, probe.BlameTarget},
		"HandshakeTime":   {"a target that never speaks TLS", fault(probe.StageTLS, probe.FaultTimeout), probe.ClassTargetTLS, probe.BlameTarget},
		"ReadBroken":      {"cut off in the answer", fault(probe.StageRead, probe.FaultClosed), probe.ClassTargetTLS, probe.BlameTarget},
		"ReadTimeout":     {"the target thinks too long", fault(probe.StageRead, probe.FaultTimeout), probe.ClassTargetSlow, probe.BlameTarget},
		"ReadLocal":       {"cancelled", fault(probe.StageRead, probe.FaultLocal), probe.ClassAgentFault, probe.BlameAgent},
		"Blocked":         {"the target refuses this address", answer(403, false), probe.ClassTargetBlocked, probe.BlameExit},
		"RateLimited":     {"the target refuses this address for now", answer(429, false), probe.ClassTargetBlocked, probe.BlameExit},
		"TargetBroken":    {"the echo itself fails", answer(500, false), probe.ClassTargetAnswer, probe.BlameTarget},
		"TargetNoEcho":    {"something else answers", answer(200, false), probe.ClassTargetAnswer, probe.BlameTarget},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := probe.Classify(tc.seen)
			if got != tc.class || got.Blame() != tc.blame {
				t.Errorf("%s: %s, blame %s; want %s, blame %s", tc.reason, got, got.Blame(), tc.class, tc.blame)
			}
		})
	}
}

func TestParseSquidError(t *testing.T) {
	for header, want := range map[string]probe.SquidError{
		"ERR_CONNECT_FAIL 111":      {Name: "ERR_CONNECT_FAIL", Errno: syscall.ECONNREFUSED},
		"502:ERR_DNS_FAIL 0":        {Name: "ERR_DNS_FAIL"},
		"ERR_SHOAL_DST":             {Name: "ERR_SHOAL_DST"},
		"":                          {},
		"502:ERR_DNS_FAIL zero":     {},
		"evil\nERR_CONNECT_FAIL 1":  {},
		"ERR_CONNECT_FAIL 11111111": {},
	} {
		if got := probe.ParseSquidError(header); got != want {
			t.Errorf("%q: %+v, want %+v", header, got, want)
		}
	}
}

func TestFaultOf(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	op := func(err error) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)} }
	for name, tc := range map[string]struct {
		ctx  context.Context
		err  error
		want probe.Fault
	}{
		"None":         {t.Context(), nil, probe.FaultNone},
		"Refused":      {t.Context(), op(syscall.ECONNREFUSED), probe.FaultRefused},
		"NoRoute":      {t.Context(), op(syscall.EHOSTUNREACH), probe.FaultUnreachable},
		"NoNetwork":    {t.Context(), op(syscall.ENETUNREACH), probe.FaultUnreachable},
		"NoSuchHost":   {t.Context(), &net.DNSError{IsNotFound: true}, probe.FaultUnreachable},
		"ResolverDown": {t.Context(), &net.DNSError{IsTimeout: true}, probe.FaultLocal},
		"Deadline":     {t.Context(), fmt.Errorf("x: %w", os.ErrDeadlineExceeded), probe.FaultTimeout},
		"Context":      {t.Context(), context.DeadlineExceeded, probe.FaultTimeout},
		"KernelTime":   {t.Context(), op(syscall.ETIMEDOUT), probe.FaultTimeout},
		"Reset":        {t.Context(), op(syscall.ECONNRESET), probe.FaultReset},
		"Broken":       {t.Context(), op(syscall.EPIPE), probe.FaultReset},
		"Ended":        {t.Context(), io.ErrUnexpectedEOF, probe.FaultClosed},
		"NoSockets":    {t.Context(), op(syscall.EMFILE), probe.FaultLocal},
		"NoPorts":      {t.Context(), op(syscall.EADDRNOTAVAIL), probe.FaultLocal},
		"Cancelled":    {cancelled, os.ErrDeadlineExceeded, probe.FaultLocal},
		"Certificate":  {t.Context(), x509.UnknownAuthorityError{}, probe.FaultProtocol},
		"Other":        {t.Context(), errors.New("malformed HTTP response"), probe.FaultProtocol},
	} {
		t.Run(name, func(t *testing.T) {
			if got := probe.FaultOf(tc.ctx, tc.err); got != tc.want {
				t.Errorf("%v is fault %d, want %d", tc.err, got, tc.want)
			}
		})
	}
}
