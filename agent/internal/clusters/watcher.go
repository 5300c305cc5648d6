package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/shoal-dev/shoal/agent/internal/engage"
	"github.com/shoal-dev/shoal/agent/internal/settings"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Members takes and loses members. *engage.Provider is one.
type Members interface {
	Set(name string, c engage.Candidate) error
	Remove(name, source string)
}

// Options configures a Watcher. All are required.
type Options struct {
	// Config reaches the API server of the agent's own cluster, and Scheme knows its kinds.
	Config *rest.Config
	Scheme *runtime.Scheme
	// Namespace is the agent's own.
	Namespace string
	// Settings are what Secrets are checked against.
	Settings *settings.Settings
	// Members is told of the clusters.
	Members Members
	// Candidate makes what a cluster is engaged by; its source and whom it tells are set by the Watcher.
	Candidate func(*Cluster) engage.Candidate
	// Recorder takes events about Secrets.
	Recorder events.EventRecorder
	// Logger is told of changes, and of what is wrong with them.
	Logger *slog.Logger
}

// Watcher follows the kubeconfig Secrets of the agent's namespace.
type Watcher struct {
	o Options

	mu sync.Mutex // guards what follows
	// held are the members by the names of their Secrets, and refused the Secrets whose member's name another has.
	held    map[string]entry
	refused map[string]*corev1.Secret
}

// entry is what was last made of a Secret: its data, and the name of the member that came of it, empty if none did.
type entry struct {
	data   map[string][]byte
	member string
}

// New makes a Watcher.
func New(o Options) (*Watcher, error) {
	if o.Config == nil || o.Scheme == nil || o.Namespace == "" || o.Settings == nil || o.Members == nil || o.Candidate == nil || o.Recorder == nil || o.Logger == nil {
		return nil, errors.New("clusters: Config, Scheme, Namespace, Settings, Members, Candidate, Recorder and Logger are required")
	}
	return &Watcher{o: o, held: map[string]entry{}, refused: map[string]*corev1.Secret{}}, nil
}

// Run follows the Secrets until ctx ends, and returns nil then. It has a cache of its own: where the agent may not read
// Secrets, nothing else waits for it.
func (w *Watcher) Run(ctx context.Context) error {
	secrets, err := cache.New(w.o.Config, cache.Options{
		Scheme:               w.o.Scheme,
		DefaultNamespaces:    map[string]cache.Config{w.o.Namespace: {}},
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelComponent: v1alpha1.ComponentKubeconfig}),
	})
	if err != nil {
		return fmt.Errorf("clusters: %w", err)
	}
	informer, err := secrets.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("clusters: watch Secrets: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { w.see(o) },
		UpdateFunc: func(_, o any) { w.see(o) },
		DeleteFunc: func(o any) { w.lose(o) },
	})
	if err != nil {
		return fmt.Errorf("clusters: watch Secrets: %w", err)
	}
	return secrets.Start(ctx)
}

func (w *Watcher) see(o any) {
	secret, ok := o.(*corev1.Secret)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, known := w.held[secret.Name]; known && maps.EqualFunc(before.data, secret.Data, bytes.Equal) {
		return
	}
	w.take(secret)
}

// take makes a member of a Secret, in place of what came of it before. Of one that is wrong nothing is used, and what
// came of it before stays. It is called with the lock held.
func (w *Watcher) take(secret *corev1.Secret) {
	before := w.held[secret.Name]
	delete(w.refused, secret.Name)
	w.held[secret.Name] = entry{data: secret.Data, member: before.member}
	cluster, err := Read(secret, w.o.Namespace, w.o.Settings)
	if err != nil {
		w.tell(secret, corev1.EventTypeWarning, "Refused", err.Error())
		w.o.Logger.Error("a kubeconfig Secret cannot be used", "secret", secret.Name, "err", err)
		return
	}
	if before.member != "" && before.member != cluster.Member {
		w.o.Members.Remove(before.member, sourceOf(secret.Name))
		defer w.retry()
	}
	c := w.o.Candidate(cluster)
	c.Source = sourceOf(secret.Name)
	c.Tell = func(s engage.State) { w.tellState(secret, s) }
	if err := w.o.Members.Set(cluster.Member, c); err != nil {
		w.held[secret.Name] = entry{data: secret.Data}
		w.refused[secret.Name] = secret
		w.tell(secret, corev1.EventTypeWarning, "Refused", err.Error())
		w.o.Logger.Error("a kubeconfig Secret cannot be a member", "secret", secret.Name, "err", err)
		return
	}
	w.held[secret.Name] = entry{data: secret.Data, member: cluster.Member}
}

// retry gives Secrets whose member's name was taken another chance, when a name has become free.
func (w *Watcher) retry() {
	for _, secret := range maps.Clone(w.refused) {
		w.take(secret)
	}
}

func (w *Watcher) lose(o any) {
	if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = unknown.Obj
	}
	secret, ok := o.(*corev1.Secret)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	member := w.held[secret.Name].member
	delete(w.held, secret.Name)
	delete(w.refused, secret.Name)
	if member == "" {
		return
	}
	w.o.Logger.Info("a kubeconfig Secret is gone; what its member has is left as it is", "secret", secret.Name, "member", member)
	w.o.Members.Remove(member, sourceOf(secret.Name))
	w.retry()
}

func sourceOf(secret string) string { return "the cluster of Secret " + secret }

func (w *Watcher) tellState(secret *corev1.Secret, s engage.State) {
	switch {
	case s.Phase == engage.PhaseEngaged && s.Reason == "":
		w.tell(secret, corev1.EventTypeNormal, "Engaged", "the cluster is served as member "+s.Member)
	case s.Err != nil:
		w.tell(secret, corev1.EventTypeWarning, string(s.Reason), fmt.Sprintf("member %s: %v", s.Member, s.Err))
	}
}

// longestNote is what an event takes.
const longestNote = 1000

func (w *Watcher) tell(secret *corev1.Secret, level, reason, note string) {
	if len(note) > longestNote {
		note = note[:longestNote] + "…"
	}
	w.o.Recorder.Eventf(secret, nil, level, reason, "Engage", "%s", note)
}
