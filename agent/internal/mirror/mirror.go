// Package mirror keeps a member's copy of what the hub desires, so that the agent works through any outage of the hub.
//
// Each ProxyPlacement of the hub is a ProxySet here, under a name derived from the placement's UID: a tenant's names
// never reach a member. What the hub's credentials are checked with is in one ConfigMap that every proxy mounts, and
// beside it who hub and member are, which the agent must know to own anything.
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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/uplink"
	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
	agentv1 "github.com/shoal-dev/shoal/proto/gen/shoal/agent/v1"
)

const (
	// KeysConfigMap is the ConfigMap that every proxy mounts.
	KeysConfigMap = "shoal-keys"
	// HubKeys is the key in it of what checks credentials of leases.
	HubKeys = "hub.json"
	// AgentKeys is the key in it of what checks credentials of this agent's probes.
	AgentKeys = "agent.json"

	annotationHash = v1alpha1.AnnotationSpecHash
)

// Options configures a Mirror.
type Options struct {
	// Client writes to the agent's namespace.
	Client client.Client
	// Reader reads from it without a cache: what a session is told about must be what is there.
	Reader client.Reader
	// Namespace is the agent's own.
	Namespace string
	// Policy gives the owner's ceiling; nil means the zero policy.
	Policy func() ceiling.Policy
}

// Mirror implements [uplink.Applier]. It is safe for concurrent use, for one uid by one caller at a time.
type Mirror struct {
	o Options

	mu        sync.Mutex // guards what follows
	hubUID    string
	memberUID string
	// keys says that what credentials of leases are checked with is kept.
	keys bool
	// sets are the names of the ProxySets that are there, as far as is known.
	sets map[string]struct{}
}

var _ uplink.Applier = (*Mirror)(nil)

// New makes a Mirror.
func New(o Options) (*Mirror, error) {
	if o.Client == nil || o.Reader == nil || o.Namespace == "" {
		return nil, errors.New("mirror: Client, Reader and Namespace are required")
	}
	return &Mirror{o: o, sets: map[string]struct{}{}}, nil
}

// Load reads who hub and member are, as an earlier run of the agent has learnt it. It is no error if none has.
func (m *Mirror) Load(ctx context.Context) error {
	keys := &corev1.ConfigMap{}
	err := m.o.Reader.Get(ctx, m.keysName(), keys)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	m.Welcomed(keys.Annotations[v1alpha1.LabelHubUID], keys.Annotations[v1alpha1.LabelMemberUID])
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = keys.Data[HubKeys] != ""
	return nil
}

// Identity tells who hub and member are, and whether that is known yet. It is not before the keys for credentials are
// kept: the first proxies would start without them, and a kubelet brings them later only after a minute or more.
func (m *Mirror) Identity() (hubUID, memberUID string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hubUID, m.memberUID, m.keys && m.hubUID != "" && m.memberUID != ""
}

// Welcomed takes note of who hub and member are. SetKeys, which a session calls next, keeps it.
func (m *Mirror) Welcomed(hubUID, memberUID string) {
	if hubUID == "" || memberUID == "" {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hubUID, m.memberUID = hubUID, memberUID
}

// Held lists the version of every ProxySet.
func (m *Mirror) Held(ctx context.Context) ([]*agentv1.Held, error) {
	sets := &v1alpha1.ProxySetList{}
	if err := m.o.Reader.List(ctx, sets, client.InNamespace(m.o.Namespace)); err != nil {
		return nil, fmt.Errorf("list proxy sets: %w", err)
	}
	there := make(map[string]struct{}, len(sets.Items))
	for i := range sets.Items {
		there[sets.Items[i].Name] = struct{}{}
	}
	m.mu.Lock()
	m.sets = there
	m.mu.Unlock()
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
	m.mu.Lock()
	defer m.mu.Unlock()
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
		m.mu.Lock()
		delete(m.sets, name)
		m.mu.Unlock()
	}
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
		write(set, spec, item.Hash, unknown)
		return m.o.Client.Create(ctx, set)
	case err != nil:
		return fmt.Errorf("get proxy set %s: %w", key.Name, err)
	case set.DeletionTimestamp != nil:
		return fmt.Errorf("proxy set %s is still being deleted", key.Name)
	}
	// A newer version of the agent may know what an older one left out.
	same := set.Annotations[annotationHash] == item.Hash && set.Annotations[v1alpha1.AnnotationUnknownFields] == unknown
	if same && set.Spec.PlacementGeneration == item.Generation {
		return nil
	}
	before := set.DeepCopy()
	write(set, spec, item.Hash, unknown)
	return m.o.Client.Patch(ctx, set, client.MergeFrom(before))
}

func write(set *v1alpha1.ProxySet, spec v1alpha1.ProxySetSpec, hash, unknown string) {
	if set.Labels == nil {
		set.Labels = map[string]string{}
	}
	set.Labels[v1alpha1.LabelFleetUID] = string(spec.FleetUID)
	set.Labels[v1alpha1.LabelPlacementUID] = string(spec.PlacementUID)
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
	set := &v1alpha1.ProxySet{ObjectMeta: metav1.ObjectMeta{Namespace: m.o.Namespace, Name: SetName(uid)}}
	err := m.o.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err = client.IgnoreNotFound(err); err == nil {
		// It goes once its proxies have. What takes its place till then is counted at the next session's begin.
		m.mu.Lock()
		delete(m.sets, set.Name)
		m.mu.Unlock()
	}
	return err
}

// SetKeys keeps what credentials of leases are checked with, and who hub and member are.
func (m *Mirror) SetKeys(ctx context.Context, keys []byte) error {
	if _, _, err := credential.Parse(keys); err != nil {
		return fmt.Errorf("the hub's keys: %w", err)
	}
	if err := m.writeKeys(ctx, HubKeys, keys); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.keys = true
	return nil
}

// SetProbeKeys keeps what credentials of this agent's probes are checked with.
func (m *Mirror) SetProbeKeys(ctx context.Context, keys []byte) error {
	return m.writeKeys(ctx, AgentKeys, keys)
}

// writeKeys replaces one key of the ConfigMap and leaves the other as it is.
func (m *Mirror) writeKeys(ctx context.Context, key string, value []byte) error {
	m.mu.Lock()
	hubUID, memberUID := m.hubUID, m.memberUID
	m.mu.Unlock()
	object := &corev1.ConfigMap{}
	err := m.o.Reader.Get(ctx, m.keysName(), object)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return fmt.Errorf("get config map %s: %w", KeysConfigMap, err)
	}
	if missing {
		object = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.o.Namespace, Name: KeysConfigMap}}
	}
	before := object.DeepCopy()
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	object.Data[key] = string(value)
	if object.Annotations == nil {
		object.Annotations = map[string]string{}
	}
	if hubUID != "" {
		object.Annotations[v1alpha1.LabelHubUID] = hubUID
		object.Annotations[v1alpha1.LabelMemberUID] = memberUID
	}
	if object.Labels == nil {
		object.Labels = map[string]string{}
	}
	object.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedBy
	if missing {
		return m.o.Client.Create(ctx, object)
	}
	return m.o.Client.Patch(ctx, object, client.MergeFrom(before))
}

func (m *Mirror) keysName() types.NamespacedName {
	return types.NamespacedName{Namespace: m.o.Namespace, Name: KeysConfigMap}
}

// SetName derives a ProxySet's name from the UID of its placement.
func SetName(placementUID string) string {
	sum := sha256.Sum256([]byte(placementUID))
	return "ps-" + hex.EncodeToString(sum[:6])
}
