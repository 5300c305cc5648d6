package faultmatrix

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/shoal-dev/shoal/agent/internal/ceiling"
	"github.com/shoal-dev/shoal/agent/internal/controller/proxy"
	"github.com/shoal-dev/shoal/agent/internal/probe"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// Subject is a provider and what its world does by itself, with an API server to keep the Proxy in. Each case gets one of
// its own.
type Subject struct {
	// Provider makes a provider that reads and writes objects by a client, if it does so at all. It is called again after
	// each time that the agent was killed, and must lead to the same instances.
	Provider func(t *testing.T, c client.WithWatch) provider.Provider
	// Client keeps the Proxy. It has no cache.
	Client client.WithWatch
	// Namespace is where the Proxy is made.
	Namespace string
	// Settings are those of the Proxy.
	Settings v1alpha1.ProxySettings
	// Clock is the time of the agent and of the provider.
	Clock *clocktesting.FakePassiveClock
	// Advance moves the time and has everything happen that is due by then: what was asked for runs, what was asked to go
	// is gone.
	Advance func(t *testing.T, d time.Duration)
	// Instances names every instance that there is, seen or not: all that somebody would pay for.
	Instances func(t *testing.T) []string
	// Lose removes an instance behind the agent's back.
	Lose func(t *testing.T, name string)
	// Fail has an instance fail for good; nil where the provider's instances do not.
	Fail func(t *testing.T, name string)
}

const (
	proxyName = "p"
	member    = "east"
	entry     = "entry"
)

// healthy is a prober through whose proxies every page comes.
type healthy struct{}

func (healthy) Upsert(probe.Proxy) {}
func (healthy) Remove(probe.UID)   {}
func (healthy) Verdict(uid probe.UID) (probe.Verdict, bool) {
	return probe.Verdict{UID: uid, State: probe.StateReady, Class: probe.ClassOK}, true
}

// known is a member whose hub is known.
type known struct{}

func (known) Identity() (hubUID, memberUID string, ok bool) { return "hub", "member", true }

// world is one case: a Proxy, its controller, and what goes wrong.
type world struct {
	t        *testing.T
	s        Subject
	calls    *injector
	writes   *injector
	provider *faulty
	lag      time.Duration
	r        *proxy.Reconciler
	// struck is how many calls and writes there had been when the second thing of a story happened.
	struck [2]int
	// trail is what was done, for who has to find out why.
	trail []string
}

func newWorld(t *testing.T, s Subject, lag time.Duration) *world {
	t.Helper()
	w := &world{t: t, s: s, calls: &injector{}, writes: &injector{}, lag: lag}
	w.provider = &faulty{injector: w.calls, clock: s.Clock, lag: lag}
	w.restart()
	return w
}

// restart starts the agent anew: it knows what is in the API server and with the provider, and nothing else.
func (w *world) restart() {
	c := writes(w.s.Client, w.writes)
	w.provider.Provider = w.s.Provider(w.t, c)
	r, err := proxy.New(proxy.Options{
		Clock: w.s.Clock, HomeClusterUID: "home", Verdicts: proxy.NewVerdicts(),
		Site: func(context.Context, string) (proxy.Site, error) {
			return proxy.Site{
				Client: c, Member: known{}, Prober: healthy{},
				Entries: map[string]proxy.Entry{entry: {Provider: w.provider.wrapped()}},
				Policy: func() ceiling.Policy {
					return ceiling.Policy{Providers: []string{entry}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}
				},
				Credential: func(time.Time, string) (user, pass string, err error) { return "probe", "secret", nil },
			}, nil
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.r = r
}

// make makes the Proxy.
func (w *world) make() {
	p := &v1alpha1.Proxy{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.s.Namespace, Name: proxyName, UID: "5f0c1d9e-0000-4000-8000-000000000001", CreationTimestamp: metav1.NewTime(w.s.Clock.Now())},
		Spec:       v1alpha1.ProxySpec{Mode: v1alpha1.ModeManaged, Provider: entry, ProxySettings: w.s.Settings},
	}
	if err := w.s.Client.Create(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

// get gives the Proxy, nil where there is none.
func (w *world) get() *v1alpha1.Proxy {
	p := &v1alpha1.Proxy{}
	err := w.s.Client.Get(w.t.Context(), types.NamespacedName{Namespace: w.s.Namespace, Name: proxyName}, p)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *world) change(f func(*v1alpha1.Proxy)) {
	p := w.get()
	f(p)
	if err := w.s.Client.Update(w.t.Context(), p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete() {
	if err := w.s.Client.Delete(w.t.Context(), w.get()); err != nil {
		w.t.Fatal(err)
	}
}

// pass makes one pass, and starts the agent anew where it was killed in it.
func (w *world) pass() (result ctrl.Result, err error, killed bool) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case crash{}:
			w.restart()
			killed = true
		default:
			panic(r)
		}
	}()
	result, err = w.r.Reconcile(w.t.Context(), mcreconcile.Request{
		Request:     reconcile.Request{NamespacedName: types.NamespacedName{Namespace: w.s.Namespace, Name: proxyName}},
		ClusterName: member,
	})
	return result, err, false
}

// errTwo is what no case may ever come to.
var errTwo = errors.New("there are two instances")

// converge makes passes until nothing changes any more and what is wanted is there. Between passes the time moves on by
// what the controller asked for.
func (w *world) converge(reached func() bool) error {
	last := ""
	for range 400 {
		if err := w.provider.watch(w.t.Context(), provider.Identity{HubUID: "hub", MemberUID: "member", HomeClusterUID: "home"}); err != nil {
			return err
		}
		result, err, killed := w.pass()
		now := w.describe()
		w.trail = append(w.trail, now)
		if n := len(w.s.Instances(w.t)); n > 1 {
			return errTwo
		}
		if now == last && err == nil && !killed && reached() {
			return nil
		}
		last = now
		after := result.RequeueAfter
		if err != nil || after == 0 {
			after = 2 * time.Second
		}
		w.s.Advance(w.t, after)
	}
	return errors.New("it does not converge")
}

// describe sums up what there is, as it is written down.
func (w *world) describe() string {
	p := w.get()
	if p == nil {
		return "gone"
	}
	text := p.ResourceVersion + " " + string(p.Status.Phase)
	if a := p.Status.Attempt; a != nil {
		text += " " + string(a.State) + " in " + a.Zone
	}
	return text
}
