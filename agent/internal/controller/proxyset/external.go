package proxyset

import (
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// change is a Proxy as it is and as it should be.
type change struct{ before, after *v1alpha1.Proxy }

// decideExternal compares a set of proxies that someone else runs with its Proxies. There is one for each endpoint, under
// a name that says which; what changes in an endpoint changes its Proxy where it is. As with any set, what goes is what
// the hub lists in drain, and a name in drain is taken until its Proxy is gone.
func (p *plan) decideExternal(set *v1alpha1.ProxySet, proxies []*v1alpha1.Proxy, taken map[string]bool) {
	have := make(map[string]*v1alpha1.Proxy, len(proxies))
	for _, proxy := range proxies {
		have[proxy.Name] = proxy
		if proxy.Spec.Drain == nil && proxy.DeletionTimestamp == nil {
			p.surplus++ // unless it is listed, below
		}
	}
	draining := make(map[string]bool, len(set.Spec.Drain))
	for _, d := range set.Spec.Drain {
		draining[d.Name] = true
		if proxy := have[d.Name]; proxy != nil && proxy.Spec.Drain == nil && proxy.DeletionTimestamp == nil {
			p.surplus--
		}
	}
	for i := range set.Spec.External.Endpoints {
		e := &set.Spec.External.Endpoints[i]
		name := externalName(set.Name, e.Name)
		proxy := have[name]
		switch {
		case proxy == nil && !taken[name]:
			p.missing++
			if len(p.create) < createMost {
				p.create = append(p.create, name)
			}
		case proxy == nil || proxy.DeletionTimestamp != nil:
		default:
			if proxy.Spec.Drain == nil && !draining[name] {
				p.surplus--
			}
			if changed := withEndpoint(set, proxy, e); changed != nil {
				p.update = append(p.update, change{before: proxy, after: changed})
			}
		}
	}
}

// externalName is the name of the Proxy of an endpoint. The hub reads the endpoint's name off its end.
func externalName(set, endpoint string) string { return set + "-" + endpoint }

// withEndpoint gives a Proxy as its endpoint is written now; nil if it is already. Host and port never change: they are
// what the name is made from.
func withEndpoint(set *v1alpha1.ProxySet, proxy *v1alpha1.Proxy, e *v1alpha1.SetEndpoint) *v1alpha1.Proxy {
	wanted := proxyEndpoint(set, e)
	if proxy.Spec.Endpoint == nil || proxy.Spec.Endpoint.Host != wanted.Host || proxy.Spec.Endpoint.Port != wanted.Port {
		return nil
	}
	if equality.Semantic.DeepEqual(proxy.Spec.Endpoint, wanted) && proxy.Spec.HealthCheck == set.Spec.External.HealthCheck {
		return nil
	}
	changed := proxy.DeepCopy()
	changed.Spec.Endpoint, changed.Spec.HealthCheck = wanted, set.Spec.External.HealthCheck
	return changed
}

func proxyEndpoint(set *v1alpha1.ProxySet, e *v1alpha1.SetEndpoint) *v1alpha1.ProxyEndpoint {
	endpoint := &v1alpha1.ProxyEndpoint{Host: e.Host, Port: e.Port}
	if e.Credentials != "" {
		endpoint.CredentialsSecretRef = &v1alpha1.SecretKeyRef{Name: v1alpha1.CredentialsSecretName(set.Name), Key: e.Credentials}
	}
	return endpoint
}

// newSpec is the spec of a set's proxy.
func newSpec(set *v1alpha1.ProxySet, name string) v1alpha1.ProxySpec {
	if set.Spec.External == nil {
		return v1alpha1.ProxySpec{
			Mode:          v1alpha1.ModeManaged,
			Provider:      set.Spec.Template.Spec.Provider,
			ProxySettings: *set.Spec.Template.Spec.ProxySettings.DeepCopy(),
		}
	}
	spec := v1alpha1.ProxySpec{Mode: v1alpha1.ModeExternal}
	spec.HealthCheck = set.Spec.External.HealthCheck
	for i := range set.Spec.External.Endpoints {
		if e := &set.Spec.External.Endpoints[i]; externalName(set.Name, e.Name) == name {
			spec.Endpoint = proxyEndpoint(set, e)
		}
	}
	return spec
}
