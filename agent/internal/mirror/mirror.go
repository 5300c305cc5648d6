// Package mirror keeps a member's copy of what the hub desires, so that the agent works through any outage of the hub.
//
// Each ProxyPlacement of the hub is a ProxySet here, under a name derived from the placement's UID: a tenant's names
// never reach a member. Members may share a namespace: each has what bears its own name, and sees nothing else. What the
// hub's credentials are checked with is in one ConfigMap that every proxy mounts, and beside it who hub and member are,
// which the agent must know to own anything.
package mirror

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

const annotationHash = v1alpha1.AnnotationSpecHash

// Options configures a Mirror.
type Options struct {
	// Member is the member's name.
	Member string
	// Client writes to the member's namespace.
	Client client.Client
	// Reader reads from it without a cache: what a session is told about must be what is there.
	Reader client.Reader
	// Namespace is where the member's objects are.
	Namespace string
	// Policy gives the owner's ceiling for the member; nil means the zero policy.
	Policy func() ceiling.Policy
	// OnKeys is called after keys have changed, by whoever changed them; it must return at once. Nil for nobody.
	OnKeys func()
}

// Mirror implements [uplink.Applier] for one member. It is safe for concurrent use, for one uid by one caller at a time.
type Mirror struct {
	o Options
	known

	count sync.Mutex // guards sets
	// sets are the names of the member's ProxySets that are there, as far as is known.
	sets map[string]struct{}
}

var _ uplink.Applier = (*Mirror)(nil)

// New makes a Mirror.
func New(o Options) (*Mirror, error) {
	if o.Member == "" || o.Client == nil || o.Reader == nil || o.Namespace == "" {
		return nil, errors.New("mirror: Member, Client, Reader and Namespace are required")
	}
	return &Mirror{o: o, sets: map[string]struct{}{}}, nil
}

// Adopt gives the member what no member's name is on: an agent of a version that knew one member only has made it. What
// is not adopted is seen by nobody.
func (m *Mirror) Adopt(ctx context.Context) error {
	nobodys, err := labels.NewRequirement(v1alpha1.LabelMember, selection.DoesNotExist, nil)
	if err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&v1alpha1.ProxySetList{}, &v1alpha1.ProxyList{}} {
		err := m.o.Reader.List(ctx, list, client.InNamespace(m.o.Namespace), client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*nobodys)})
		if err != nil {
			return fmt.Errorf("list what no member has: %w", err)
		}
		if err := meta.EachListItem(list, func(item runtime.Object) error {
			object, ok := item.(client.Object)
			if !ok {
				return nil
			}
			patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, v1alpha1.LabelMember, m.o.Member))
			return client.IgnoreNotFound(m.o.Client.Patch(ctx, object, patch))
		}); err != nil {
			return fmt.Errorf("adopt what no member has: %w", err)
		}
	}
	return nil
}

// Held lists the version of every ProxySet of the member.
func (m *Mirror) Held(ctx context.Context) ([]*agentv1.Held, error) {
	sets := &v1alpha1.ProxySetList{}
	if err := m.o.Reader.List(ctx, sets, client.InNamespace(m.o.Namespace), client.MatchingLabels{v1alpha1.LabelMember: m.o.Member}); err != nil {
		return nil, fmt.Errorf("list proxy sets: %w", err)
	}
	there := make(map[string]struct{}, len(sets.Items))
	for i := range sets.Items {
		there[sets.Items[i].Name] = struct{}{}
	}
	m.count.Lock()
	m.sets = there
	m.count.Unlock()
	held := make([]*agentv1.Held, 0, len(sets.Items))
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.DeletionTimestamp != nil {
			continue
		}
		held = append(held, &agentv1.Held{
			Uid:        string(set.Spec.PlacementUID),
			Generation: set.Spec.PlacementGeneration,
			Hash:       set.Annotations[annotationHash],
		})
	}
	return held, nil
}

// Apply keeps one item as a ProxySet. A field that this agent does not know is left out and named in an annotation,
// from which the set's condition Accepted is made: what is not understood is never dropped in silence.
//
// What is above the owner's ceiling is refused before it is even read: a hub fills no API server.
func (m *Mirror) Apply(ctx context.Context, item uplink.Item) error {
	if err := m.admit(SetName(item.UID), len(item.Spec)); err != nil {
		return err
	}
	err := m.apply(ctx, item)
	if err != nil {
		m.recount(ctx, SetName(item.UID))
	}
	return err
}

// admit asks the ceiling for one more ProxySet, and counts it from now on.
func (m *Mirror) admit(name string, size int) error {
	var policy ceiling.Policy
	if m.o.Policy != nil {
		policy = m.o.Policy()
	}
	m.count.Lock()
	defer m.count.Unlock()
	others := len(m.sets)
	if _, have := m.sets[name]; have {
		others = 0 // it has its place
	}
	if above := ceiling.CheckSet(policy, size, others); len(above) > 0 {
		return fmt.Errorf("above what this member's owner allows: %s: %s", above[0].Rule, above[0].Message)
	}
	m.sets[name] = struct{}{}
	return nil
}

