package engage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"
)

// fakeCluster runs until its context ends, and notes when.
type fakeCluster struct {
	cluster.Cluster
	name   string
	events *events
}

func (c *fakeCluster) Start(ctx context.Context) error {
	<-ctx.Done()
	// What a real one stops takes its time.
	time.Sleep(time.Second)
	c.events.add("end " + c.name)
	return nil
}

func (c *fakeCluster) GetCache() cache.Cache { return &informertest.FakeInformers{} }

// events are what happened, in order. It is an Aware as well.
type events struct {
	mu  sync.Mutex
	all []string
	// fail is what Engage answers with, once.
	fail error
}

func (e *events) add(what string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, what)
}

func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.all
	e.all = nil
	return all
}

func (e *events) Engage(_ context.Context, name multicluster.ClusterName, _ cluster.Cluster) error {
	e.mu.Lock()
	fail := e.fail
	e.fail = nil
	e.mu.Unlock()
	if fail != nil {
		return fail
	}
	e.add("engage " + string(name))
	return nil
}

// bubble runs a test with a provider that has started, unless it is told to wait for more.
func bubble(t *testing.T, started []*Started, test func(p *Provider, e *events)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p, err := New(Options{Clock: clock.RealClock{}, Logger: slog.New(slog.DiscardHandler), Started: started})
		if err != nil {
			t.Fatal(err)
		}
		e := &events{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Start(ctx, e) }()
		test(p, e)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Start = %v", err)
		}
	})
}

// good is a candidate whose cluster opens.
func good(e *events, name string) Candidate {
	return Candidate{Source: "test", Open: func(context.Context) (cluster.Cluster, error) { return &fakeCluster{name: name, events: e}, nil }}
}

func settle() {
	time.Sleep(10 * time.Millisecond)
	synctest.Wait()
}

func want(t *testing.T, e *events, all ...string) {
	t.Helper()
	if diff := cmp.Diff(all, e.take()); diff != "" {
		t.Errorf("what happened (-want +got):\n%s", diff)
	}
}

