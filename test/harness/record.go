package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Event is one change of one object, as a watch told of it.
type Event[T client.Object] struct {
	// At is when this process heard of it. Clusters of this machine share its clock, so it can be compared with times
	// that programs in them log; it is later than the change itself by what a watch takes.
	At time.Time
	// Type is Added, Modified or Deleted.
	Type watch.EventType
	// Object is the object after the change.
	Object T
}

// Recorder keeps every event of one kind of objects, in order, from when it was made. It is safe for concurrent use.
type Recorder[T client.Object] struct {
	mu     sync.Mutex // guards what follows
	events []Event[T]
	err    error

	stop context.CancelFunc
	done chan struct{}
}

// Record watches a kind of objects until Stop, beginning with those that there are, each as an Added event.
func Record[T client.Object](ctx context.Context, c *Cluster, list client.ObjectList, opts ...client.ListOption) (*Recorder[T], error) {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return nil, fmt.Errorf("watch %T on %s: %w", list, c.Context, err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &Recorder[T]{stop: stop, done: make(chan struct{})}
	objects, err := meta.ExtractList(list)
	if err != nil {
		stop()
		return nil, err
	}
	for _, o := range objects {
		if typed, ok := o.(T); ok {
			r.add(watch.Added, typed)
		}
	}
	version := list.GetResourceVersion()
	go func() {
		defer close(r.done)
		for ctx.Err() == nil {
			if err := r.follow(ctx, c.Client, list, &version, opts); err != nil && ctx.Err() == nil {
				r.mu.Lock()
				r.err = fmt.Errorf("watch %T on %s: %w", list, c.Context, err)
				r.mu.Unlock()
				return
			}
		}
	}()
	return r, nil
}

// follow watches from a version on, until the API server ends the watch, which is no error.
func (r *Recorder[T]) follow(ctx context.Context, c client.WithWatch, list client.ObjectList, version *string, opts []client.ListOption) error {
	from := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: *version}}
	w, err := c.Watch(ctx, list, append(slices.Clone(opts), from)...)
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		typed, ok := event.Object.(T)
		if !ok {
			return fmt.Errorf("the watch ended with %v", event.Object)
		}
		*version = typed.GetResourceVersion()
		r.add(event.Type, typed)
	}
	return nil
}

func (r *Recorder[T]) add(kind watch.EventType, object T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, Event[T]{At: time.Now(), Type: kind, Object: object})
}

// Events returns what happened so far, or an error if something may be missing.
func (r *Recorder[T]) Events() ([]Event[T], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events), r.err
}

// Since returns the events from a time on, or an error if something may be missing.
func (r *Recorder[T]) Since(at time.Time) ([]Event[T], error) {
	events, err := r.Events()
	return slices.DeleteFunc(events, func(e Event[T]) bool { return e.At.Before(at) }), err
}

// Live returns the objects that exist, by UID, as last heard.
func (r *Recorder[T]) Live() map[types.UID]T {
	r.mu.Lock()
	defer r.mu.Unlock()
	live := map[types.UID]T{}
	for _, e := range r.events {
		if e.Type == watch.Deleted {
			delete(live, e.Object.GetUID())
		} else {
			live[e.Object.GetUID()] = e.Object
		}
	}
	return live
}

// Stop ends the watch and returns an error if it had broken before.
func (r *Recorder[T]) Stop() error {
	r.stop()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// StopAll stops recorders and joins their errors.
func StopAll[T client.Object](recorders ...*Recorder[T]) error {
	var errs []error
	for _, r := range recorders {
		errs = append(errs, r.Stop())
	}
	return errors.Join(errs...)
}