// recount gives a place back that was taken for nothing.
func (m *Mirror) recount(ctx context.Context, name string) {
	err := m.o.Reader.Get(ctx, types.NamespacedName{Namespace: m.o.Namespace, Name: name}, &v1alpha1.ProxySet{})
	if apierrors.IsNotFound(err) {
		m.discount(name)
	}
}

func (m *Mirror) discount(name string) {
	m.count.Lock()
	defer m.count.Unlock()
	delete(m.sets, name)
}

func (m *Mirror) apply(ctx context.Context, item uplink.Item) error {
	spec, unknown, err := decode(item.Spec)
	if err != nil {
		return fmt.Errorf("this agent cannot read the placement's spec: %w", err)
	}
	if string(spec.PlacementUID) != item.UID {
		return fmt.Errorf("the spec is of placement %q and came as that of %q", spec.PlacementUID, item.UID)
	}
	spec.PlacementGeneration = item.Generation
	set := &v1alpha1.ProxySet{}
	key := types.NamespacedName{Namespace: m.o.Namespace, Name: SetName(item.UID)}
	switch err := m.o.Reader.Get(ctx, key, set); {
	case apierrors.IsNotFound(err):
		set = &v1alpha1.ProxySet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
		m.write(set, spec, item.Hash, unknown)
		if err := m.o.Client.Create(ctx, set); err != nil {
			return err
		}
		return m.keepCredentials(ctx, set, spec, item)
	case err != nil:
		return fmt.Errorf("get proxy set %s: %w", key.Name, err)
	case set.DeletionTimestamp != nil:
		return fmt.Errorf("proxy set %s is still being deleted", key.Name)
	case m.isAnothers(set):
		return fmt.Errorf("proxy set %s is member %s's", key.Name, set.Labels[v1alpha1.LabelMember])
	}
	// Before the set: a Proxy must find what it names.
	if err := m.keepCredentials(ctx, set, spec, item); err != nil {
		return err
	}
	// A newer version of the agent may know what an older one left out.
	same := set.Annotations[annotationHash] == item.Hash && set.Annotations[v1alpha1.AnnotationUnknownFields] == unknown
	if same && set.Spec.PlacementGeneration == item.Generation && set.Labels[v1alpha1.LabelMember] == m.o.Member {
		return nil
	}
	before := set.DeepCopy()
	m.write(set, spec, item.Hash, unknown)
	return m.o.Client.Patch(ctx, set, client.MergeFrom(before))
}

// isAnothers tells whether a set has another member's name on it.
func (m *Mirror) isAnothers(set *v1alpha1.ProxySet) bool {
	name := set.Labels[v1alpha1.LabelMember]
	return name != "" && name != m.o.Member
}

func (m *Mirror) write(set *v1alpha1.ProxySet, spec v1alpha1.ProxySetSpec, hash, unknown string) {
	if set.Labels == nil {
		set.Labels = map[string]string{}
	}
	set.Labels[v1alpha1.LabelFleetUID] = string(spec.FleetUID)
	set.Labels[v1alpha1.LabelPlacementUID] = string(spec.PlacementUID)
	set.Labels[v1alpha1.LabelMember] = m.o.Member
	set.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[annotationHash] = hash
	delete(set.Annotations, v1alpha1.AnnotationUnknownFields)
	if unknown != "" {
		set.Annotations[v1alpha1.AnnotationUnknownFields] = unknown
	}
	set.Spec = spec
}

// decode reads a spec. Fields that are not known make no error but come back as a list, each with its path.
func decode(data []byte) (spec v1alpha1.ProxySetSpec, unknown string, err error) {
	problems, err := kjson.UnmarshalStrict(data, &spec, kjson.DisallowUnknownFields)
	if err != nil {
		return v1alpha1.ProxySetSpec{}, "", err
	}
	words := make([]string, len(problems))
	for i, problem := range problems {
		words[i] = problem.Error()
	}
	slices.Sort(words)
	return spec, strings.Join(words, ", "), nil
}

// Delete removes a ProxySet and, before it, its proxies.
func (m *Mirror) Delete(ctx context.Context, uid string) error {
	set := &v1alpha1.ProxySet{}
	key := types.NamespacedName{Namespace: m.o.Namespace, Name: SetName(uid)}
	err := m.o.Reader.Get(ctx, key, set)
	switch {
	case err == nil && m.isAnothers(set):
		return nil // to this member it is unknown
	case err == nil:
		err = m.o.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &set.UID})
	}
	if err = client.IgnoreNotFound(err); err == nil {
		// It goes once its proxies have. What takes its place till then is counted at the next session's begin.
		m.discount(key.Name)
	}
	return err
}

// SetName derives a ProxySet's name from the UID of its placement.
func SetName(placementUID string) string {
	sum := sha256.Sum256([]byte(placementUID))
	return "ps-" + hex.EncodeToString(sum[:6])
}
