package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/shoal-dev/shoal/hub/internal/lease"
)

// ask puts one question to the lease engine. A fleet that it does not know has nothing.
func ask[R lease.Result](ctx context.Context, keeper Keeper, cmd lease.Command) (R, error) {
	var none R
	result, err := keeper.Do(ctx, cmd)
	var refusal *lease.Refusal
	switch {
	case errors.As(err, &refusal) && refusal.Reason == lease.UnknownFleet:
		return none, nil
	case err != nil:
		return none, fmt.Errorf("ask the lease engine: %w", err)
	}
	answer, ok := result.(R)
	if !ok {
		return none, fmt.Errorf("ask the lease engine: the answer to %T is a %T", cmd, result)
	}
	return answer, nil
}
