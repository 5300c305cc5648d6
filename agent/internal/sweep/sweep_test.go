package sweep_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/internal/sweep"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/agent/provider/fake"
)

// world is a member with one entry, "fake", that a test sweeps by hand.
type world struct {
	t       *testing.T
	clock   *clocktesting.FakeClock
	fake    *fake.Provider
	entries map[string]provider.Provider
	owners  map[string]struct{}
	broken  error
	known   bool
	log     bytes.Buffer
	s       *sweep.Sweeper
}

func newWorld(t *testing.T, change ...func(*sweep.Options)) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(now), owners: map[string]struct{}{}, known: true}
	w.fake = fake.New(fake.Options{Clock: w.clock})
	w.entries = map[string]provider.Provider{"fake": w.fake}
	o := sweep.Options{
		Entries:        func() map[string]provider.Provider { return w.entries },
		Owners:         func(context.Context) (map[string]struct{}, error) { return maps.Clone(w.owners), w.broken },
		Identity:       func() (string, string, bool) { return "hub", "member", w.known },
		HomeClusterUID: "home", Clock: w.clock, Logger: slog.New(slog.NewTextHandler(&w.log, nil)),
	}
	for _, f := range change {
		f(&o)
	}
	var err error
	if w.s, err = sweep.New(o); err != nil {
		t.Fatal(err)
	}
	return w
}

// sweep makes passes, one each interval, for some time.
func (w *world) sweep(d time.Duration) {
	w.t.Helper()
	for end := w.clock.Now().Add(d); w.clock.Now().Before(end); w.clock.Step(sweep.Interval) {
		w.s.Pass(w.t.Context())
	}
	w.s.Pass(w.t.Context())
}

func (w *world) want(names string) {
	w.t.Helper()
	var have []string
	for _, i := range w.fake.Instances() {
		have = append(have, i.Name)
	}
	if got := strings.Join(have, " "); got != names {
		w.t.Errorf("there are %q, want %q", got, names)
	}
}

func TestSweep(t *testing.T) {
	w := newWorld(t)
	foreign := instance("foreign", "gone")
	foreign.Identity.HubUID = "hub2"
	for _, i := range []provider.Instance{instance("owned", "uid"), instance("leaked", "gone"), foreign} {
		w.fake.Put(i)
	}
	w.owners["uid"] = struct{}{}
	w.sweep(sweep.Grace - sweep.Interval)
	w.want("foreign leaked owned")
	if s := w.s.Status(); s.Orphans != 1 || s.Deleted != 0 || s.LastComplete.IsZero() {
		t.Errorf("status is %+v", s)
	}
	w.sweep(sweep.Interval)
	w.want("foreign owned")
	w.sweep(sweep.Grace)
	w.want("foreign owned")
	if s := w.s.Status(); s.Orphans != 0 || s.Deleted != 1 || !s.LastComplete.Equal(w.clock.Now()) {
		t.Errorf("status is %+v", s)
	}
	if n := strings.Count(w.log.String(), "deletes an instance"); n != 1 || !strings.Contains(w.log.String(), "instance=p/leaked") {
		t.Errorf("it speaks %d times:\n%s", n, w.log.String())
	}
}

func TestSweepIsTimid(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		how    func(*world)
		says   string
	}{
		"NotRegistered": {"nobody can be told apart yet", func(w *world) { w.known = false }, ""},
		"NoOwners":      {"the API server does not answer", func(w *world) { w.broken = errors.New("timeout") }, "cannot read who owns instances"},
		"Partial":       {"a zone does not answer", func(w *world) { w.fake.Incomplete(true) }, "lacks a part"},
		"Late":          {"its owner comes before the grace is over", func(w *world) { w.sweep(sweep.Grace - sweep.Interval); w.owners["gone"] = struct{}{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fake.Put(instance("leaked", "gone"))
			c.how(w)
			w.sweep(2 * sweep.HeldGrace)
			w.want("leaked")
			if !strings.Contains(w.log.String(), c.says) || w.s.Status().Deleted != 0 {
				t.Errorf("%s: %+v\n%s", c.reason, w.s.Status(), w.log.String())
			}
		})
	}
}

