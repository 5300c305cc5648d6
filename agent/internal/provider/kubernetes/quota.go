package kubernetes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/agent/provider"
)

// refusal finds out why the API server forbids an object. A missing right, Pod Security, a ResourceQuota and a LimitRange
// all look the same but for their text, so the namespace's quotas and limits are looked at themselves: an object that is
// more than they leave room for was refused for that.
func (p *Provider) refusal(ctx context.Context, op string, want client.Object, forbidden error) error {
	e := &provider.Error{Kind: provider.KindUnauthorized, Op: op, Err: forbidden}
	asked := usage(want)
	quotas, limits := &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}
	// Where they cannot be read there is nothing more to know.
	if err := p.o.Reader.List(ctx, quotas, client.InNamespace(p.o.Namespace)); err == nil {
		for i := range quotas.Items {
			if over := exceeded(&quotas.Items[i], asked); over != "" {
				e.Kind, e.Scope = provider.KindQuotaExceeded, fmt.Sprintf("quota %s %s", quotas.Items[i].Name, over)
				return e
			}
		}
	}
	pod, ok := want.(*corev1.Pod)
	if !ok {
		return e
	}
	if err := p.o.Reader.List(ctx, limits, client.InNamespace(p.o.Namespace)); err == nil {
		for i := range limits.Items {
			if outside := outOfRange(&limits.Items[i], pod); outside != "" {
				e.Kind, e.Scope = provider.KindQuotaExceeded, fmt.Sprintf("limit range %s %s", limits.Items[i].Name, outside)
				return e
			}
		}
	}
	return e
}

// usage is what an object takes of a quota, by the names that quotas have for it.
func usage(o client.Object) corev1.ResourceList {
	one := resource.MustParse("1")
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return corev1.ResourceList{corev1.ResourceConfigMaps: one, "count/configmaps": one}
	}
	used := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	add := func(name corev1.ResourceName, q resource.Quantity) {
		sum := used[name]
		sum.Add(q)
		used[name] = sum
	}
	for i := range pod.Spec.Containers {
		for name, q := range pod.Spec.Containers[i].Resources.Requests {
			add("requests."+name, q)
			// A quota may name a request by the resource alone.
			add(name, q)
		}
		for name, q := range pod.Spec.Containers[i].Resources.Limits {
			add("limits."+name, q)
		}
	}
	return used
}

// exceeded names a resource of which a quota leaves less than what is asked. A quota that nobody has counted yet leaves
// nothing: the API server lets nothing pass it.
func exceeded(quota *corev1.ResourceQuota, asked corev1.ResourceList) string {
	for _, name := range slices.Sorted(maps.Keys(quota.Spec.Hard)) {
		want, ok := asked[name]
		if !ok {
			continue
		}
		hard := quota.Spec.Hard[name]
		used, counted := quota.Status.Used[name]
		if !counted {
			return string(name)
		}
		used.Add(want)
		if used.Cmp(hard) > 0 {
			return string(name)
		}
	}
	return ""
}

// outOfRange names a resource of which the pod asks for more or less than a limit range lets it. The pod has one
// container, so that a limit for pods is one for containers.
func outOfRange(limits *corev1.LimitRange, pod *corev1.Pod) string {
	for _, limit := range limits.Spec.Limits {
		if limit.Type != corev1.LimitTypeContainer && limit.Type != corev1.LimitTypePod {
			continue
		}
		for i := range pod.Spec.Containers {
			have := pod.Spec.Containers[i].Resources
			for _, name := range slices.Sorted(maps.Keys(limit.Max)) {
				most := limit.Max[name]
				bound, bounded := have.Limits[name]
				if !bounded && limit.Type == corev1.LimitTypeContainer {
					// The limit range itself gives the container a limit that is within it.
					bound, bounded = have.Requests[name]
				} else if !bounded {
					return string(name)
				}
				if bounded && bound.Cmp(most) > 0 {
					return string(name)
				}
			}
			for _, name := range slices.Sorted(maps.Keys(limit.Min)) {
				if request, ok := have.Requests[name]; ok && request.Cmp(limit.Min[name]) < 0 {
					return string(name)
				}
			}
			if name := ratioExceeded(limit.MaxLimitRequestRatio, have); name != "" {
				return string(name)
			}
		}
	}
	return ""
}

// ratioExceeded names a resource whose limit is more times its request than allowed.
func ratioExceeded(ratios corev1.ResourceList, have corev1.ResourceRequirements) corev1.ResourceName {
	for _, name := range slices.Sorted(maps.Keys(ratios)) {
		most := ratios[name]
		limit, bounded := have.Limits[name]
		request, asked := have.Requests[name]
		if bounded && asked && !request.IsZero() && limit.AsApproximateFloat64() > most.AsApproximateFloat64()*request.AsApproximateFloat64() {
			return name
		}
	}
	return ""
}
