package squid

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"
)

// What a zero field of [Config] means.
const (
	DefaultAuthHelper         = "/usr/local/bin/shoal-auth"
	DefaultKeysDir            = "/etc/shoal/keys"
	DefaultShutdownLifetime   = 25 * time.Second
	DefaultMaxFileDescriptors = 16384
)

// Config is what one proxy's squid.conf depends on.
type Config struct {
	// Port is where Squid listens, on all addresses, IPv4 and IPv6.
	Port uint16
	// ProxyUID is the UID of the Proxy object, which credentials must name. Exactly one of it and ProxyUIDFile is set.
	ProxyUID string
	// ProxyUIDFile is an absolute path of a file with the UID, for a configuration that several proxies share.
	ProxyUIDFile string
	// PlainPorts are the ports open to plain HTTP; empty means that plain HTTP is refused.
	PlainPorts []uint16
	// ConnectPorts are the ports open to CONNECT, at least one.
	ConnectPorts []uint16
	// ClusterCIDRs are the member's own pod, service and node ranges, never reachable. Empty where there is no cluster.
	ClusterCIDRs []netip.Prefix
	// AllowedCIDRs are private ranges that the proxy may reach all the same.
	AllowedCIDRs []netip.Prefix
	// EchoTargets are the probe targets. CONNECT to them is open even in private ranges and on a port that is not
	// among ConnectPorts.
	EchoTargets []netip.AddrPort
	// AuthHelper is the absolute path of shoal-auth; empty means DefaultAuthHelper.
	AuthHelper string
	// KeysDir is the absolute path of its key directory; empty means DefaultKeysDir.
	KeysDir string
	// ShutdownLifetime is how long Squid lives after SIGTERM, always, so that open tunnels can end; whole seconds.
	// Whoever stops it must wait 10 s longer. Zero means DefaultShutdownLifetime.
	ShutdownLifetime time.Duration
	// MaxFileDescriptors bounds the connections: a tunnel takes two. Zero means DefaultMaxFileDescriptors. It is always
	// rendered, because Squid sizes a table by an unlimited RLIMIT_NOFILE and dies of it.
	MaxFileDescriptors int

	// onLoopback is for tests that run Squid: it listens on 127.0.0.1 only and may reach targets in 127.0.0.0/8. No
	// user's input leads here.
	onLoopback bool
}

// FieldError says that a field of [Config] cannot be rendered.
type FieldError struct {
	// Field is the name of the field.
	Field string
	// Problem says what is wrong and what to write instead.
	Problem string
}

// Error returns field and problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// withDefaults returns the configuration with its zero fields filled, or the first *FieldError.
func (c Config) withDefaults() (Config, error) {
	if c.AuthHelper == "" {
		c.AuthHelper = DefaultAuthHelper
	}
	if c.KeysDir == "" {
		c.KeysDir = DefaultKeysDir
	}
	if c.ShutdownLifetime == 0 {
		c.ShutdownLifetime = DefaultShutdownLifetime
	}
	if c.MaxFileDescriptors == 0 {
		c.MaxFileDescriptors = DefaultMaxFileDescriptors
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	var err error
	if c.PlainPorts, err = cleanPorts("PlainPorts", c.PlainPorts); err != nil {
		return Config{}, err
	}
	if c.ConnectPorts, err = cleanPorts("ConnectPorts", c.ConnectPorts); err != nil {
		return Config{}, err
	}
	return c, nil
}

// These patterns keep a value from ending a line or a word of squid.conf and so becoming another directive.
var (
	uidPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	pathPattern = regexp.MustCompile(`^/[A-Za-z0-9._/-]{1,255}$`)
)

func (c Config) check() error {
	switch {
	case c.Port == 0:
		return &FieldError{Field: "Port", Problem: "is 0; give the port to listen on"}
	case (c.ProxyUID == "") == (c.ProxyUIDFile == ""):
		return &FieldError{Field: "ProxyUID", Problem: "give either the UID or a file with it"}
	case c.ProxyUID != "" && !uidPattern.MatchString(c.ProxyUID):
		return &FieldError{Field: "ProxyUID", Problem: fmt.Sprintf("%q is no Kubernetes UID", c.ProxyUID)}
	case len(c.ConnectPorts) == 0:
		return &FieldError{Field: "ConnectPorts", Problem: "is empty; give at least one port, such as 443"}
	case c.ShutdownLifetime < time.Second || c.ShutdownLifetime%time.Second != 0:
		return &FieldError{Field: "ShutdownLifetime", Problem: fmt.Sprintf("is %v; use whole seconds, at least 1s", c.ShutdownLifetime)}
	case c.MaxFileDescriptors < 64 || c.MaxFileDescriptors > 1<<20:
		return &FieldError{Field: "MaxFileDescriptors", Problem: fmt.Sprintf("is %d; use 64 to %d", c.MaxFileDescriptors, 1<<20)}
	}
	for _, f := range []struct{ field, value string }{
		{"ProxyUIDFile", c.ProxyUIDFile}, {"AuthHelper", c.AuthHelper}, {"KeysDir", c.KeysDir},
	} {
		if f.value != "" && !pathPattern.MatchString(f.value) {
			return &FieldError{Field: f.field, Problem: fmt.Sprintf("%q is not an absolute path of letters, digits, and ._-/", f.value)}
		}
	}
	return nil
}

// cleanPorts returns the ports sorted and each once: Squid warns of repeated values.
func cleanPorts(field string, ports []uint16) ([]uint16, error) {
	out := slices.Clone(ports)
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > 0 && out[0] == 0 {
		return nil, &FieldError{Field: field, Problem: "contains 0; ports are 1 to 65535"}
	}
	return out, nil
}