func TestAFailingListSweepsNothingOfItsEntry(t *testing.T) {
	w := newWorld(t)
	other := fake.New(fake.Options{Clock: w.clock})
	w.entries["other"] = other
	w.fake.Put(instance("leaked", "gone"))
	other.Put(instance("leaked-too", "gone"))
	for range 20 {
		w.fake.Fail(fake.List, provider.Errorf(provider.KindUnauthorized, "list", "forbidden"))
		w.s.Pass(t.Context())
		w.clock.Step(sweep.Interval)
	}
	w.want("leaked")
	if n := len(other.Instances()); n != 0 {
		t.Error("the other entry was not swept")
	}
	if s := w.s.Status(); !s.LastComplete.IsZero() {
		t.Errorf("a list was complete at %v", s.LastComplete)
	}
	if !strings.Contains(w.log.String(), "kind=Unauthorized") {
		t.Errorf("the log does not say why:\n%s", w.log.String())
	}
}

func TestDryRun(t *testing.T) {
	w := newWorld(t, func(o *sweep.Options) { o.DryRun = true })
	w.fake.Put(instance("leaked", "gone"))
	w.sweep(2 * sweep.HeldGrace)
	w.want("leaked")
	if n := strings.Count(w.log.String(), "would delete"); n != 1 || len(w.fake.Calls(fake.Delete)) != 0 {
		t.Errorf("it says so %d times:\n%s", n, w.log.String())
	}
	if s := w.s.Status(); s.Orphans != 1 || s.Deleted != 0 {
		t.Errorf("status is %+v", s)
	}
}

func TestFailedDeletionsAreTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.fake.Put(instance("leaked", "gone"))
	for range 3 {
		w.fake.Fail(fake.Delete, errors.New("timeout"))
	}
	w.sweep(sweep.Grace + 2*sweep.Interval)
	w.want("leaked")
	w.sweep(sweep.Interval)
	w.want("")
	if s := w.s.Status(); s.Deleted != 1 || s.Failed != 3 {
		t.Errorf("status is %+v", s)
	}
	if !w.fake.Calls(fake.Delete)[0].Options.Drained {
		t.Error("it waits for leases of a proxy that nobody has")
	}
}

func TestALossOfAllIsHeld(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		w.fake.Put(instance(name, "uid-"+name))
	}
	w.sweep(sweep.HeldGrace - sweep.Interval)
	w.want("a b c d e f g")
	if s := w.s.Status(); s.Held != 7 {
		t.Errorf("status is %+v", s)
	}
	if n := strings.Count(w.log.String(), "most instances have no owner"); n != 1 {
		t.Errorf("it warns %d times:\n%s", n, w.log.String())
	}
	// Somebody brings back most of them.
	for _, name := range []string{"a", "b", "c", "d"} {
		w.owners["uid-"+name] = struct{}{}
	}
	w.sweep(sweep.Interval)
	w.want("a b c d")
}

func TestRunWaitsToLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		elected := make(chan struct{})
		w := newWorld(t, func(o *sweep.Options) { o.Elected = elected })
		w.fake.Put(instance("leaked", "gone"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.s.Run(ctx) }()
		hour := func() {
			for range 30 {
				synctest.Wait()
				w.clock.Step(sweep.Interval)
			}
			synctest.Wait()
		}
		hour()
		if n := len(w.fake.Calls(fake.List)); n != 0 {
			t.Errorf("it lists %d times before it leads", n)
		}
		close(elected)
		hour()
		w.want("")
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	if _, err := sweep.New(sweep.Options{}); err == nil {
		t.Error("a sweeper that knows nobody was made")
	}
}
