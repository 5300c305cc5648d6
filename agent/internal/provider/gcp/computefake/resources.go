package computefake

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// Int64 is a 64-bit number as the API writes it: in quotes. It is read with and without them.
type Int64 int64

// MarshalJSON writes the number in quotes.
func (i Int64) MarshalJSON() ([]byte, error) {
	return []byte(`"` + strconv.FormatInt(int64(i), 10) + `"`), nil
}

// UnmarshalJSON reads the number with or without quotes.
func (i *Int64) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if len(text) > 1 && text[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return fmt.Errorf("%s is no 64-bit number", data)
	}
	*i = Int64(n)
	return nil
}

// Instance is an instance as the API writes it. The fields are those that the fake serves and takes; another one in a
// request is refused.
type Instance struct {
	Kind               string             `json:"kind,omitempty"`
	ID                 Int64              `json:"id,omitempty"`
	CreationTimestamp  string             `json:"creationTimestamp,omitempty"`
	Name               string             `json:"name,omitempty"`
	Description        string             `json:"description,omitempty"`
	Tags               *Tags              `json:"tags,omitempty"`
	MachineType        string             `json:"machineType,omitempty"`
	Status             string             `json:"status,omitempty"`
	StatusMessage      string             `json:"statusMessage,omitempty"`
	Zone               string             `json:"zone,omitempty"`
	CanIPForward       bool               `json:"canIpForward,omitempty"`
	NetworkInterfaces  []NetworkInterface `json:"networkInterfaces,omitempty"`
	Disks              []Disk             `json:"disks,omitempty"`
	Metadata           *Metadata          `json:"metadata,omitempty"`
	ServiceAccounts    []ServiceAccount   `json:"serviceAccounts,omitempty"`
	SelfLink           string             `json:"selfLink,omitempty"`
	Scheduling         *Scheduling        `json:"scheduling,omitempty"`
	Labels             map[string]string  `json:"labels,omitempty"`
	LabelFingerprint   string             `json:"labelFingerprint,omitempty"`
	DeletionProtection bool               `json:"deletionProtection"`
	Shielded           *ShieldedConfig    `json:"shieldedInstanceConfig,omitempty"`
	Fingerprint        string             `json:"fingerprint,omitempty"`
	LastStartTimestamp string             `json:"lastStartTimestamp,omitempty"`
	LastStopTimestamp  string             `json:"lastStopTimestamp,omitempty"`
}

// Tags are network tags.
type Tags struct {
	Items       []string `json:"items,omitempty"`
	Fingerprint string   `json:"fingerprint,omitempty"`
}

// Metadata is what an instance reads of itself.
type Metadata struct {
	Kind        string         `json:"kind,omitempty"`
	Fingerprint string         `json:"fingerprint,omitempty"`
	Items       []MetadataItem `json:"items,omitempty"`
}

// MetadataItem is a key and its value.
type MetadataItem struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Get gives the value of a key.
func (m *Metadata) Get(key string) (string, bool) {
	if m != nil {
		for _, item := range m.Items {
			if item.Key == key {
				return item.Value, true
			}
		}
	}
	return "", false
}

// ServiceAccount is an identity that the machine may act as.
type ServiceAccount struct {
	Email  string   `json:"email,omitempty"`
	Scopes []string `json:"scopes,omitempty"`
}

// ShieldedConfig is the shielded VM's.
type ShieldedConfig struct {
	EnableSecureBoot          bool `json:"enableSecureBoot"`
	EnableVtpm                bool `json:"enableVtpm"`
	EnableIntegrityMonitoring bool `json:"enableIntegrityMonitoring"`
}

// Scheduling says how an instance may be interrupted.
type Scheduling struct {
	OnHostMaintenance         string    `json:"onHostMaintenance,omitempty"`
	AutomaticRestart          *bool     `json:"automaticRestart,omitempty"`
	Preemptible               bool      `json:"preemptible,omitempty"`
	ProvisioningModel         string    `json:"provisioningModel,omitempty"`
	InstanceTerminationAction string    `json:"instanceTerminationAction,omitempty"`
	MaxRunDuration            *Duration `json:"maxRunDuration,omitempty"`
}

// Duration is a span of time.
type Duration struct {
	Seconds Int64 `json:"seconds,omitempty"`
	Nanos   int32 `json:"nanos,omitempty"`
}

// NetworkInterface is an interface of an instance.
type NetworkInterface struct {
	Kind              string             `json:"kind,omitempty"`
	Name              string             `json:"name,omitempty"`
	Network           string             `json:"network,omitempty"`
	Subnetwork        string             `json:"subnetwork,omitempty"`
	NetworkIP         string             `json:"networkIP,omitempty"`
	StackType         string             `json:"stackType,omitempty"`
	AccessConfigs     []AccessConfig     `json:"accessConfigs,omitempty"`
	IPv6AccessConfigs []IPv6AccessConfig `json:"ipv6AccessConfigs,omitempty"`
	Fingerprint       string             `json:"fingerprint,omitempty"`
}

// AccessConfig is an external IPv4 address.
type AccessConfig struct {
	Kind        string `json:"kind,omitempty"`
	Type        string `json:"type,omitempty"`
	Name        string `json:"name,omitempty"`
	NatIP       string `json:"natIP,omitempty"`
	NetworkTier string `json:"networkTier,omitempty"`
}

// IPv6AccessConfig is an external IPv6 address.
type IPv6AccessConfig struct {
	Kind                     string `json:"kind,omitempty"`
	Type                     string `json:"type,omitempty"`
	Name                     string `json:"name,omitempty"`
	ExternalIPv6             string `json:"externalIpv6,omitempty"`
	ExternalIPv6PrefixLength int32  `json:"externalIpv6PrefixLength,omitempty"`
	NetworkTier              string `json:"networkTier,omitempty"`
}

