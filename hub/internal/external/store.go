package external

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// fresh is how long a Secret that was read is not read again, so that a fleet that is looked at often asks seldom. With
// the fleets' own interval it bounds how late a changed Secret is noticed.
const fresh = 5 * time.Second

// Options are what a Store is made with. Both are required.
type Options struct {
	// Reader reads past caches: a cache of Secrets would have to list and watch them.
	Reader client.Reader
	// Clock is the hub's.
	Clock clock.PassiveClock
}

// Store is the credentials of all fleets of proxies that someone else runs. It is safe for concurrent use. Only Refresh
// waits for anything.
type Store struct {
	opts Options

	mu     sync.Mutex
	reads  map[types.NamespacedName]read
	fleets map[types.NamespacedName]*entry
}

// read is a Secret as it was last read.
type read struct {
	credentials Credentials
	problem     *Problem
	at          time.Time
}

// entry is what is known of one fleet.
type entry struct {
	// endpoints has the credentials of each proxy by its address.
	endpoints map[string]Credentials
	// keys has the credentials of each Secret by its name in the spec.
	keys map[string]Credentials
}

// New makes an empty store. It panics if an option is missing: that is a mistake in the wiring.
func New(opts Options) *Store {
	if opts.Reader == nil || opts.Clock == nil {
		panic("external: Options.Reader and Clock are required")
	}
	return &Store{opts: opts, reads: map[types.NamespacedName]read{}, fleets: map[types.NamespacedName]*entry{}}
}

// Refresh reads the credentials that a fleet's endpoints name. If any of them cannot be used, the problem says why and
// nothing of the fleet changes here. placed are the addresses of endpoints that members still have: one that is no longer
// in the spec keeps its credentials while it is among them. An error means that the API server did not answer.
func (s *Store) Refresh(ctx context.Context, fleet *v1alpha1.ProxyFleet, placed []string) (*Problem, error) {
	spec := fleet.Spec.External
	if spec == nil {
		return nil, errors.New("external: the fleet has no external endpoints")
	}
	next := &entry{endpoints: map[string]Credentials{}, keys: map[string]Credentials{}}
	for _, name := range spec.SecretNames() {
		credentials, problem, err := s.read(ctx, types.NamespacedName{Namespace: fleet.Namespace, Name: name})
		if problem != nil || err != nil {
			return problem, err
		}
		next.keys[name] = credentials
	}
	for i := range spec.Endpoints {
		next.endpoints[spec.Endpoints[i].Address()] = next.keys[spec.SecretOf(&spec.Endpoints[i])]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := client.ObjectKeyFromObject(fleet)
	if old := s.fleets[id]; old != nil {
		for _, address := range placed {
			if _, ok := next.endpoints[address]; ok {
				continue
			}
			if credentials, ok := old.endpoints[address]; ok {
				next.endpoints[address] = credentials
			}
		}
	}
	s.fleets[id] = next
	return nil, nil //nolint:nilnil // no problem and no error is how it should be
}

// read gets one Secret, unless that was done a moment ago.
func (s *Store) read(ctx context.Context, name types.NamespacedName) (Credentials, *Problem, error) {
	now := s.opts.Clock.Now()
	s.mu.Lock()
	last, ok := s.reads[name]
	s.mu.Unlock()
	if ok && now.Sub(last.at) < fresh {
		return last.credentials, last.problem, nil
	}
	secret := &corev1.Secret{}
	next := read{at: now}
	err := s.opts.Reader.Get(ctx, name, secret)
	switch {
	case apierrors.IsForbidden(err):
		next.problem = &Problem{v1alpha1.ReasonCredentialsUnreadable, fmt.Sprintf(
			"the hub may not read Secret %s: set externalCredentials.enabled to true in the values of the hub's chart, "+
				"with namespace %s among externalCredentials.namespaces if that lists any", name, name.Namespace)}
	case apierrors.IsNotFound(err):
		next.problem = &Problem{v1alpha1.ReasonCredentialsMissing, fmt.Sprintf(
			"there is no Secret %s; create it with the keys %s and %s, or take it out of spec.external",
			name, v1alpha1.CredentialsUsernameKey, v1alpha1.CredentialsPasswordKey)}
	case err != nil:
		return Credentials{}, nil, fmt.Errorf("read Secret %s: %w", name, err)
	default:
		next.credentials, next.problem = parse(secret)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for other, r := range s.reads { // there are as many as fleets name
		if now.Sub(r.at) >= fresh {
			delete(s.reads, other)
		}
	}
	s.reads[name] = next
	return next.credentials, next.problem, nil
}

// Key names the version of a Secret's credentials; empty if the fleet's spec does not name the Secret, or it was not read.
func (s *Store) Key(fleet types.NamespacedName, secret string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.fleets[fleet]; e != nil {
		return e.keys[secret].Key
	}
	return ""
}

// ByKey gives the credentials of a fleet that a key names; false if that version of them is not known.
func (s *Store) ByKey(fleet types.NamespacedName, key string) (Credentials, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.fleets[fleet]
	if e == nil || key == "" {
		return Credentials{}, false
	}
	for _, c := range e.keys {
		if c.Key == key {
			return c, true
		}
	}
	for _, c := range e.endpoints {
		if c.Key == key {
			return c, true
		}
	}
	return Credentials{}, false
}

// Lookup gives the credentials of one proxy of a fleet, the zero value if it asks for none. It is false for an endpoint
// that the fleet does not name, and for a fleet whose Secrets could not be read yet.
func (s *Store) Lookup(fleet types.NamespacedName, host string, port uint16) (Credentials, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.fleets[fleet]
	if e == nil {
		return Credentials{}, false
	}
	credentials, ok := e.endpoints[net.JoinHostPort(host, strconv.Itoa(int(port)))]
	return credentials, ok
}

// Forget drops all that is known of a fleet.
func (s *Store) Forget(fleet types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.fleets, fleet)
}
