package computefake

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"
)

// Options configures a [Server].
type Options struct {
	// Clock moves everything. It must be given.
	Clock clock.WithTicker
	// Projects are the projects that exist. At least one.
	Projects []string
	// Zones are the zones that exist, such as "europe-west1-b"; their regions follow from them. At least one.
	Zones []string
	// Tokens gives, by project, the bearer token that a call to it must bring. A project without one takes every caller.
	Tokens map[string]string
	// MachineTypes gives the machine types that exist, with their processors. Nil means DefaultMachineTypes.
	MachineTypes map[string]int
	// Images are the images and families that exist: "projects/cos-cloud/global/images/family/cos-stable". Nil means
	// DefaultImages.
	Images []string
	// Networks are the VPC networks of every project. Nil means "default".
	Networks []string
	// Subnetworks are the subnetworks that every region has. Nil means "default".
	Subnetworks []string
	// DualStackSubnetworks are those that every region has beside them, with external IPv6.
	DualStackSubnetworks []string
	// Quotas are the limits of every region, by metric. A metric that is not named has DefaultQuota.
	Quotas map[string]float64
	// Timing is how long things take.
	Timing Timing
	// AlwaysPartial answers a list of which a zone is unreachable with what there is, even if the caller did not ask for
	// partial success.
	AlwaysPartial bool
	// Booted means that instances run for real: one that is due to be RUNNING waits until [Server.Booted] or
	// [Server.BootFailed] was called for it.
	Booted bool
	// NATRange is where external addresses come from, InternalRange internal ones. Defaults 198.18.0.0/15 (the range
	// for benchmarks, routed nowhere) and 10.128.0.0/9.
	NATRange, InternalRange netip.Prefix
}

// Timing is how long things take. Zero values mean the defaults; something that takes no time at all is -1.
type Timing struct {
	// Pending is from a call until its operation is RUNNING. Default 200 ms.
	Pending time.Duration
	// Staging is from the insert until the instance is STAGING, Running until it is RUNNING and its insert is DONE.
	// Defaults 1 s and 3 s.
	Staging, Running time.Duration
	// Fail is from the insert until a failing one is DONE. Default 2 s.
	Fail time.Duration
	// Stop is how long an instance is STOPPING before it is gone or TERMINATED. Default 4 s.
	Stop time.Duration
	// Preempt is the same for a preempted one. Default 30 s.
	Preempt time.Duration
	// Change is how long setMetadata and the like take. Default 500 ms.
	Change time.Duration
	// RequestIDs is how long a request ID is remembered. Default 60 min, the least that is promised.
	RequestIDs time.Duration
}

// DefaultQuota is the limit of a metric that nobody named: more than any test takes.
const DefaultQuota = 100_000

// The metrics that are counted.
const (
	MetricInstances       = "INSTANCES"
	MetricCPUs            = "CPUS"
	MetricPreemptibleCPUs = "PREEMPTIBLE_CPUS"
	MetricInUseAddresses  = "IN_USE_ADDRESSES"
	MetricStaticAddresses = "STATIC_ADDRESSES"
	MetricDisksGB         = "DISKS_TOTAL_GB"
	MetricSSDGB           = "SSD_TOTAL_GB"
	// MetricCPUsAllRegions is a project's, not a region's.
	MetricCPUsAllRegions = "CPUS_ALL_REGIONS"
)

// regionalMetrics are those that a region answers with.
var regionalMetrics = []string{
	MetricCPUs, MetricDisksGB, MetricInUseAddresses, MetricInstances, MetricPreemptibleCPUs, MetricSSDGB, MetricStaticAddresses,
}

// DefaultMachineTypes are the machine types of [Options] that name none.
func DefaultMachineTypes() map[string]int {
	return map[string]int{
		"e2-micro": 2, "e2-small": 2, "e2-medium": 2, "e2-standard-2": 2, "e2-standard-4": 4, "f1-micro": 1, "g1-small": 1,
		"n1-standard-1": 1, "n2-standard-2": 2, "n2d-standard-2": 2, "t2d-standard-1": 1,
	}
}

// DefaultImages are the images of [Options] that name none.
func DefaultImages() []string {
	return []string{
		"projects/cos-cloud/global/images/family/cos-stable",
		"projects/cos-cloud/global/images/family/cos-beta",
		"projects/cos-cloud/global/images/cos-stable-117-18613-0-0",
		"projects/debian-cloud/global/images/family/debian-12",
		"projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64",
	}
}

func orDefault(d *time.Duration, value time.Duration) {
	switch {
	case *d == 0:
		*d = value
	case *d < 0:
		*d = 0
	}
}

func (t Timing) withDefaults() Timing {
	orDefault(&t.Pending, 200*time.Millisecond)
	orDefault(&t.Staging, time.Second)
	orDefault(&t.Running, 3*time.Second)
	orDefault(&t.Fail, 2*time.Second)
	orDefault(&t.Stop, 4*time.Second)
	orDefault(&t.Preempt, 30*time.Second)
	orDefault(&t.Change, 500*time.Millisecond)
	orDefault(&t.RequestIDs, time.Hour)
	t.Staging = max(t.Staging, t.Pending)
	t.Running = max(t.Running, t.Staging)
	return t
}

var (
	projectPattern = regexp.MustCompile(`^[a-z][-a-z0-9]{4,28}[a-z0-9]$`)
	zonePattern    = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+-[a-z]$`)
)

// withDefaults fills what is missing, or says what is wrong.
func (o Options) withDefaults() (Options, error) {
	if o.Clock == nil {
		return o, errors.New("compute fake: a clock is required")
	}
	if len(o.Projects) == 0 || len(o.Zones) == 0 {
		return o, errors.New("compute fake: at least one project and one zone are required")
	}
	for _, p := range o.Projects {
		if !projectPattern.MatchString(p) {
			return o, fmt.Errorf("compute fake: project %q: 6 to 30 lower-case letters, digits and hyphens, a letter first", p)
		}
	}
	for _, z := range o.Zones {
		if !zonePattern.MatchString(z) {
			return o, fmt.Errorf("compute fake: zone %q: write it like europe-west1-b", z)
		}
	}
	for p := range o.Tokens {
		if !slices.Contains(o.Projects, p) {
			return o, fmt.Errorf("compute fake: a token for project %q, which does not exist", p)
		}
	}
	o.Zones = slices.Compact(slices.Sorted(slices.Values(o.Zones)))
	if o.MachineTypes == nil {
		o.MachineTypes = DefaultMachineTypes()
	}
	if o.Images == nil {
		o.Images = DefaultImages()
	}
	if o.Networks == nil {
		o.Networks = []string{"default"}
	}
	if o.Subnetworks == nil {
		o.Subnetworks = []string{"default"}
	}
	if !o.NATRange.IsValid() {
		o.NATRange = netip.MustParsePrefix("198.18.0.0/15")
	}
	if !o.InternalRange.IsValid() {
		o.InternalRange = netip.MustParsePrefix("10.128.0.0/9")
	}
	o.Quotas = maps.Clone(o.Quotas)
	o.Timing = o.Timing.withDefaults()
	return o, nil
}

// regionOf gives the region of a zone: europe-west1 of europe-west1-b.
func regionOf(zone string) string { return zone[:strings.LastIndexByte(zone, '-')] }

// regions gives the regions in order.
func (o Options) regions() []string {
	out := make([]string, 0, len(o.Zones))
	for _, z := range o.Zones {
		out = append(out, regionOf(z))
	}
	return slices.Compact(slices.Sorted(slices.Values(out)))
}
