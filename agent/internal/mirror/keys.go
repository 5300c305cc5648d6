package mirror

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
	"github.com/shoal-dev/shoal/proto/credential"
)

const (
	// KeysConfigMap is the ConfigMap that every proxy mounts.
	KeysConfigMap = "shoal-keys"
	// HubKeys is the key in it of what checks credentials of leases.
	HubKeys = "hub.json"
	// AgentKeys is the key in it of what checks credentials of this agent's probes.
	AgentKeys = "agent.json"

	// annotationMemberUID and a member's name are the annotation that has the UID of that member: several may share the
	// ConfigMap, as they share hub and agent.
	annotationMemberUID = "member-uid.shoal.dev/"
	// writeAttempts bounds how often the ConfigMap is written while other members write it as well.
	writeAttempts = 5
)

// Keys are the documents that credentials are checked with. Both are public. Either is empty while it is not known.
type Keys struct {
	// Hub checks credentials of leases, and Agent those of this agent's probes.
	Hub, Agent string
}

// known is what a member knows of itself, of the hub and of keys. It is in the ConfigMap as well.
type known struct {
	mu        sync.Mutex // guards what follows
	hubUID    string
	memberUID string
	keys      Keys
}

// Load reads who hub and member are, as an earlier run of the agent has learnt it. It is no error if none has.
func (m *Mirror) Load(ctx context.Context) error {
	object := &corev1.ConfigMap{}
	if err := m.o.Reader.Get(ctx, m.keysName(), object); err != nil {
		return client.IgnoreNotFound(err)
	}
	m.Welcomed(object.Annotations[v1alpha1.LabelHubUID], object.Annotations[annotationMemberUID+m.o.Member])
	m.know(Keys{Hub: object.Data[HubKeys], Agent: object.Data[AgentKeys]})
	return nil
}

// Identity tells who hub and member are, and whether that is known yet. It is not before the keys for credentials are
// kept: the first proxies would start without them, and a kubelet brings them later only after a minute or more.
func (m *Mirror) Identity() (hubUID, memberUID string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hubUID, m.memberUID, m.keys.Hub != "" && m.hubUID != "" && m.memberUID != ""
}

// Keys gives what credentials are checked with.
func (m *Mirror) Keys() Keys {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.keys
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

// SetKeys keeps what credentials of leases are checked with, and who hub and member are.
func (m *Mirror) SetKeys(ctx context.Context, keys []byte) error {
	if _, _, err := credential.Parse(keys); err != nil {
		return fmt.Errorf("the hub's keys: %w", err)
	}
	if err := m.writeKeys(ctx, HubKeys, string(keys)); err != nil {
		return err
	}
	m.know(Keys{Hub: string(keys)})
	return nil
}

// SetProbeKeys keeps what credentials of this agent's probes are checked with.
func (m *Mirror) SetProbeKeys(ctx context.Context, keys []byte) error {
	if err := m.writeKeys(ctx, AgentKeys, string(keys)); err != nil {
		return err
	}
	m.know(Keys{Agent: string(keys)})
	return nil
}

// know takes note of keys that are kept; those that are empty stay as they were.
func (m *Mirror) know(keys Keys) {
	m.mu.Lock()
	before := m.keys
	if keys.Hub != "" {
		m.keys.Hub = keys.Hub
	}
	if keys.Agent != "" {
		m.keys.Agent = keys.Agent
	}
	changed := m.keys != before
	m.mu.Unlock()
	if changed && m.o.OnKeys != nil {
		m.o.OnKeys()
	}
}

// writeKeys replaces one key of the ConfigMap and leaves what others have written as it is.
func (m *Mirror) writeKeys(ctx context.Context, key, value string) (err error) {
	for range writeAttempts {
		err = m.tryWriteKeys(ctx, key, value)
		// Another member has made it, or removed it, meanwhile.
		if !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return err
}

func (m *Mirror) tryWriteKeys(ctx context.Context, key, value string) error {
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
	set := func(in *map[string]string, key, value string) {
		if *in == nil {
			*in = map[string]string{}
		}
		(*in)[key] = value
	}
	set(&object.Data, key, value)
	set(&object.Labels, v1alpha1.LabelManagedBy, v1alpha1.ManagedBy)
	m.mu.Lock()
	if m.hubUID != "" {
		set(&object.Annotations, v1alpha1.LabelHubUID, m.hubUID)
		set(&object.Annotations, annotationMemberUID+m.o.Member, m.memberUID)
	}
	m.mu.Unlock()
	switch {
	case missing:
		return m.o.Client.Create(ctx, object)
	case equality.Semantic.DeepEqual(before, object):
		return nil
	}
	return m.o.Client.Patch(ctx, object, client.MergeFrom(before))
}

func (m *Mirror) keysName() types.NamespacedName {
	return types.NamespacedName{Namespace: m.o.Namespace, Name: KeysConfigMap}
}
