package faultmatrix

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/shoal-dev/shoal/api/v1alpha1"
)

// lags are how far lists are behind.
var lags = []time.Duration{0, 40 * time.Second}

// story is a part of a Proxy's life. What prepare does goes well; the fault happens to what follows.
type story struct {
	name    string
	prepare func(w *world)
	act     func(w *world)
	// struck is done when the fault has happened.
	struck func(w *world)
	// none says that nothing is left in the end, and not one instance.
	none bool
}

func ready(w *world) {
	w.make()
	w.mustConverge()
}

// stories are the parts that are played.
func stories(s Subject) []story {
	another := func(w *world) { w.change(func(p *v1alpha1.Proxy) { p.Spec.Port = 8080 }) }
	all := []story{
		{name: "create", act: func(w *world) { w.make() }},
		{name: "replace", prepare: ready, act: another},
		{name: "delete", prepare: ready, act: func(w *world) { w.delete() }, none: true},
		{name: "create, deleted at the fault", act: func(w *world) { w.make() }, struck: func(w *world) { w.delete() }, none: true},
		{name: "replace, deleted at the fault", prepare: ready, act: another, struck: func(w *world) { w.delete() }, none: true},
		{name: "create, changed at the fault", act: func(w *world) { w.make() }, struck: another},
		{name: "lose", prepare: ready, act: func(w *world) { w.s.Lose(w.t, w.get().Status.InstanceName) }},
	}
	if s.Fail != nil {
		all = append(all, story{name: "fail", prepare: ready, act: func(w *world) { w.s.Fail(w.t, w.get().Status.InstanceName) }})
	}
	return all
}

// Whole is the variable of the environment that has every case played. Without it one in sample is, each time the same:
// with the race detector all of them take many minutes. `make matrix` sets it.
const Whole = "SHOAL_FAULT_MATRIX_WHOLE"

// sample shares no divisor with the numbers of faults and of writes, so that each kind of fault meets each call.
const sample = 13

// Run plays the matrix, prints how many cases there were, and gives that number. Fresh makes what one case needs.
func Run(t *testing.T, name string, fresh func(t *testing.T) Subject) int {
	t.Helper()
	if os.Getenv(Whole) != "" {
		return RunEvery(t, name, 1, fresh)
	}
	return RunEvery(t, name, sample, fresh)
}

// RunEvery plays every nth case only, for subjects that take their time.
func RunEvery(t *testing.T, name string, nth int, fresh func(t *testing.T) Subject) int {
	t.Helper()
	cases, all := 0, 0
	for _, st := range stories(fresh(t)) {
		t.Run(st.name, func(t *testing.T) {
			for _, lag := range lags {
				// Without a fault first: that counts the calls.
				w := begin(t, fresh(t), st, lag)
				w.calls.arm(0, nil)
				w.writes.arm(0, nil)
				if err := w.play(st, w.calls, -1, nil); err != nil {
					t.Fatalf("without a fault: %v\n%s", err, w.story())
				}
				calls, patches := w.calls.names, w.writes.names
				if st.struck != nil {
					calls, patches = calls[:w.struck[0]], patches[:w.struck[1]]
				}
				for _, on := range []struct {
					injector func(*world) *injector
					names    []string
					faults   []fault
				}{
					{func(w *world) *injector { return w.calls }, calls, providerFaults()},
					{func(w *world) *injector { return w.writes }, patches, writeFaults()},
				} {
					for n, call := range on.names {
						for i := range on.faults {
							if all++; all%nth != 0 {
								continue
							}
							w := begin(t, fresh(t), st, lag)
							if err := w.play(st, on.injector(w), n, &on.faults[i]); err != nil {
								t.Errorf("%s, lists %s behind, %s (call %d) with %q: %v\n%s", st.name, lag, call, n, on.faults[i].name, err, w.story())
							}
							cases++
							if t.Failed() {
								return
							}
						}
					}
				}
			}
		})
	}
	line := fmt.Sprintf("fault matrix: %d cases, provider %s", cases, name)
	t.Log(line)
	fmt.Fprintln(os.Stdout, line)
	return cases
}

func begin(t *testing.T, s Subject, st story, lag time.Duration) *world {
	w := newWorld(t, s, lag)
	if st.prepare != nil {
		st.prepare(w)
	}
	return w
}

func (w *world) mustConverge() {
	w.t.Helper()
	if err := w.converge(func() bool { return w.reached(false) }); err != nil {
		w.t.Fatalf("without a fault: %v\n%s", err, w.story())
	}
}

// play plays a story with a fault at the nth call.
func (w *world) play(st story, at *injector, n int, f *fault) error {
	w.trail = nil
	w.calls.arm(0, nil)
	w.writes.arm(0, nil)
	st.act(w)
	if f != nil {
		at.arm(n, f)
	}
	waiting := st.struck != nil
	return w.converge(func() bool {
		if waiting {
			// Without a fault it happens at the end, when all calls have been counted.
			if f != nil && !at.struck() {
				return false
			}
			if f == nil && !w.reached(false) {
				return false
			}
			waiting, w.struck = false, [2]int{w.calls.calls, w.writes.calls}
			st.struck(w)
			return false
		}
		return w.reached(st.none)
	})
}

// reached says whether all is as it must be in the end.
func (w *world) reached(none bool) bool {
	p, have := w.get(), w.s.Instances(w.t)
	if none {
		return p == nil && len(have) == 0
	}
	return p != nil && len(have) == 1 && strings.HasSuffix(have[0], p.Status.InstanceName) && p.Status.Phase == v1alpha1.PhaseReady &&
		p.Status.Attempt.State == v1alpha1.AttemptAccepted && p.Status.ProviderID != ""
}

// story tells what a case did.
func (w *world) story() string {
	trail := w.trail
	if len(trail) > 30 {
		trail = trail[len(trail)-30:]
	}
	return fmt.Sprintf("calls %v\nwrites %v\ninstances %v\n%s", w.calls.names, w.writes.names, w.s.Instances(w.t), strings.Join(trail, "\n"))
}
