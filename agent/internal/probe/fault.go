package probe

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// faultOf names the I/O error that ended a stage. A cancelled probe is the agent's doing, whatever it looks like.
func faultOf(ctx context.Context, err error) Fault {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return FaultLocal
	}
	return kindOf(err)
}

// kindOf names an I/O error.
func kindOf(err error) Fault {
	var dns *net.DNSError
	var netErr net.Error
	var notAllowed *notAllowedError
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case err == nil:
		return FaultNone
	case is(context.Canceled):
		return FaultLocal
	case is(syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM, syscall.EACCES, syscall.EPERM):
		return FaultLocal
	case errors.As(err, &notAllowed):
		return FaultUnreachable
	case errors.As(err, &dns):
		// The name of an external proxy: that it does not exist is about the proxy, all else about our resolver.
		if dns.IsNotFound {
			return FaultUnreachable
		}
		return FaultLocal
	case is(context.DeadlineExceeded, os.ErrDeadlineExceeded, syscall.ETIMEDOUT):
		return FaultTimeout
	case is(syscall.ECONNREFUSED):
		return FaultRefused
	case is(syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN):
		return FaultUnreachable
	case is(syscall.ECONNRESET, syscall.EPIPE, syscall.ECONNABORTED):
		return FaultReset
	case is(io.EOF, io.ErrUnexpectedEOF, net.ErrClosed):
		return FaultClosed
	case errors.As(err, &netErr) && netErr.Timeout():
		return FaultTimeout
	}
	return FaultProtocol
}
