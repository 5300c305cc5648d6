package leaseapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/shoal-dev/shoal/proto/fault"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// problem is an error as a client of any protocol sees it.
type problem struct {
	Code       string
	Message    string
	Refusal    *leasev1.Refusal
	RetryAfter string
	Challenge  string
	status     int
}

// protocol is one way to make a call.
type protocol interface {
	call(t *testing.T, token string, request, response proto.Message) *problem
}

// protocols are all ways to make a call to a hub.
func (h *hub) protocols() map[string]protocol {
	return map[string]protocol{
		"REST":         restProtocol{h, h.http1},
		"RESTOverH2":   restProtocol{h, h.http2},
		"ConnectJSON":  connectJSON{h},
		"ConnectProto": client{h, h.http1, nil},
		"GRPC":         client{h, h.http2, []connecthttp.Option{connecthttp.WithGRPC()}},
		"GRPCWeb":      client{h, h.http1, []connecthttp.Option{connecthttp.WithGRPCWeb()}},
		"GRPCWithJSON": client{h, h.http2, []connecthttp.Option{connecthttp.WithGRPC(), connecthttp.WithProtoJSON()}},
	}
}

func procedureOf(request proto.Message) string {
	switch request.(type) {
	case *leasev1.AcquireRequest:
		return leasev1connect.LeaseServiceAcquireProcedure
	case *leasev1.RenewRequest:
		return leasev1connect.LeaseServiceRenewProcedure
	case *leasev1.ReleaseRequest:
		return leasev1connect.LeaseServiceReleaseProcedure
	case *leasev1.ReportRequest:
		return leasev1connect.LeaseServiceReportProcedure
	case *leasev1.GetLeaseRequest:
		return leasev1connect.LeaseServiceGetLeaseProcedure
	case *leasev1.ReportBatchRequest:
		return leasev1connect.LeaseServiceReportBatchProcedure
	case *leasev1.WatchLeasesRequest:
		return leasev1connect.LeaseServiceWatchLeasesProcedure
	case *leasev1.WatchProxiesRequest:
		return leasev1connect.LeaseServiceWatchProxiesProcedure
	default:
		return leasev1connect.LeaseServiceListProxiesProcedure
	}
}

// client is Connect's own client.
type client struct {
	hub     *hub
	http    *http.Client
	options []connecthttp.Option
}

func (c client) call(t *testing.T, token string, request, response proto.Message) *problem {
	t.Helper()
	ctx, info := connect.NewClientContext(t.Context())
	if token != "" {
		info.RequestHeader().Set("Authorization", "Bearer "+token)
	}
	dialer := connect.NewClient(connecthttp.NewTransport(c.http, c.hub.url, c.options...))
	err := dialer.CallUnary(ctx, connect.Spec{StreamType: connect.StreamTypeUnary, Procedure: procedureOf(request)}, request, response)
	if err == nil {
		return nil
	}
	var failed *connect.Error
	if !errors.As(err, &failed) {
		t.Fatalf("not a Connect error: %v", err)
	}
	p := &problem{Code: failed.Code().String(), Message: failed.Message()}
	p.Refusal, _ = fault.From(err)
	// A gRPC answer that is only an error has its headers in the trailers.
	for _, header := range []*connect.Header{info.ResponseHeader(), info.ResponseTrailer()} {
		p.RetryAfter += header.Get("Retry-After")
		p.Challenge += header.Get("WWW-Authenticate")
	}
	return p
}

// send makes one plain HTTP request, as curl does.
func (h *hub) send(t *testing.T, c *http.Client, method, path, token string, header http.Header, body []byte) (*http.Response, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, h.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{newsToken, otherToken, weatherToken, brokenToken} {
		if bytes.Contains(answer, []byte(secret)) {
			t.Errorf("the answer holds a bearer token: %s", answer)
		}
	}
	return response, answer
}

// connectJSON is Connect with JSON, written by hand.
type connectJSON struct{ hub *hub }

func (c connectJSON) call(t *testing.T, token string, request, response proto.Message) *problem {
	t.Helper()
	body, err := protojson.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	answer, text := c.hub.send(t, c.hub.http1, "POST", procedureOf(request), token, http.Header{"Content-Type": {"application/json"}}, body)
	if answer.StatusCode == http.StatusOK {
		if err := protojson.Unmarshal(text, response); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return nil
	}
	return connectProblem(t, answer, text)
}

