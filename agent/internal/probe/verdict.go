package probe

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// State is what is known of a proxy's health.
type State string

const (
	// StateUnknown means that the proxy has never worked: nothing is leased on trust.
	StateUnknown State = "Unknown"
	// StateReady means that pages come through it.
	StateReady State = "Ready"
	// StateUnhealthy means that it worked and does not any more.
	StateUnhealthy State = "Unhealthy"
)

// Thresholds say how strictly one proxy is judged.
type Thresholds struct {
	// FailAfter is the number of consecutive failures blamed on a proxy that make it Unhealthy. Default 3.
	FailAfter int
	// FailSpan is the least time over which they must stretch. It must be longer than the probe interval, so that
	// every other proxy of that interval has been probed as well and a common cause shows. Default 12 s.
	FailSpan time.Duration
	// PassAfter is the number of consecutive successes that make an Unhealthy proxy Ready. A proxy that has never
	// failed needs one. Default 2.
	PassAfter int
}

// or fills in what is not set.
func (t Thresholds) or(d Thresholds) Thresholds {
	if t.FailAfter <= 0 {
		t.FailAfter = d.FailAfter
	}
	if t.FailSpan <= 0 {
		t.FailSpan = d.FailSpan
	}
	if t.PassAfter <= 0 {
		t.PassAfter = d.PassAfter
	}
	return t
}

// Settings are a judge's settings. The zero value of each field means the default in its comment.
type Settings struct {
	// Thresholds are for proxies that have none of their own.
	Thresholds
	// StuckAfter is the number of consecutive probes without any answer that make a saturated proxy Unhealthy: busy
	// for that long is broken. A proxy whose FailAfter is greater needs that many. Default 10.
	StuckAfter int
	// Targets are the echo targets in use. With one, its failures say nothing about a proxy; from two on, a proxy through
	// which all of them fail is to blame. Targets of a family that a proxy never had an answer by do not count for it: a
	// proxy without IPv6 whose only IPv4 target fails is one whose only target fails.
	Targets []Target
	// FreezeFrom is the least number of Ready proxies at which verdicts can freeze. Default 3.
	FreezeFrom int
	// ExitMemory is the least time that an exit address stays in the set after it was last seen. Default 10 min.
	ExitMemory time.Duration
}

// Target is an echo target as far as a judge needs it.
type Target struct {
	// ID is how results name it.
	ID EchoID
	// Family is which exit of a proxy it sees.
	Family Family
}

func (s Settings) withDefaults() Settings {
	set := func(field *int, value int) {
		if *field == 0 {
			*field = value
		}
	}
	set(&s.FailAfter, 3)
	set(&s.PassAfter, 2)
	set(&s.StuckAfter, 10)
	set(&s.FreezeFrom, 3)
	if s.FailSpan == 0 {
		s.FailSpan = 12 * time.Second
	}
	if s.ExitMemory == 0 {
		s.ExitMemory = 10 * time.Minute
	}
	return s
}

func (s Settings) check() error {
	if s.FailAfter < 1 || s.PassAfter < 1 || s.StuckAfter < 1 || s.FreezeFrom < 1 || s.FailSpan < 0 || s.ExitMemory < 0 {
		return fmt.Errorf("probe settings: thresholds must be positive, got %+v", s)
	}
	if len(s.Targets) == 0 {
		return errors.New("probe settings: no echo target; give at least one")
	}
	return nil
}

// Result is one finished probe, as a judge needs it.
type Result struct {
	// UID is the proxy.
	UID UID
	// Echo is the target.
	Echo EchoID
	// Class is what was found out.
	Class Class
	// Exit is the address that the target saw; valid only with ClassOK.
	Exit netip.Addr
	// Latency is the time from the first byte sent to the last received; meaningful only with ClassOK.
	Latency time.Duration
	// Detail is for people: what exactly failed. It holds no credentials.
	Detail string
}

// Verdict is what a judge holds of a proxy.
type Verdict struct {
	// UID is the proxy.
	UID UID
	// State is its health, and Since the time of the last change.
	State State
	Since time.Time
	// Saturated means that it is too busy to answer: it stays Ready, but must get no new leases. Never without Ready.
	Saturated bool
	// Cause is why a proxy that is not Ready is not: the class that made it Unhealthy, until FailAfter results in a row are
	// of another. Empty while Ready, and until a new proxy has failed so often.
	Cause Class
	// Class and Detail are those of the latest result.
	Class  Class
	Detail string
	// Successes and Failures are the consecutive ones that count towards a change.
	Successes, Failures int
	// Exits are the addresses that targets saw lately, sorted; IPv6 ones stand for their /64.
	Exits []netip.Addr
	// Latency is a moving average over successful probes.
	Latency time.Duration
	// LastProbe and LastOK are the times of the latest result and of the latest success; zero if none.
	LastProbe, LastOK time.Time
}

// Known is what was held of a proxy before the agent was restarted.
type Known struct {
	// State and Since are as in [Verdict].
	State State
	Since time.Time
	// Cause is as in [Verdict].
	Cause Class
	// Exits are as in [Verdict].
	Exits []netip.Addr
}