// Disk is a disk of an instance.
type Disk struct {
	Kind             string          `json:"kind,omitempty"`
	Type             string          `json:"type,omitempty"`
	Mode             string          `json:"mode,omitempty"`
	Source           string          `json:"source,omitempty"`
	DeviceName       string          `json:"deviceName,omitempty"`
	Index            int32           `json:"index,omitempty"`
	Boot             bool            `json:"boot"`
	AutoDelete       bool            `json:"autoDelete"`
	InitializeParams *DiskInitialize `json:"initializeParams,omitempty"`
	Interface        string          `json:"interface,omitempty"`
	DiskSizeGB       Int64           `json:"diskSizeGb,omitempty"`
}

// DiskInitialize says what a new disk is made of; it is read, never served.
type DiskInitialize struct {
	DiskName    string            `json:"diskName,omitempty"`
	DiskSizeGB  Int64             `json:"diskSizeGb,omitempty"`
	DiskType    string            `json:"diskType,omitempty"`
	SourceImage string            `json:"sourceImage,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Description string            `json:"description,omitempty"`
}

// Address is a reserved external address.
type Address struct {
	Kind              string            `json:"kind,omitempty"`
	ID                Int64             `json:"id,omitempty"`
	CreationTimestamp string            `json:"creationTimestamp,omitempty"`
	Name              string            `json:"name,omitempty"`
	Description       string            `json:"description,omitempty"`
	Address           string            `json:"address,omitempty"`
	AddressType       string            `json:"addressType,omitempty"`
	IPVersion         string            `json:"ipVersion,omitempty"`
	NetworkTier       string            `json:"networkTier,omitempty"`
	Status            string            `json:"status,omitempty"`
	Region            string            `json:"region,omitempty"`
	SelfLink          string            `json:"selfLink,omitempty"`
	Users             []string          `json:"users,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	LabelFingerprint  string            `json:"labelFingerprint,omitempty"`
}

// Operation is the work that a call began.
type Operation struct {
	Kind                string          `json:"kind"`
	ID                  Int64           `json:"id"`
	Name                string          `json:"name"`
	Zone                string          `json:"zone,omitempty"`
	Region              string          `json:"region,omitempty"`
	ClientOperationID   string          `json:"clientOperationId,omitempty"`
	OperationType       string          `json:"operationType"`
	TargetID            Int64           `json:"targetId,omitempty"`
	TargetLink          string          `json:"targetLink,omitempty"`
	User                string          `json:"user,omitempty"`
	Status              string          `json:"status"`
	StatusMessage       string          `json:"statusMessage,omitempty"`
	Progress            int32           `json:"progress"`
	InsertTime          string          `json:"insertTime"`
	StartTime           string          `json:"startTime,omitempty"`
	EndTime             string          `json:"endTime,omitempty"`
	SelfLink            string          `json:"selfLink"`
	HTTPErrorStatusCode int32           `json:"httpErrorStatusCode,omitempty"`
	HTTPErrorMessage    string          `json:"httpErrorMessage,omitempty"`
	Error               *OperationError `json:"error,omitempty"`
}

// OperationError is why an operation failed.
type OperationError struct {
	Errors []OperationErrorItem `json:"errors"`
}

// OperationErrorItem is one reason.
type OperationErrorItem struct {
	Code         string        `json:"code"`
	Message      string        `json:"message,omitempty"`
	Location     string        `json:"location,omitempty"`
	ErrorDetails []ErrorDetail `json:"errorDetails,omitempty"`
}

// ErrorDetail is one of its fields.
type ErrorDetail struct {
	QuotaInfo        *QuotaInfo        `json:"quotaInfo,omitempty"`
	LocalizedMessage *LocalizedMessage `json:"localizedMessage,omitempty"`
	ErrorInfo        *ErrorInfo        `json:"errorInfo,omitempty"`
}

// QuotaInfo names the quota that was exceeded.
type QuotaInfo struct {
	MetricName string            `json:"metricName"`
	LimitName  string            `json:"limitName"`
	Dimensions map[string]string `json:"dimensions,omitempty"`
	Limit      float64           `json:"limit"`
}

// LocalizedMessage is for people.
type LocalizedMessage struct {
	Locale  string `json:"locale"`
	Message string `json:"message"`
}

// ErrorInfo is for programs.
type ErrorInfo struct {
	Reason    string            `json:"reason,omitempty"`
	Domain    string            `json:"domain,omitempty"`
	Metadatas map[string]string `json:"metadatas,omitempty"`
}

// Quota is a limit of a region.
type Quota struct {
	Metric string  `json:"metric"`
	Limit  float64 `json:"limit"`
	Usage  float64 `json:"usage"`
}

// location is a region or a zone.
type location struct {
	Kind              string   `json:"kind"`
	ID                Int64    `json:"id"`
	Name              string   `json:"name"`
	Description       string   `json:"description"`
	Status            string   `json:"status"`
	CreationTimestamp string   `json:"creationTimestamp"`
	Region            string   `json:"region,omitempty"`
	Zones             []string `json:"zones,omitempty"`
	Quotas            []Quota  `json:"quotas,omitempty"`
	SelfLink          string   `json:"selfLink"`
}

// serialPort is what a machine wrote to its console.
type serialPort struct {
	Kind     string `json:"kind"`
	Contents string `json:"contents"`
	Start    Int64  `json:"start"`
	Next     Int64  `json:"next"`
	SelfLink string `json:"selfLink"`
}
