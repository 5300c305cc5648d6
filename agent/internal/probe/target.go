package probe

import (
	"net/netip"
	"time"
)

// Echo is a target that answers GET / over TLS with {"remote":"<address it saw>"}.
type Echo struct {
	// ID names it in results.
	ID EchoID
	// Addr is where it listens: no resolver is between, and the exit that it sees is of the address's family.
	Addr netip.AddrPort
	// Host is host:port for the proxy to resolve, instead of Addr: the target tells then whether the proxy's resolver
	// works as well. Which family the exit is of is the proxy's choice.
	Host string
	// ServerName is the name that its certificate is checked for, and the request's Host.
	ServerName string
}

// Target is what the proxy is asked for.
func (e Echo) Target() string {
	if e.Host != "" {
		return e.Host
	}
	return e.Addr.String()
}

// family is which exit of a proxy the target sees.
func (e Echo) family() Family {
	if e.Host != "" {
		return FamilyAny
	}
	return familyOf(e.Addr.Addr())
}

// Proxy is what is probed.
type Proxy struct {
	// UID is the Proxy object's.
	UID UID
	// Endpoint is host:port as the agent reaches it.
	Endpoint string
	// External says that someone else runs it, and that Credential gives what crawlers are given too.
	External bool
	// Allow is asked about the very address that is dialled, after its name was resolved; an error keeps the probe from
	// it. Nil allows all.
	Allow func(netip.Addr) error
	// Known is what was held of the proxy, at this endpoint, before the agent was restarted; its zero value is nothing.
	// It counts where the proxy is new to the runner.
	Known Known
	// Credential returns user name and password for a probe at now; an error makes the probe an AgentFault. Nil probes
	// without credentials. It is called from several goroutines.
	Credential func(now time.Time) (user, pass string, err error)
	// HealthCheck is how this proxy is probed and judged.
	HealthCheck HealthCheck
}

// HealthCheck says how often and how strictly one proxy is probed. A field that is not set is as for every proxy.
type HealthCheck struct {
	// Interval is the time between two probes while the proxy's state is settled.
	Interval time.Duration
	// Timeout bounds one probe from dial to the last byte, beside the prober's own bounds for its stages. One that is
	// shorter than ConnectTimeout makes a target that does not answer look like a proxy that is stuck.
	Timeout time.Duration
	// FailAfter and PassAfter are as in [Thresholds].
	FailAfter, PassAfter int
}

// thresholds are what the proxy is judged by. Its failures must stretch over an interval of its own and some more.
func (h HealthCheck) thresholds() Thresholds {
	return Thresholds{FailAfter: h.FailAfter, PassAfter: h.PassAfter, FailSpan: spanOf(h.Interval)}
}

// spanOf is the FailSpan that goes with an interval.
func spanOf(interval time.Duration) time.Duration { return interval + interval/5 }
