package computeclient

import "time"

// Item is one item of an instance's metadata.
type Item struct {
	Key, Value string
}

// InstanceSpec is an instance to make.
type InstanceSpec struct {
	Name        string
	Description string
	// MachineType is a name such as e2-small.
	MachineType string
	// Image is projects/P/global/images/I, or …/images/family/F.
	Image  string
	DiskGB int64
	// Network and Subnetwork are partial URLs; either may be empty, and follows from the other then.
	Network, Subnetwork string
	// External gives the instance an address of the internet. Address is the reserved one; empty means any.
	External bool
	Address  string
	// NetworkTier is PREMIUM or STANDARD, with External.
	NetworkTier string
	Tags        []string
	Labels      map[string]string
	Metadata    []Item
	Spot        bool
	// MaxRunDuration is when Compute Engine itself removes the instance; 0 is never.
	MaxRunDuration time.Duration
}

// Instance is what Compute Engine says of an instance.
type Instance struct {
	ID            uint64
	Name          string
	Zone          string
	Status        string
	StatusMessage string
	CreatedAt     time.Time
	Labels        map[string]string
	Spot          bool
	// InternalIP and ExternalIP are those of the first interface; empty where there is none yet.
	InternalIP, ExternalIP string
	Metadata               []Item
	// MetadataFingerprint must come with a change of the metadata, so that nobody else's is lost.
	MetadataFingerprint string
}

// Operation is work that Compute Engine has taken.
type Operation struct {
	Name string
	// Done says that the work has ended, well or not. A status that is not known is not done.
	Done bool
	// Status is PENDING, RUNNING or DONE.
	Status string
	// Type is what is done: insert, delete, compute.instances.preempted.
	Type string
	// HTTPStatus is the status that the request would have been answered with, had it failed at once; 0 otherwise.
	HTTPStatus int
	// HTTPMessage goes with it.
	HTTPMessage string
	// Failures are why the work failed. They are there without an HTTPStatus too, and HTTPStatus is without them.
	Failures []Failure
}

// Failed says whether the work has ended, and not well.
func (o Operation) Failed() bool {
	return o.Done && (len(o.Failures) > 0 || o.HTTPStatus >= 400)
}

// Failure is one reason why an operation failed.
type Failure struct {
	// Code is Compute Engine's: ZONE_RESOURCE_POOL_EXHAUSTED.
	Code string
	// Message is for people.
	Message string
	// Quota is which quota was exceeded, where Compute Engine says so.
	Quota *Quota
}

// Quota names a quota.
type Quota struct {
	// Metric is such as compute.googleapis.com/in_use_addresses, Limit such as IN-USE-ADDRESSES-per-project-region.
	Metric, Limit string
	// Region is the region it is of; empty for those of the whole project.
	Region string
	// Max is how much there is.
	Max float64
}

// Listing is what a list of instances has brought.
type Listing struct {
	Instances []Instance
	// Unreachable are the scopes that could not be read: "zones/europe-west1-b". Nothing may be concluded of them.
	Unreachable []string
}

// AddressSpec is an address to reserve.
type AddressSpec struct {
	Name        string
	Description string
	// NetworkTier is PREMIUM or STANDARD.
	NetworkTier string
}

// Address is a reserved address.
type Address struct {
	Name        string
	Description string
	// Address is empty while it is being reserved.
	Address string
	// Status is RESERVING, RESERVED or IN_USE.
	Status    string
	CreatedAt time.Time
}
