package leaseapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

const (
	restPrefix    = "/v1/"
	connectPrefix = "/" + leasev1connect.LeaseServiceName + "/"
	grpcPrefix    = "/grpc."
	// idField is the field that {id} in a path stands for.
	idField = "lease_id"
	// protocolREST is what interceptors see as CallInfo.Protocol.
	protocolREST = "rest"
)

// route maps a method and a path to a procedure.
type route struct {
	method    string
	path      string // {id} stands for a lease id
	procedure string
	// body says that the request is a JSON object in the body; otherwise it is in the query.
	body bool
	// events says that the answer is a stream of server-sent events.
	events bool
}

// routes is the whole REST API.
var routes = []route{
	{method: http.MethodPost, path: "/v1/leases", procedure: leasev1connect.LeaseServiceAcquireProcedure, body: true},
	{method: http.MethodGet, path: "/v1/leases/{id}", procedure: leasev1connect.LeaseServiceGetLeaseProcedure},
	{method: http.MethodDelete, path: "/v1/leases/{id}", procedure: leasev1connect.LeaseServiceReleaseProcedure, body: true},
	{method: http.MethodPost, path: "/v1/leases/{id}:renew", procedure: leasev1connect.LeaseServiceRenewProcedure, body: true},
	{method: http.MethodPost, path: "/v1/leases/{id}:report", procedure: leasev1connect.LeaseServiceReportProcedure, body: true},
	{method: http.MethodGet, path: "/v1/leases:watch", procedure: leasev1connect.LeaseServiceWatchLeasesProcedure, events: true},
	{method: http.MethodPost, path: "/v1/reports", procedure: leasev1connect.LeaseServiceReportBatchProcedure, body: true},
	{method: http.MethodGet, path: "/v1/proxies", procedure: leasev1connect.LeaseServiceListProxiesProcedure},
	{method: http.MethodGet, path: "/v1/proxies:watch", procedure: leasev1connect.LeaseServiceWatchProxiesProcedure, events: true},
}

// rest is a transport of connect.Server: it reads a request from path, query and JSON body, and writes the answer or
// the refusal as one JSON object. Content-Type is neither needed nor looked at: curl -d sends a wrong one.
type rest struct {
	server *connect.Server
	codec  *jsonCodec
	routes []route
}

// ServeHTTP implements [http.Handler].
func (s *rest) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for i := range s.routes {
		route := &s.routes[i]
		id, ok := match(route.path, r.URL.Path)
		if !ok {
			continue
		}
		if route.method == r.Method {
			s.serve(w, r, route, id)
			return
		}
		allowed = append(allowed, route.method)
	}
	if len(allowed) > 0 {
		writeMethodNotAllowed(w, r, allowed)
		return
	}
	writeNotFound(w, r)
}

// match compares a path with a pattern and returns what stands for {id}. An id has no slash and no colon, so that a
// verb after it cannot be mistaken for a part of it.
func match(pattern, path string) (id string, ok bool) {
	before, after, hasID := strings.Cut(pattern, "{id}")
	if !hasID {
		return "", path == pattern
	}
	rest, ok := strings.CutPrefix(path, before)
	if !ok {
		return "", false
	}
	id, ok = strings.CutSuffix(rest, after)
	return id, ok && id != "" && !strings.ContainsAny(id, "/:")
}

func (s *rest) serve(w http.ResponseWriter, r *http.Request, route *route, id string) {
	info := &connect.CallInfo{
		PeerAddr: r.RemoteAddr, Protocol: protocolREST, Codec: connect.CodecNameJSON,
		RequestEncoding: connect.CompressionNameIdentity, ResponseEncoding: connect.CompressionNameIdentity,
	}
	for name, values := range r.Header {
		info.RequestHeader().SetValues(name, values)
	}
	stream := &restStream{w: w, r: r, route: route, id: id, info: info, codec: s.codec}
	if route.events {
		r = withLine(w, r)
		stream.events = &events{w: w}
	}
	err := s.server.Call(r.Context(), route.procedure, info, stream)
	for name, values := range info.ResponseHeader().All() {
		w.Header()[name] = values
	}
	switch {
	case err != nil && route.events && stream.events.begun:
		stream.events.fail(err)
	case err != nil:
		writeError(w, err)
	case !route.events:
		writeJSON(w, http.StatusOK, stream.answer)
	}
}

// restStream is the server's side of one call. It implements [connect.ServerStream].
type restStream struct {
	w      http.ResponseWriter
	r      *http.Request
	route  *route
	id     string
	info   *connect.CallInfo
	codec  *jsonCodec
	events *events // nil for one answer
	answer []byte
}

// SendHeaders implements [connect.ServerStream]. The headers go out with the answer.
func (s *restStream) SendHeaders() error { return nil }

// Send implements [connect.ServerStream].
func (s *restStream) Send(msg any) error {
	var loose, compact bytes.Buffer
	if err := s.codec.MarshalWrite(s.r.Context(), &loose, msg); err != nil {
		return fmt.Errorf("leaseapi: write the answer as JSON: %w", err)
	}
	// protojson varies its white space on purpose. What people look at with curl should not.
	if err := json.Compact(&compact, loose.Bytes()); err != nil {
		return fmt.Errorf("leaseapi: write the answer as JSON: %w", err)
	}
	if event, ok := msg.(proto.Message); ok && s.events != nil {
		return s.events.send(event, compact.Bytes())
	}
	s.answer = compact.Bytes()
	return nil
}

// Receive implements [connect.ServerStream]. It is called once the caller is known.
func (s *restStream) Receive(msg any) error {
	into, ok := msg.(proto.Message)
	if !ok {
		return errors.New("leaseapi: the request is no protobuf message")
	}
	body, err := s.readBody()
	if err != nil {
		return err
	}
	s.info.ReceiveStats = connect.MessageStats{Size: len(body)}
	query := s.r.URL.RawQuery
	switch {
	case s.route.body && query != "":
		return &badJSON{message: "this call has no query parameters; write its fields as JSON into the body"}
	case !s.route.body && len(body) > 0:
		return &badJSON{message: "this call has no body; write its fields into the query"}
	case s.route.body && len(bytes.TrimSpace(body)) > 0:
		err = decodeJSON(body, into)
	case !s.route.body:
		err = decodeQuery(query, into)
	}
	if err != nil {
		return err
	}
	return s.setID(into.ProtoReflect())
}

// setID puts the id of the path into the message. The body may repeat it, but not contradict it.
func (s *restStream) setID(msg protoreflect.Message) error {
	if s.id == "" {
		return nil
	}
	field := msg.Descriptor().Fields().ByName(idField)
	if has := msg.Get(field).String(); has != "" && has != s.id {
		return invalidFields([]*leasev1.FieldViolation{{
			Field: field.JSONName(), Message: field.JSONName() + " is another lease than the one of the path; leave it out of the body",
		}})
	}
	msg.Set(field, protoreflect.ValueOfString(s.id))
	return nil
}

func (s *restStream) readBody() ([]byte, error) {
	if encoding := s.r.Header.Get("Content-Encoding"); encoding != "" && encoding != connect.CompressionNameIdentity {
		return nil, &badJSON{message: "the body is compressed; send it as plain JSON"}
	}
	body, err := io.ReadAll(http.MaxBytesReader(s.w, s.r.Body, MaxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, tooLargeBody()
	case err != nil && s.r.Context().Err() != nil:
		return nil, s.r.Context().Err()
	case err != nil:
		return nil, &badJSON{message: "the body ended before it was complete; send it again"}
	}
	return body, nil
}
