package leaseapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect/v2"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

const headerRetryAfter = "Retry-After"

// recovery turns panics, and errors that nobody wrote for callers, into internal errors with a reference. What
// happened goes into the log under the same reference and nowhere else.
func recovery(log *slog.Logger) connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) (err error) {
			defer func() {
				cause := recover()
				if cause == nil {
					return
				}
				if thrown, ok := cause.(error); ok && errors.Is(thrown, http.ErrAbortHandler) {
					panic(cause) // a handler's way to drop the connection, not a mistake
				}
				reference := rand.Text()
				log.ErrorContext(ctx, "a call panicked", "reference", reference, "procedure", spec.Procedure,
					"panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
				err = internal(reference)
			}()
			err = next(ctx, spec, stream)
			var authored *connect.Error
			if err == nil || errors.As(err, &authored) {
				return err
			}
			reference := rand.Text()
			log.ErrorContext(ctx, "a call failed", "reference", reference, "procedure", spec.Procedure, "err", err)
			return internal(reference)
		}
	}
}

func internal(reference string) error {
	return connect.Errorf(connect.CodeInternal,
		"the hub failed to answer; whoever runs it finds the cause in its log under reference %s", reference)
}

// faults gives every refused call its Refusal and its Retry-After, also where the transport refused the message
// before the service saw it.
func faults() connect.ServerInterceptor {
	return func(next connect.ServerFunc) connect.ServerFunc {
		return func(ctx context.Context, spec connect.Spec, stream connect.ServerStream) error {
			err := next(ctx, spec, stream)
			if err == nil {
				return nil
			}
			err = withRefusal(err)
			info, ok := connect.CallInfoForServerContext(ctx)
			refusal, refused := fault.From(err)
			if ok && refused && refusal.GetRetryAfter() != nil {
				info.ResponseHeader().Set(headerRetryAfter, wholeSeconds(refusal.GetRetryAfter().AsDuration()))
			}
			return err
		}
	}
}

// withRefusal finds out what an error without a Refusal means.
func withRefusal(err error) error {
	if _, ok := fault.From(err); ok {
		return err
	}
	var bad *badJSON
	if errors.As(err, &bad) {
		return fault.New(leasev1.Refusal_INVALID_REQUEST, bad.message, fault.Details{Fields: bad.fields})
	}
	switch {
	case errors.Is(err, context.Canceled):
		return connect.NewError(connect.CodeCanceled, "the caller went away")
	case errors.Is(err, context.DeadlineExceeded):
		return connect.NewError(connect.CodeDeadlineExceeded,
			"the hub did not answer in the time that the caller gave it; an Acquire with a requestId can be repeated safely")
	}
	var authored *connect.Error
	if !errors.As(err, &authored) {
		return err
	}
	switch authored.Code() {
	case connect.CodeResourceExhausted:
		return tooLargeBody()
	case connect.CodeInvalidArgument:
		return fault.New(leasev1.Refusal_INVALID_REQUEST,
			"the request is not a message of this API in the encoding that its Content-Type names", fault.Details{})
	default:
		return err
	}
}

// wholeSeconds writes a duration for Retry-After, rounded up: a client that comes back early is refused again.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// gate answers in JSON what Connect's transport would answer with an empty body: a method, a content type or a version of
// HTTP that the procedure does not take. The commonest first call is a curl without a content type.
func gate(next http.Handler, servers ...*connect.Server) http.Handler {
	specs := map[string]connect.Spec{}
	for _, server := range servers {
		for spec := range server.Specs() {
			specs[spec.Procedure] = spec
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spec, known := specs[r.URL.Path]
		get := known && spec.IdempotencyLevel == connect.IdempotencyNoSideEffects
		post := r.Method == http.MethodPost
		lasts := spec.StreamType != connect.StreamTypeUnary
		switch {
		case post && spec.StreamType == connect.StreamTypeBidi && r.ProtoMajor < 2:
			// A client that believes in both directions would wait for ever on this connection.
			w.Header().Set("Connection", "close")
			writeStatus(w, http.StatusHTTPVersionNotSupported, connect.CodeUnimplemented, "this call goes in both directions at once; it needs HTTP/2")
		case post && lasts && isStreaming(r.Header.Get("Content-Type")):
			next.ServeHTTP(w, withLine(w, r))
		case post && !lasts && isRPC(r.Header.Get("Content-Type")), get && r.Method == http.MethodGet:
			next.ServeHTTP(w, r) // also for a procedure that is unknown: the protocol has its own words for it
		case !known:
			writeNotFound(w, r)
		case post && lasts:
			w.Header().Set("Accept-Post", "application/connect+json, application/connect+proto, application/grpc, application/grpc-web")
			writeStatus(w, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument,
				"the Content-Type is none that this call takes; a watch as text is at /v1/leases:watch and /v1/proxies:watch")
		case post:
			w.Header().Set("Accept-Post", "application/json, application/proto, application/grpc, application/grpc-web")
			writeStatus(w, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument,
				"the Content-Type is none that this call takes; for JSON, send the header Content-Type: application/json")
		default:
			allowed := []string{http.MethodPost}
			if get {
				allowed = []string{http.MethodGet, http.MethodPost}
			}
			writeMethodNotAllowed(w, r, allowed)
		}
	})
}

// isRPC tells the content types of Connect, gRPC and gRPC-Web.
func isRPC(contentType string) bool {
	protocol, _, formatted := mediaType(contentType)
	if protocol == "application/json" || protocol == "application/proto" {
		return !formatted
	}
	return isStreaming(contentType)
}

// isStreaming tells the content types of calls that last.
func isStreaming(contentType string) bool {
	switch protocol, format, formatted := mediaType(contentType); protocol {
	case "application/grpc", "application/grpc-web", "application/connect":
		return !formatted && protocol != "application/connect" || format == "json" || format == "proto"
	default:
		return false
	}
}

// mediaType takes a content type apart: application/grpc+proto is application/grpc and proto.
func mediaType(contentType string) (protocol, format string, formatted bool) {
	media, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	return strings.Cut(strings.TrimSpace(media), "+")
}
