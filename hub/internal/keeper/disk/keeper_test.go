package disk

import (
	"context"
	"testing"

	"github.com/shoal-dev/shoal/hub/internal/keeper"
)

// atWork is a keeper on a journal.
type atWork struct {
	*keeper.Keeper
	stop  context.CancelFunc
	ended chan error
}

// startKeeper runs a keeper that has loaded the journal.
func startKeeper(t *testing.T, j *Journal) *atWork {
	t.Helper()
	k := &atWork{Keeper: keeper.New(keeper.Options{Engine: crashEngine(j), Journal: j}), ended: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	k.stop = stop
	go func() { k.ended <- k.Run(ctx) }()
	select {
	case <-k.Ready():
	case err := <-k.ended:
		t.Fatal(err)
	}
	return k
}

func (k *atWork) halt(t *testing.T) {
	t.Helper()
	k.stop()
	if err := <-k.ended; err != nil {
		t.Error(err)
	}
}
