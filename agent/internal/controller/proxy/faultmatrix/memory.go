package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// memory keeps a few objects as an API server does: by resource versions, with a generation, held by their finalizers, pods
// on a node until their kubelet lets them go. Thousands of cases take seconds with it. What it does not know it panics on.
type memory struct {
	client.WithWatch
	clock   clock.PassiveClock
	objects map[kept]client.Object
	version int
}

// kept names an object.
type kept struct {
	kind reflect.Type
	key  client.ObjectKey
}

// NewMemory makes an API server for a provider that keeps nothing of its own in one.
func NewMemory() client.WithWatch {
	return NewMemoryAt(clocktesting.NewFakePassiveClock(time.Unix(1, 0)))
}

// NewMemoryAt makes an API server with a clock, which also keeps pods and config maps.
func NewMemoryAt(c clock.PassiveClock) client.WithWatch {
	return &memory{clock: c, objects: map[kept]client.Object{}}
}

func keptOf(o client.Object) kept {
	return kept{kind: reflect.TypeOf(o), key: client.ObjectKeyFromObject(o)}
}

func resourceOf(o client.Object) schema.GroupResource {
	return schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: fmt.Sprintf("%T", o)}
}

func clone[T client.Object](o T) T {
	return o.DeepCopyObject().(T) //nolint:forcetypeassert // a copy is of the same type
}

func (m *memory) keep(o client.Object) {
	m.version++
	o.SetResourceVersion(strconv.Itoa(m.version))
	m.objects[keptOf(o)] = o
	if _, pod := o.(*corev1.Pod); !pod && o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		delete(m.objects, keptOf(o))
	}
}

// current gives what is kept, if it is what o was read from.
func (m *memory) current(o client.Object) (client.Object, error) {
	have, ok := m.objects[keptOf(o)]
	switch {
	case !ok:
		return nil, apierrors.NewNotFound(resourceOf(o), o.GetName())
	case o.GetResourceVersion() != have.GetResourceVersion():
		return nil, apierrors.NewConflict(resourceOf(o), o.GetName(), errors.New("it was read too long ago"))
	}
	return clone(have), nil
}

// Create keeps an object.
func (m *memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if m.objects[keptOf(o)] != nil {
		return apierrors.NewAlreadyExists(resourceOf(o), o.GetName())
	}
	n := clone(o)
	n.SetGeneration(1)
	if n.GetUID() == "" {
		n.SetUID(types.UID(fmt.Sprintf("uid-%d", m.version)))
	}
	if n.GetCreationTimestamp().Time.IsZero() {
		n.SetCreationTimestamp(metav1.NewTime(m.clock.Now()))
	}
	m.keep(n)
	return nil
}

// Get reads one.
func (m *memory) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	have, ok := m.objects[kept{kind: reflect.TypeOf(o), key: key}]
	if !ok {
		return apierrors.NewNotFound(resourceOf(o), key.Name)
	}
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(clone(have)).Elem())
	return nil
}

// List lists Proxies or pods.
func (m *memory) List(_ context.Context, l client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	for _, have := range m.objects {
		if o.LabelSelector != nil && !o.LabelSelector.Matches(labels.Set(have.GetLabels())) {
			continue
		}
		switch list := l.(type) {
		case *v1alpha1.ProxyList:
			if p, ok := have.(*v1alpha1.Proxy); ok {
				list.Items = append(list.Items, *p.DeepCopy())
			}
		case *corev1.PodList:
			if p, ok := have.(*corev1.Pod); ok {
				list.Items = append(list.Items, *p.DeepCopy())
			}
		default:
			return fmt.Errorf("there is no list of %T here", l)
		}
	}
	return nil
}

// Update writes the spec and the metadata of a Proxy.
func (m *memory) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	have, err := m.current(o)
	if err != nil {
		return err
	}
	p := have.(*v1alpha1.Proxy)                   //nolint:forcetypeassert // it panics on what it does not know
	p.Spec = *o.(*v1alpha1.Proxy).Spec.DeepCopy() //nolint:forcetypeassert // the same
	p.Annotations, p.Finalizers = o.GetAnnotations(), o.GetFinalizers()
	p.Generation++
	m.keep(p)
	return nil
}

// Patch writes the metadata, which is all that is patched beside the status.
func (m *memory) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	have, err := m.current(o)
	if err != nil {
		return err
	}
	have.SetAnnotations(o.GetAnnotations())
	have.SetLabels(o.GetLabels())
	have.SetFinalizers(o.GetFinalizers())
	m.keep(have)
	o.SetResourceVersion(have.GetResourceVersion())
	return nil
}

// Delete begins the deletion of an object, and ends it where nothing holds it.
func (m *memory) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	have, ok := m.objects[keptOf(o)]
	if !ok {
		return apierrors.NewNotFound(resourceOf(o), o.GetName())
	}
	d := (&client.DeleteOptions{}).ApplyOptions(opts)
	if d.Preconditions != nil && d.Preconditions.UID != nil && *d.Preconditions.UID != have.GetUID() {
		return apierrors.NewConflict(resourceOf(o), o.GetName(), errors.New("it is another one"))
	}
	n := clone(have)
	grace := ptr.Deref(d.GracePeriodSeconds, 0)
	n.SetDeletionTimestamp(ptr.To(metav1.NewTime(m.clock.Now().Add(time.Duration(grace) * time.Second))))
	n.SetDeletionGracePeriodSeconds(&grace)
	m.keep(n)
	if pod, ok := n.(*corev1.Pod); ok && (grace == 0 || pod.Spec.NodeName == "") {
		delete(m.objects, keptOf(n))
	}
	return nil
}

// Status gives the writer of statuses.
func (m *memory) Status() client.SubResourceWriter { return subresource{m: m} }

// SubResource gives the same, and the one that binds pods to nodes.
func (m *memory) SubResource(string) client.SubResourceClient { return subresource{m: m} }

type subresource struct {
	client.SubResourceClient
	m *memory
}

// Create binds a pod to a node.
func (w subresource) Create(_ context.Context, o, sub client.Object, _ ...client.SubResourceCreateOption) error {
	pod := clone(w.m.objects[keptOf(o)]).(*corev1.Pod)    //nolint:forcetypeassert // it panics on what it does not know
	pod.Spec.NodeName = sub.(*corev1.Binding).Target.Name //nolint:forcetypeassert // the same
	w.m.keep(pod)
	return nil
}

// Update writes the status of a pod.
func (w subresource) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	have, err := w.m.current(o)
	if err != nil {
		return err
	}
	have.(*corev1.Pod).Status = *o.(*corev1.Pod).Status.DeepCopy() //nolint:forcetypeassert // it panics on what it does not know
	w.m.keep(have)
	return nil
}

// Patch writes the status of a Proxy.
func (w subresource) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	have, err := w.m.current(o)
	if err != nil {
		return err
	}
	have.(*v1alpha1.Proxy).Status = *o.(*v1alpha1.Proxy).Status.DeepCopy() //nolint:forcetypeassert // it panics on what it does not know
	w.m.keep(have)
	o.SetResourceVersion(have.GetResourceVersion())
	return nil
}
