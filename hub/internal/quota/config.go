package quota

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// Limits bound one tenant or one principal. Zero is no bound.
type Limits struct {
	// MaxLeases is how many leases are held at a time, those that are waited for included.
	MaxLeases int `json:"maxLeases,omitempty"`
	// AcquiresPerSecond is how many leases are asked for a second, granted or not.
	AcquiresPerSecond float64 `json:"acquiresPerSecond,omitempty"`
	// Burst is how many may be asked for at once: by default what comes in two seconds, at least [lease.MaxCount].
	Burst int `json:"burst,omitempty"`
}

// Config is the file of limits.
type Config struct {
	// Tenant and Principal are for those that have no entry of their own.
	Tenant    Limits `json:"tenant,omitempty"`
	Principal Limits `json:"principal,omitempty"`
	// Tenants has limits by namespace, and Principals by principal, in place of the others.
	Tenants    map[string]Limits `json:"tenants,omitempty"`
	Principals map[string]Limits `json:"principals,omitempty"`
}

// Parse reads a file of limits. It is strict: what it does not know is an error, so that no limit is lost by a typing
// mistake.
func Parse(data []byte) (Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return Config{}, fmt.Errorf("quotas: %w; write tenant, principal, tenants and principals, each with maxLeases, acquiresPerSecond and burst", err)
	}
	for _, one := range []struct {
		name   string
		limits *Limits
	}{{"tenant", &c.Tenant}, {"principal", &c.Principal}} {
		if err := one.limits.complete(one.name); err != nil {
			return Config{}, err
		}
	}
	for _, of := range []struct {
		name    string
		entries map[string]Limits
	}{{"tenants", c.Tenants}, {"principals", c.Principals}} {
		for _, key := range slices.Sorted(maps.Keys(of.entries)) {
			limits := of.entries[key]
			if err := limits.complete(of.name + "." + key); err != nil {
				return Config{}, err
			}
			of.entries[key] = limits
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(c.Tenants)) {
		if len(validation.IsDNS1123Label(namespace)) > 0 {
			return Config{}, fmt.Errorf("quotas: tenants has %q; write namespaces", namespace)
		}
	}
	return c, nil
}

// Load reads a file of limits.
func Load(path string) (Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, fmt.Errorf("quotas: %w", err)
	}
	return Parse(data)
}

func (l *Limits) complete(name string) error {
	switch {
	case l.MaxLeases < 0 || l.Burst < 0 || !(l.AcquiresPerSecond >= 0) || math.IsInf(l.AcquiresPerSecond, 0):
		return fmt.Errorf("quotas: %s has a limit below 0; leave it out for none", name)
	case l.Burst > 0 && l.AcquiresPerSecond == 0:
		return fmt.Errorf("quotas: %s has a burst without acquiresPerSecond; set both or neither", name)
	case l.AcquiresPerSecond > 0 && l.Burst == 0:
		l.Burst = max(lease.MaxCount, int(math.Ceil(2*l.AcquiresPerSecond)))
	}
	return nil
}

func (c *Config) of(w who) Limits {
	entries, otherwise := c.Tenants, c.Tenant
	if w.principal {
		entries, otherwise = c.Principals, c.Principal
	}
	if limits, has := entries[w.name]; has {
		return limits
	}
	return otherwise
}