func connectProblem(t *testing.T, answer *http.Response, text []byte) *problem {
	t.Helper()
	var wire struct {
		Code    string
		Message string
		Details []struct{ Type, Value string }
	}
	if err := json.Unmarshal(text, &wire); err != nil {
		t.Fatalf("%d %s: %v", answer.StatusCode, text, err)
	}
	p := &problem{
		Code: wire.Code, Message: wire.Message, status: answer.StatusCode,
		RetryAfter: answer.Header.Get("Retry-After"), Challenge: answer.Header.Get("WWW-Authenticate"),
	}
	for _, detail := range wire.Details {
		if detail.Type != "shoal.lease.v1.Refusal" {
			continue
		}
		value, err := base64.RawStdEncoding.DecodeString(detail.Value)
		if err != nil {
			t.Fatal(err)
		}
		p.Refusal = &leasev1.Refusal{}
		if err := proto.Unmarshal(value, p.Refusal); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// restProtocol is REST, written by hand.
type restProtocol struct {
	hub  *hub
	http *http.Client
}

func (c restProtocol) call(t *testing.T, token string, request, response proto.Message) *problem {
	t.Helper()
	method, path, body := restOf(t, request)
	answer, text := c.hub.send(t, c.http, method, path, token, nil, body)
	if answer.StatusCode == http.StatusOK {
		if err := protojson.Unmarshal(text, response); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return nil
	}
	return restProblem(t, answer, text)
}

func restOf(t *testing.T, request proto.Message) (method, path string, body []byte) {
	t.Helper()
	clone := proto.Clone(request)
	id := ""
	switch clone := clone.(type) {
	case *leasev1.RenewRequest:
		id, clone.LeaseId = clone.LeaseId, ""
	case *leasev1.ReleaseRequest:
		id, clone.LeaseId = clone.LeaseId, ""
	case *leasev1.ReportRequest:
		id, clone.LeaseId = clone.LeaseId, ""
	}
	body, err := protojson.Marshal(clone)
	if err != nil {
		t.Fatal(err)
	}
	switch request := request.(type) {
	case *leasev1.AcquireRequest:
		return "POST", "/v1/leases", body
	case *leasev1.RenewRequest:
		return "POST", "/v1/leases/" + url.PathEscape(id) + ":renew", body
	case *leasev1.ReleaseRequest:
		return "DELETE", "/v1/leases/" + url.PathEscape(id), body
	case *leasev1.ReportRequest:
		return "POST", "/v1/leases/" + url.PathEscape(id) + ":report", body
	case *leasev1.GetLeaseRequest:
		return "GET", "/v1/leases/" + url.PathEscape(request.LeaseId), nil
	case *leasev1.ReportBatchRequest:
		return "POST", "/v1/reports", body
	case *leasev1.ListProxiesRequest:
		query := url.Values{"fleet": {request.Fleet}}
		for key, value := range request.GetSelector().GetLabels() {
			query.Add("label", key+"="+value)
		}
		for name, value := range map[string]string{
			"region": request.GetSelector().GetRegion(), "country": request.GetSelector().GetCountry(),
			"member": request.GetSelector().GetMember(), "exit": request.GetSelector().GetExit(), "pageToken": request.PageToken,
		} {
			if value != "" {
				query.Set(name, value)
			}
		}
		if request.PageSize != 0 {
			query.Set("pageSize", strconv.Itoa(int(request.PageSize)))
		}
		return "GET", "/v1/proxies?" + query.Encode(), nil
	}
	t.Fatalf("no REST form of %T", request)
	return "", "", nil
}

// restProblem reads the flat error of REST. What is not code or message must be the Refusal and nothing else.
func restProblem(t *testing.T, answer *http.Response, text []byte) *problem {
	t.Helper()
	if got := answer.Header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type of the error = %q, want application/json", got)
	}
	if !strings.HasPrefix(string(text), `{"code":"`) {
		t.Errorf("the error %s does not begin with its code", text)
	}
	var wire map[string]json.RawMessage
	if err := json.Unmarshal(text, &wire); err != nil {
		t.Fatalf("%d %s: %v", answer.StatusCode, text, err)
	}
	p := &problem{
		status:     answer.StatusCode,
		RetryAfter: answer.Header.Get("Retry-After"), Challenge: answer.Header.Get("WWW-Authenticate"),
	}
	for name, into := range map[string]*string{"code": &p.Code, "message": &p.Message} {
		if err := json.Unmarshal(wire[name], into); err != nil {
			t.Fatalf("%s of %s: %v", name, text, err)
		}
		delete(wire, name)
	}
	if len(wire) > 0 {
		rest, err := json.Marshal(wire)
		if err != nil {
			t.Fatal(err)
		}
		p.Refusal = &leasev1.Refusal{}
		if err := protojson.Unmarshal(rest, p.Refusal); err != nil {
			t.Fatalf("%s: %v", rest, err)
		}
	}
	return p
}
