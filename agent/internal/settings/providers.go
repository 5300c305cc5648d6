package settings

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
	"github.com/shoal-dev/shoal/agent/internal/provider/kubernetes"
)

// The types of providers.
const (
	TypeKubernetes = "kubernetes"
	TypeGCP        = "gcp"
)

// Provider is an entry that fleets may name.
type Provider struct {
	// Name is what a fleet's template writes as provider.
	Name string `yaml:"name"`
	// Type is the kind of provider: kubernetes or gcp. The block of the same name configures it.
	Type string `yaml:"type"`
	// Kubernetes configures a provider of type kubernetes.
	Kubernetes *Kubernetes `yaml:"kubernetes,omitempty"`
	// GCP configures a provider of type gcp.
	GCP *gcp.Settings `yaml:"gcp,omitempty"`
}

// Exposure says how crawlers reach a pod.
type Exposure string

// The exposures.
const (
	// ExposurePodIP is for crawlers on a network that routes to pods.
	ExposurePodIP Exposure = "PodIP"
	// ExposureHostPort gives each proxy a port of its own on its node.
	ExposureHostPort Exposure = "HostPort"
)

// Kubernetes configures a provider that runs pods in the member.
type Kubernetes struct {
	// Image is the proxy image.
	Image string `yaml:"image"`
	// ImagePullPolicy is Kubernetes' own; unset means Kubernetes' default.
	ImagePullPolicy string `yaml:"imagePullPolicy,omitempty"`
	// Exposure says how crawlers reach the pods.
	Exposure Exposure `yaml:"exposure"`
	// HostPortRange is first-last, with exposure HostPort. It must not overlap the cluster's node ports.
	HostPortRange string `yaml:"hostPortRange,omitempty"`
	// NodeSelector chooses nodes by label.
	NodeSelector map[string]string `yaml:"nodeSelector,omitempty"`
	// PodSettings are the rest.
	kubernetes.PodSettings `yaml:",inline"`

	first, last int32
}

// HostPorts gives the first and the last port of the range; both are 0 with exposure PodIP.
func (k *Kubernetes) HostPorts() (first, last int32) { return k.first, k.last }

func (d *document) checkProviders(s *Settings) {
	if len(s.Providers) == 0 {
		d.refuse("providers", "the list is empty; name at least one, such as {name: default, type: kubernetes, kubernetes: {…}}")
	}
	seen, pods := map[string]int{}, false
	for i := range s.Providers {
		e := &s.Providers[i]
		field := fmt.Sprintf("providers[%d]", i)
		before, again := seen[e.Name]
		switch {
		case !namePattern.MatchString(e.Name):
			d.refuse(field+".name", "%q is no name; write lower-case letters, digits and dashes, at most 63", e.Name)
		case again:
			d.refuse(field+".name", "%q is taken by the entry in line %d; choose another", e.Name, before)
		default:
			seen[e.Name] = d.lineOf(field)
		}
		d.checkProvider(field, e)
		pods = pods || e.Type == TypeKubernetes
	}
	if s.Member != nil && !pods && len(s.Providers) > 0 {
		d.refuse("providers", "this cluster is member %s and none of the entries is of type kubernetes, so it could host nothing; add one, or remove the member block", s.Member.Name)
	}
	if s.KubeconfigSecrets && !pods && len(s.Providers) > 0 {
		d.refuse("kubeconfigSecrets", "none of the entries of providers is of type kubernetes, so those clusters could host nothing; add one, or write false")
	}
}

func (d *document) checkProvider(field string, e *Provider) {
	blocks := map[string]bool{TypeKubernetes: e.Kubernetes != nil, TypeGCP: e.GCP != nil}
	written, known := blocks[e.Type]
	if !known {
		d.refuse(field+".type", "%q is no type of provider; write kubernetes or gcp", e.Type)
		return
	}
	for _, block := range []string{TypeKubernetes, TypeGCP} {
		if block != e.Type && blocks[block] {
			d.refuse(field+"."+block, "an entry of type %s has no such block; remove it, or write type: %s", e.Type, block)
		}
	}
	if !written {
		d.refuse(field+"."+e.Type, "an entry of type %s needs this block; see docs/operations/agent.md for its keys", e.Type)
		return
	}
	switch e.Type {
	case TypeKubernetes:
		d.checkKubernetes(field+".kubernetes", e.Kubernetes)
	case TypeGCP:
		e.GCP.Check(d.under(field + ".gcp"))
	}
}

func (d *document) checkKubernetes(field string, k *Kubernetes) {
	k.Check(d.under(field))
	if k.Image == "" {
		d.refuse(field+".image", "it is missing; write the reference of the proxy image")
	}
	switch k.ImagePullPolicy {
	case "", "Always", "IfNotPresent", "Never":
	default:
		d.refuse(field+".imagePullPolicy", "%q is no policy; write Always, IfNotPresent or Never", k.ImagePullPolicy)
	}
	switch k.Exposure {
	case ExposurePodIP:
		if k.HostPortRange != "" {
			d.refuse(field+".hostPortRange", "it means nothing with exposure PodIP; leave it out, or set exposure: HostPort")
		}
	case ExposureHostPort:
		first, last, ok := portRange(k.HostPortRange)
		if !ok {
			d.refuse(field+".hostPortRange", "%q is no range of ports; write first-last between 1024 and 65535, such as 21000-21999", k.HostPortRange)
		}
		k.first, k.last = first, last
	default:
		d.refuse(field+".exposure", "%q is no exposure; write HostPort (crawlers reach nodes) or PodIP (crawlers reach pods)", k.Exposure)
	}
}

func portRange(s string) (first, last int32, ok bool) {
	a, b, found := strings.Cut(s, "-")
	low, errLow := strconv.ParseInt(strings.TrimSpace(a), 10, 32)
	high, errHigh := strconv.ParseInt(strings.TrimSpace(b), 10, 32)
	if !found || errLow != nil || errHigh != nil || low < 1024 || high > 65535 || low > high {
		return 0, 0, false
	}
	return int32(low), int32(high), true
}
