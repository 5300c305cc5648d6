package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leaderName is the name of the Lease object that hubs are elected by.
const leaderName = "shoal-hub"

// DefaultLeaderLease is how long a leader that is gone without a word holds up the next. It must renew within two
// thirds of it, and tries six times: 6 s, 4 s and 1 s.
const DefaultLeaderLease = 6 * time.Second

// newElection returns a stage that stands for election, and a channel that is closed when it has won. The stage ends
// with an error when the office is lost: whoever comes next must find nobody else at work.
func newElection(config *rest.Config, namespace string, lease time.Duration) (run func(context.Context) error, won <-chan struct{}, err error) {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make a client for the election: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, nil, fmt.Errorf("find a name to stand for election with: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, namespace, leaderName, clients.CoreV1(), clients.CoordinationV1(),
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the election: %w", err)
	}
	elected := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:          lock,
		LeaseDuration: lease,
		RenewDeadline: lease * 2 / 3,
		RetryPeriod:   lease / 6,
		// The stage is stopped after all that works under the lease.
		ReleaseOnCancel: true,
		Name:            leaderName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(elected) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("prepare the election: %w", err)
	}
	return func(ctx context.Context) error {
		elector.Run(ctx)
		if ctx.Err() == nil {
			return errors.New("this hub is no longer the leader")
		}
		return nil
	}, elected, nil
}
