package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computeclient"
)

// What an empty field of [Settings] means.
const (
	DefaultMachineType    = "e2-small"
	DefaultImage          = "projects/cos-cloud/global/images/family/cos-stable"
	DefaultNetwork        = "global/networks/default"
	DefaultDiskGB         = 10
	DefaultNetworkTier    = TierPremium
	DefaultTag            = "shoal-proxy"
	DefaultMaxRunDuration = 7 * 24 * time.Hour
)

// Tier is a network tier.
type Tier string

// The network tiers.
const (
	TierPremium  Tier = "PREMIUM"
	TierStandard Tier = "STANDARD"
)

// AddressMode says which address of the internet a machine has.
type AddressMode string

// The modes.
const (
	// AddressEphemeral is any address; the next machine has another.
	AddressEphemeral AddressMode = "Ephemeral"
	// AddressStatic is one that is reserved for as long as the machine lives, for targets that must allow it. Compute
	// Engine grants few of them.
	AddressStatic AddressMode = "Static"
	// AddressNone is none: the machine leaves by the network's own NAT.
	AddressNone AddressMode = "None"
)

// Exposure says how crawlers reach a machine.
type Exposure string

// The exposures.
const (
	// ExposureExternal is by its address of the internet.
	ExposureExternal Exposure = "External"
	// ExposureInternal is by its address in the network, for crawlers that route there.
	ExposureInternal Exposure = "Internal"
)

// Settings configures an entry of type gcp in the agent's configuration file.
type Settings struct {
	// Project is the project's ID, required.
	Project string `yaml:"project"`
	// ProxyImage is the proxy image, required. Machines pull it without credentials.
	ProxyImage string `yaml:"proxyImage"`
	// MachineType is such as e2-small, the default.
	MachineType string `yaml:"machineType,omitempty"`
	// Image is the machines' own image, of the family of Container-Optimized OS by default.
	Image string `yaml:"image,omitempty"`
	// DiskGB is the size of the boot disk, 10 by default.
	DiskGB int64 `yaml:"diskGB,omitempty"`
	// Network and Subnetwork are names, or partial URLs (projects/P/global/networks/N) where they are another project's.
	// Network is "default" by default, or the subnetwork's own where that is named.
	Network    string `yaml:"network,omitempty"`
	Subnetwork string `yaml:"subnetwork,omitempty"`
	// Tags are what firewall rules choose machines by, [shoal-proxy] by default.
	Tags []string `yaml:"tags,omitempty"`
	// Labels are set on machines beside ours, for bills.
	Labels map[string]string `yaml:"labels,omitempty"`
	// Spot asks for machines that are cheaper and may be taken back.
	Spot bool `yaml:"spot,omitempty"`
	// MaxRunDuration is when Compute Engine itself removes a machine, whatever became of the agent: 168h by default, at
	// most 2880h; 0s is never. A proxy is replaced then, whether it is leased or not.
	MaxRunDuration *time.Duration `yaml:"maxRunDuration,omitempty"`
	// NetworkTier is PREMIUM, the default, or STANDARD.
	NetworkTier Tier `yaml:"networkTier,omitempty"`
	// Address is Ephemeral, the default, Static or None.
	Address AddressMode `yaml:"address,omitempty"`
	// Endpoint is External, the default, or Internal.
	Endpoint Exposure `yaml:"endpoint,omitempty"`
	// CredentialsFile is a file with Google credentials; unset means those of the agent's surroundings.
	CredentialsFile string `yaml:"credentialsFile,omitempty"`
	// APIEndpoint is another address of the API than Google's. With http:// it is called without credentials.
	APIEndpoint string `yaml:"apiEndpoint,omitempty"`
}

// withDefaults fills what is empty.
func (s Settings) withDefaults() Settings {
	def := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	def(&s.MachineType, DefaultMachineType)
	def(&s.Image, DefaultImage)
	if s.Subnetwork == "" {
		def(&s.Network, DefaultNetwork)
	}
	if s.NetworkTier == "" {
		s.NetworkTier = DefaultNetworkTier
	}
	if s.Address == "" {
		s.Address = AddressEphemeral
	}
	if s.Endpoint == "" {
		s.Endpoint = ExposureExternal
	}
	if s.DiskGB == 0 {
		s.DiskGB = DefaultDiskGB
	}
	if s.Tags == nil {
		s.Tags = []string{DefaultTag}
	}
	if s.MaxRunDuration == nil {
		d := DefaultMaxRunDuration
		s.MaxRunDuration = &d
	}
	return s
}

