package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// stages are the running parts of a hub. They start one after the other, each when those before it are up, and stop in
// the reverse order. It belongs to one goroutine.
type stages struct {
	log     *slog.Logger
	running []*stage
	ended   chan error
}

type stage struct {
	name string
	stop context.CancelFunc
	done chan struct{}
}

func newStages(log *slog.Logger) *stages {
	// One place for each stage there can be, so that none waits for a reader.
	return &stages{log: log, ended: make(chan error, 16)}
}

// start runs a stage until its turn to stop comes, which is when its context ends and not when ctx does. A stage that
// returns earlier, with an error or without, ends the hub.
func (s *stages) start(ctx context.Context, name string, run func(context.Context) error) {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	st := &stage{name: name, stop: stop, done: make(chan struct{})}
	s.running = append(s.running, st)
	go func() {
		defer close(st.done)
		err := run(own)
		switch {
		case err != nil:
			s.ended <- fmt.Errorf("%s: %w", name, err)
		case own.Err() == nil:
			s.ended <- fmt.Errorf("%s: ended by itself", name)
		}
	}()
}

// first makes a stage the first to stop, before those that were started after it.
func (s *stages) first(name string) {
	i := slices.IndexFunc(s.running, func(st *stage) bool { return st.name == name })
	if i >= 0 {
		st := s.running[i]
		s.running = append(slices.Delete(s.running, i, i+1), st)
	}
}

// await waits for ready. It returns an error if a stage or the context ends first.
func (s *stages) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return nil
	case err := <-s.ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop stops all stages, last first, and waits for each as long as ctx allows. It returns what went wrong.
func (s *stages) stop(ctx context.Context) error {
	var errs []error
	for _, st := range slices.Backward(s.running) {
		st.stop()
		select {
		case <-st.done:
			s.log.Debug("stopped", "stage", st.name)
		case <-ctx.Done():
			errs = append(errs, fmt.Errorf("%s: did not stop in time", st.name))
		}
	}
	for {
		select {
		case err := <-s.ended:
			errs = append(errs, err)
		default:
			return errors.Join(errs...)
		}
	}
}
