package engage

import (
	"context"
	"errors"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"
)

// Phase is how far a candidate has come.
type Phase string

// The phases.
const (
	// PhaseWaiting is for what is not engaged yet, or not any more, and is tried again.
	PhaseWaiting Phase = "Waiting"
	// PhaseEngaged is for a member at work.
	PhaseEngaged Phase = "Engaged"
	// PhaseGone is for what its source no longer has.
	PhaseGone Phase = "Gone"
)

// Reason says why a member does not work, in one word. It is empty where it does.
type Reason string

// The reasons.
const (
	// ReasonUnreachable means that the API server does not answer.
	ReasonUnreachable Reason = "Unreachable"
	// ReasonNoKinds means that Shoal's kinds are not installed.
	ReasonNoKinds Reason = "KindsMissing"
	// ReasonNoRights means that the agent may not do there what it must.
	ReasonNoRights Reason = "RightsMissing"
	// ReasonUnreadable means that the objects there could not be read.
	ReasonUnreadable Reason = "Unreadable"
	// ReasonFailed is anything else.
	ReasonFailed Reason = "Failed"
)

// Problem is an error with a reason.
type Problem struct {
	Reason Reason
	Err    error
}

// Error implements error.
func (p *Problem) Error() string { return p.Err.Error() }

// Unwrap gives what happened.
func (p *Problem) Unwrap() error { return p.Err }

func reasonOf(err error) Reason {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem.Reason
	}
	return ReasonFailed
}

// State is how a candidate fares.
type State struct {
	// Member is its name, and Source who knows of it.
	Member, Source string
	Phase          Phase
	// Reason and Err say why it does not work; empty where it does.
	Reason Reason
	Err    error
}

// Started is a source without events, which a controller watches beside its own: when it is started, what is engaged
// from then on is the controller's own affair. Before, it could end the manager.
type Started struct {
	once sync.Once
	done chan struct{}
}

var _ source.TypedSource[mcreconcile.Request] = (*Started)(nil)

// NewStarted makes a source that was not started.
func NewStarted() *Started { return &Started{done: make(chan struct{})} }

// Start implements source.TypedSource.
func (s *Started) Start(context.Context, workqueue.TypedRateLimitingInterface[mcreconcile.Request]) error {
	s.once.Do(func() { close(s.done) })
	return nil
}