// Salt names all of the settings that machines are made from: where it changes, machines are replaced. How the API is
// reached is none of that.
func (s Settings) Salt() string {
	s = s.withDefaults()
	s.CredentialsFile, s.APIEndpoint = "", ""
	// In YAML, where a setting that is not used leaves no trace: one that a later version adds replaces no machine.
	text, err := yaml.Marshal(s)
	if err != nil {
		return err.Error() // Plain fields always marshal.
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// ClientOptions gives what a client of this entry is made from. Two entries never share one, so that neither acts with the
// other's credentials.
func (s Settings) ClientOptions() computeclient.Options {
	return computeclient.Options{Project: s.Project, Endpoint: s.APIEndpoint, CredentialsFile: s.CredentialsFile}
}

var (
	imagePattern = regexp.MustCompile(`^(https://www\.googleapis\.com/compute/v1/)?projects/[a-z0-9.:-]+/global/images/(family/)?[a-z]([-a-z0-9]*[a-z0-9])?$`)
	// referencePattern keeps an image's reference one word of a command.
	referencePattern  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/:@-]{0,254}$`)
	networkPattern    = regexp.MustCompile(`^((projects/[a-z0-9.:-]+/)?global/networks/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	subnetworkPattern = regexp.MustCompile(`^((projects/[a-z0-9.:-]+/)?regions/[a-z0-9-]+/subnetworks/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
)

// Check refuses what cannot be meant. It names every mistake by its field and says what to write instead.
func (s *Settings) Check(refuse func(field, format string, args ...any)) {
	switch {
	case s.Project == "":
		refuse("project", "it is missing; write the project's ID, such as my-project-123")
	case !computeclient.ValidProject(s.Project):
		refuse("project", "%q is no project's ID; write the ID, neither the number nor the title", s.Project)
	}
	switch {
	case s.ProxyImage == "":
		refuse("proxyImage", "it is missing; write the reference of the proxy image, which machines must be able to pull without credentials")
	case !referencePattern.MatchString(s.ProxyImage):
		refuse("proxyImage", "%q is no image; write such as registry.example/shoal-proxy@sha256:…", s.ProxyImage)
	}
	if s.MachineType != "" && !computeclient.ValidName(s.MachineType) {
		refuse("machineType", "%q is no machine type; write its name alone, such as e2-small", s.MachineType)
	}
	if s.Image != "" && !imagePattern.MatchString(s.Image) {
		refuse("image", "%q is no image; write projects/PROJECT/global/images/family/FAMILY, or …/images/NAME", s.Image)
	}
	if s.DiskGB != 0 && (s.DiskGB < 10 || s.DiskGB > 1000) {
		refuse("diskGB", "%d is no size; write 10 to 1000", s.DiskGB)
	}
	s.checkNetwork(refuse)
	s.checkLabels(refuse)
	if d := s.MaxRunDuration; d != nil && *d != 0 && (*d < 5*time.Minute || *d > 2880*time.Hour || *d%time.Second != 0) {
		refuse("maxRunDuration", "%v is out of range; write whole seconds between 5m and 2880h, or 0s for no bound", *d)
	}
	s.checkAPI(refuse)
}

func (s *Settings) checkNetwork(refuse func(field, format string, args ...any)) {
	if s.Network != "" && !networkPattern.MatchString(s.Network) {
		refuse("network", "%q is no network; write its name, or projects/PROJECT/global/networks/NAME", s.Network)
	}
	if s.Subnetwork != "" && !subnetworkPattern.MatchString(s.Subnetwork) {
		refuse("subnetwork", "%q is no subnetwork; write its name, or projects/PROJECT/regions/REGION/subnetworks/NAME", s.Subnetwork)
	}
	for _, tag := range s.Tags {
		if !computeclient.ValidName(tag) {
			refuse("tags", "%q is no network tag; write lower-case letters, digits and dashes, a letter first", tag)
		}
	}
	if !slices.Contains([]Tier{"", TierPremium, TierStandard}, s.NetworkTier) {
		refuse("networkTier", "%q is no tier; write PREMIUM or STANDARD", s.NetworkTier)
	}
	if !slices.Contains([]AddressMode{"", AddressEphemeral, AddressStatic, AddressNone}, s.Address) {
		refuse("address", "%q is no mode; write Ephemeral, Static or None", s.Address)
	}
	switch s.Endpoint {
	case "", ExposureExternal:
		if s.Address == AddressNone {
			refuse("endpoint", "with address None crawlers cannot reach a machine from outside; write endpoint: Internal")
		}
	case ExposureInternal:
	default:
		refuse("endpoint", "%q is no exposure; write External (crawlers come over the internet) or Internal (they route to the network)", s.Endpoint)
	}
}

func (s *Settings) checkLabels(refuse func(field, format string, args ...any)) {
	if most := 64 - len(identityLabels); len(s.Labels) > most {
		refuse("labels", "there are %d; Compute Engine takes 64 on one machine, and %d are ours", len(s.Labels), len(identityLabels))
	}
	for key, value := range s.Labels {
		switch {
		case strings.HasPrefix(key, labelPrefix):
			refuse("labels", "%q is one of ours; choose a key that does not begin with %s", key, labelPrefix)
		case !computeclient.ValidLabel(key, value):
			refuse("labels", "%s: %q is no label; write at most 63 lower-case letters, digits, dashes and underscores, a letter first in the key", key, value)
		}
	}
}

func (s *Settings) checkAPI(refuse func(field, format string, args ...any)) {
	if s.APIEndpoint == "" {
		return
	}
	u, err := url.Parse(s.APIEndpoint)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") || strings.Trim(u.Path, "/") != "":
		refuse("apiEndpoint", "%q is no address of an API; write https://host, without a path", s.APIEndpoint)
	case u.Scheme == "http" && s.CredentialsFile != "":
		refuse("apiEndpoint", "%s is not encrypted, and credentials would travel in the clear; write https://, or leave credentialsFile out", s.APIEndpoint)
	}
}
