package faultmatrix

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// memory keeps one Proxy as an API server does: by resource versions, with a generation, held by its finalizers. It is an
// API server for providers that keep nothing in one; thousands of cases take seconds with it. What it does not know it
// panics on.
type memory struct {
	client.WithWatch
	kept    *v1alpha1.Proxy
	version int
}

// NewMemory makes an API server of one Proxy.
func NewMemory() client.WithWatch { return &memory{} }

var resource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "proxies"}

func (m *memory) keep(p *v1alpha1.Proxy) {
	m.version++
	p.ResourceVersion = strconv.Itoa(m.version)
	m.kept = p
	if p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
		m.kept = nil
	}
}

// current gives what is kept, if it is what o was read from.
func (m *memory) current(o client.Object) (*v1alpha1.Proxy, error) {
	switch {
	case m.kept == nil:
		return nil, apierrors.NewNotFound(resource, o.GetName())
	case o.GetResourceVersion() != m.kept.ResourceVersion:
		return nil, apierrors.NewConflict(resource, o.GetName(), errors.New("it was read too long ago"))
	}
	return m.kept.DeepCopy(), nil
}

// Create keeps a Proxy.
func (m *memory) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	if m.kept != nil {
		return apierrors.NewAlreadyExists(resource, o.GetName())
	}
	p := proxyOf(o).DeepCopy()
	p.Generation = 1
	m.keep(p)
	return nil
}

// Get reads it.
func (m *memory) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if m.kept == nil || client.ObjectKeyFromObject(m.kept) != key {
		return apierrors.NewNotFound(resource, key.Name)
	}
	m.kept.DeepCopyInto(proxyOf(o))
	return nil
}

// List lists it.
func (m *memory) List(_ context.Context, l client.ObjectList, _ ...client.ListOption) error {
	list, ok := l.(*v1alpha1.ProxyList)
	if !ok {
		return fmt.Errorf("there is no list of %T here", l)
	}
	if m.kept != nil {
		list.Items = append(list.Items, *m.kept.DeepCopy())
	}
	return nil
}

// Update writes its spec and metadata.
func (m *memory) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	p, err := m.current(o)
	if err != nil {
		return err
	}
	from := proxyOf(o)
	p.Spec, p.Annotations, p.Labels, p.Finalizers = *from.Spec.DeepCopy(), from.Annotations, from.Labels, from.Finalizers
	p.Generation++
	m.keep(p)
	return nil
}

// Patch writes the metadata, which is all that the controller patches beside the status.
func (m *memory) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	p, err := m.current(o)
	if err != nil {
		return err
	}
	p.Annotations, p.Labels, p.Finalizers = o.GetAnnotations(), o.GetLabels(), o.GetFinalizers()
	m.keep(p)
	o.SetResourceVersion(p.ResourceVersion)
	return nil
}

// Delete begins its deletion.
func (m *memory) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	if m.kept == nil {
		return apierrors.NewNotFound(resource, o.GetName())
	}
	p := m.kept.DeepCopy()
	p.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	m.keep(p)
	return nil
}

// Status gives the writer of its status.
func (m *memory) Status() client.SubResourceWriter { return statusWriter{m: m} }

// SubResource gives the same.
func (m *memory) SubResource(string) client.SubResourceClient { return statusWriter{m: m} }

type statusWriter struct {
	client.SubResourceClient
	m *memory
}

// Patch writes the status.
func (w statusWriter) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	p, err := w.m.current(o)
	if err != nil {
		return err
	}
	proxyOf(o).Status.DeepCopyInto(&p.Status)
	w.m.keep(p)
	o.SetResourceVersion(p.ResourceVersion)
	return nil
}

func proxyOf(o client.Object) *v1alpha1.Proxy {
	p, ok := o.(*v1alpha1.Proxy)
	if !ok {
		panic(fmt.Sprintf("there is no %T here", o))
	}
	return p
}
