package leaseapi

import (
	"context"
	"fmt"
	"net"
	"time"

	"connectrpc.com/connect/v2"
	"k8s.io/utils/clock"

	healthv1 "github.com/shoal-dev/shoal/proto/gen/grpc/health/v1"
	"github.com/shoal-dev/shoal/proto/gen/grpc/health/v1/healthv1connect"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// healthEvery is how often a health watch looks whether anything has changed.
const healthEvery = 2 * time.Second

// health is gRPC's health service: for load balancers, which have no token.
type health struct {
	// serving tells whether this hub answers for leases.
	serving func() bool
	streams *streams
	clock   clock.WithTicker
}

// knows tells whether a service is one that health can be asked for.
func (*health) knows(service string) bool {
	return service == "" || service == leasev1connect.LeaseServiceName
}

func (h *health) status(service string) healthv1.HealthCheckResponse_ServingStatus {
	switch {
	case !h.knows(service):
		return healthv1.HealthCheckResponse_SERVICE_UNKNOWN
	case h.streams.stopped() || !h.serving():
		return healthv1.HealthCheckResponse_NOT_SERVING
	default:
		return healthv1.HealthCheckResponse_SERVING
	}
}

// Check implements [healthv1connect.HealthHandler].
func (h *health) Check(_ context.Context, request *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if !h.knows(request.GetService()) {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Sprintf(
			"there is no service %q here; ask for %s, or for the server by leaving it out", cut(request.GetService()), leasev1connect.LeaseServiceName))
	}
	return &healthv1.HealthCheckResponse{Status: h.status(request.GetService())}, nil
}

// Watch implements [healthv1connect.HealthHandler].
func (h *health) Watch(ctx context.Context, request *healthv1.HealthCheckRequest, stream healthv1connect.HealthWatchServerStream) error {
	leave, err := h.streams.enter(strangerOf(ctx), kindStranger)
	if err != nil {
		return err
	}
	defer leave()
	below := lineOf(ctx)
	below.received()
	ticker := h.clock.NewTicker(healthEvery)
	defer ticker.Stop()
	last := healthv1.HealthCheckResponse_UNKNOWN
	for {
		below.extend()
		if now := h.status(request.GetService()); now != last {
			last = now
			if err := stream.Send(&healthv1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return ctx.Err()
		case <-h.streams.stopping:
			return stopping()
		}
	}
}

// strangerOf names who calls without a token, to count by: the address without its port.
func strangerOf(ctx context.Context) string {
	info, ok := connect.CallInfoForServerContext(ctx)
	if !ok {
		return "stranger:"
	}
	host, _, err := net.SplitHostPort(info.PeerAddr)
	if err != nil {
		host = info.PeerAddr
	}
	return "stranger:" + host
}
