package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/test/harness"
)

// oneEach says where pods and config maps of proxies are not exactly one for each Proxy: a leak, or a double.
func (s *story) oneEach(ctx context.Context) error {
	var problems []error
	for _, m := range s.Members {
		var proxies v1alpha1.ProxyList
		if err := m.Client.List(ctx, &proxies, client.InNamespace(harness.Namespace)); err != nil {
			return err
		}
		names := map[string]string{}
		ports := map[string]string{}
		for i := range proxies.Items {
			p := &proxies.Items[i]
			names[string(p.UID)] = p.Name
			if other, taken := ports[p.Status.Address]; taken && p.Status.Address != "" {
				problems = append(problems, fmt.Errorf("%s: proxies %s and %s have one address, %s", m.Name, other, p.Name, p.Status.Address))
			}
			ports[p.Status.Address] = p.Name
		}
		made, err := s.made(ctx, m)
		if err != nil {
			return err
		}
		for kind, owners := range made {
			for uid, objects := range owners {
				if _, known := names[uid]; !known {
					problems = append(problems, fmt.Errorf("%s: %s %v belong to no proxy that exists (uid %s)", m.Name, kind, objects, uid))
				}
			}
			for uid, name := range names {
				if n := len(owners[uid]); n != 1 {
					problems = append(problems, fmt.Errorf("%s: proxy %s has %d %s, not 1: %v", m.Name, name, n, kind, owners[uid]))
				}
			}
		}
	}
	return errors.Join(problems...)
}

// made lists what the provider has made on a member, by kind and the UID of the Proxy.
func (s *story) made(ctx context.Context, m *harness.Member) (map[string]map[string][]string, error) {
	ours := []client.ListOption{client.InNamespace(harness.Namespace), client.HasLabels{v1alpha1.LabelProxyUID}}
	var pods corev1.PodList
	var configs corev1.ConfigMapList
	if err := errors.Join(m.Client.List(ctx, &pods, ours...), m.Client.List(ctx, &configs, ours...)); err != nil {
		return nil, err
	}
	found := map[string]map[string][]string{"pods": {}, "config maps": {}}
	for i := range pods.Items {
		uid := pods.Items[i].Labels[v1alpha1.LabelProxyUID]
		found["pods"][uid] = append(found["pods"][uid], pods.Items[i].Name)
	}
	for i := range configs.Items {
		uid := configs.Items[i].Labels[v1alpha1.LabelProxyUID]
		found["config maps"][uid] = append(found["config maps"][uid], configs.Items[i].Name)
	}
	return found, nil
}

// podOf returns the pod of a proxy.
func (s *story) podOf(ctx context.Context, m *harness.Member, proxyUID string) (*corev1.Pod, error) {
	var pods corev1.PodList
	if err := m.Client.List(ctx, &pods, client.InNamespace(harness.Namespace), client.MatchingLabels{v1alpha1.LabelProxyUID: proxyUID}); err != nil {
		return nil, err
	}
	pods.Items = slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
	if len(pods.Items) != 1 {
		return nil, fmt.Errorf("proxy %s on %s has %d pods, not 1", proxyUID, m.Name, len(pods.Items))
	}
	return &pods.Items[0], nil
}

// spread says where the fleet's proxies are not as many as wanted on each member.
func (s *story) spread(fleetUID string, each int) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := s.of(ctx, fleetUID)
		if err != nil {
			return err
		}
		for member, proxies := range all {
			if len(proxies) != each {
				return fmt.Errorf("%s has %d proxies of the fleet, not %d", member, len(proxies), each)
			}
		}
		return nil
	}
}

// findProxy returns the Proxy with the UID, and its member.
func (s *story) findProxy(ctx context.Context, uid string) (*v1alpha1.Proxy, *harness.Member, error) {
	for _, m := range s.Members {
		var list v1alpha1.ProxyList
		if err := m.Client.List(ctx, &list, client.InNamespace(harness.Namespace)); err != nil {
			return nil, nil, err
		}
		for i := range list.Items {
			if string(list.Items[i].UID) == uid {
				return &list.Items[i], m, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("no member has a proxy with uid %s", uid)
}