// TestOneThatHangsHoldsUpNobody has a candidate that does not answer, one that fails, and one that works.
func TestOneThatHangsHoldsUpNobody(t *testing.T) {
	bubble(t, nil, func(p *Provider, e *events) {
		attempts := 0
		hanging := Candidate{Source: "test", Open: func(ctx context.Context) (cluster.Cluster, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		failing := Candidate{Source: "test", Open: func(context.Context) (cluster.Cluster, error) {
			if attempts++; attempts < 4 {
				return nil, &Problem{Reason: ReasonNoKinds, Err: errors.New("install the CRDs")}
			}
			return &fakeCluster{name: "failing", events: e}, nil
		}}
		for name, c := range map[string]Candidate{"hanging": hanging, "failing": failing, "works": good(e, "works")} {
			if err := p.Set(name, c); err != nil {
				t.Fatal(err)
			}
		}
		settle()
		want(t, e, "engage works")
		var reasons []Reason
		for _, s := range p.States() {
			reasons = append(reasons, s.Reason)
		}
		if diff := cmp.Diff([]Reason{ReasonNoKinds, "", ""}, reasons); diff != "" {
			t.Errorf("reasons of failing, hanging and works (-want +got):\n%s", diff)
		}
		if _, err := p.Get(t.Context(), "failing"); !errors.Is(err, multicluster.ErrClusterNotFound) {
			t.Errorf("Get of one that is not engaged: %v", err)
		}
		time.Sleep(10 * time.Second) // three waits of at most 1, 2 and 4 s
		want(t, e, "engage failing")
		if cl, err := p.Get(t.Context(), "failing"); err != nil || cl.(*fakeCluster).name != "failing" {
			t.Errorf("Get = %v, %v", cl, err)
		}
	})
}

// TestTheOldOneEndsFirst replaces a member: two must never be at work under one name.
func TestTheOldOneEndsFirst(t *testing.T) {
	bubble(t, nil, func(p *Provider, e *events) {
		for _, name := range []string{"old", "new", "newest"} {
			if err := p.Set("east", good(e, name)); err != nil {
				t.Fatal(err)
			}
			if name == "old" {
				settle()
			}
		}
		time.Sleep(5 * time.Second)
		all := e.take()
		if diff := cmp.Diff([]string{"engage east", "end old"}, all[:2]); diff != "" {
			t.Errorf("what happened first (-want +got):\n%s", diff)
		}
		if last := all[len(all)-1]; last != "engage east" {
			t.Errorf("last of %v is not the newest", all)
		}
		if cl, err := p.Get(t.Context(), "east"); err != nil || cl.(*fakeCluster).name != "newest" {
			t.Errorf("Get = %v, %v", cl, err)
		}

		if err := p.Set("east", Candidate{Source: "somebody else"}); err == nil {
			t.Error("another source has taken the name")
		}
		p.Remove("east", "somebody else")
		settle()
		if _, err := p.Get(t.Context(), "east"); err != nil {
			t.Errorf("another source has removed it: %v", err)
		}
		p.Remove("east", "test")
		settle()
		if _, err := p.Get(t.Context(), "east"); !errors.Is(err, multicluster.ErrClusterNotFound) {
			t.Errorf("Get of one that was removed: %v", err)
		}
		time.Sleep(2 * time.Second)
		want(t, e, "end newest")
	})
}

// TestOneThatDoesNotAnswerIsNotAsked loses a cluster's API server, and gets it back. It stays engaged throughout.
func TestOneThatDoesNotAnswerIsNotAsked(t *testing.T) {
	bubble(t, nil, func(p *Provider, e *events) {
		var mu sync.Mutex
		var answer error
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			answer = err
		}
		c := good(e, "east")
		c.Check = func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			return answer
		}
		var told []State
		c.Tell = func(s State) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, s)
		}
		if err := p.Set("east", c); err != nil {
			t.Fatal(err)
		}
		settle()
		set(errors.New("no route"))
		time.Sleep(6 * time.Second)
		if _, err := p.Get(t.Context(), "east"); err != nil {
			t.Errorf("one answer is missing, and Get = %v", err)
		}
		time.Sleep(5 * time.Second)
		if _, err := p.Get(t.Context(), "east"); !errors.Is(err, ErrUnwell) {
			t.Errorf("two answers are missing, and Get = %v; want ErrUnwell", err)
		}
		set(nil)
		time.Sleep(6 * time.Second)
		if _, err := p.Get(t.Context(), "east"); err != nil {
			t.Errorf("it answers again, and Get = %v", err)
		}
		want(t, e, "engage east")
		mu.Lock()
		defer mu.Unlock()
		var reasons []Reason
		for _, s := range told {
			reasons = append(reasons, s.Reason)
		}
		if diff := cmp.Diff([]Reason{"", ReasonUnreachable, ""}, reasons); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

// TestNothingIsEngagedBeforeTheControllers waits for them: what they have to start with can end the manager.
func TestNothingIsEngagedBeforeTheControllers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := NewStarted(), NewStarted()
		p, err := New(Options{Clock: clock.RealClock{}, Logger: slog.New(slog.DiscardHandler), Started: []*Started{first, second}})
		if err != nil {
			t.Fatal(err)
		}
		e := &events{fail: errors.New("a controller cannot watch")}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Start(ctx, e) }()
		if err := p.Set("east", good(e, "east")); err != nil {
			t.Fatal(err)
		}
		_ = first.Start(ctx, nil)
		settle()
		want(t, e)
		_ = second.Start(ctx, nil)
		settle()
		// What it lacks to be engaged is tried again, too, with a cluster of its own.
		time.Sleep(5 * time.Second)
		want(t, e, "end east", "engage east")
		cancel()
		<-ended
		want(t, e, "end east")
	})
}
