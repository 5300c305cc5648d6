package leaseapi

import (
	"context"

	"connectrpc.com/connect/v2"
)

// Call makes a call without a connection, by a stream of the test's own.
func (h *Handler) Call(ctx context.Context, procedure string, info *connect.CallInfo, stream connect.ServerStream) error {
	return h.rest.server.Call(ctx, procedure, info, stream)
}
