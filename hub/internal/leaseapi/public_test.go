package leaseapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect/v2"
	"connectrpc.com/connect/v2/connecthttp"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	healthv1 "github.com/shoal-dev/shoal/proto/gen/grpc/health/v1"
	"github.com/shoal-dev/shoal/proto/gen/grpc/health/v1/healthv1connect"
	reflectionv1 "github.com/shoal-dev/shoal/proto/gen/grpc/reflection/v1"
	"github.com/shoal-dev/shoal/proto/gen/grpc/reflection/v1/reflectionv1connect"
	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
	"github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1/leasev1connect"
)

// grpc is a client without a token, as load balancers and tools are.
func (h *hub) grpc() *connect.Client {
	return connect.NewClient(connecthttp.NewTransport(h.http2, h.url, connecthttp.WithGRPC()))
}

func TestHealth(t *testing.T) {
	h := newHub(t, dials{})
	service := healthv1connect.NewHealthClient(h.grpc())
	for name, want := range map[string]connect.Code{"": 0, leasev1connect.LeaseServiceName: 0, "shoal.lease.v1.Nothing": connect.CodeNotFound} {
		answer, err := service.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
		if want == 0 && (err != nil || answer.Status != healthv1.HealthCheckResponse_SERVING) || want != 0 && connect.CodeOf(err) != want {
			t.Errorf("%q: %v, %v", name, answer, err)
		}
	}
	watch, err := service.Watch(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := watch.Receive(); err != nil || first.Status != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("a watch begins with %v, %v", first, err)
	}
	if err := h.handler.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown with an open watch: %v", err)
	}
	if _, err := watch.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("the watch of a stopping hub ends with %v", err)
	}
	if answer, err := service.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil || answer.Status != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a stopping hub is %v, %v", answer, err)
	}
}

// TestStrangersAreCounted: what needs no token is bounded by address.
func TestStrangersAreCounted(t *testing.T) {
	h := newHub(t, dials{})
	service := healthv1connect.NewHealthClient(h.grpc())
	refused := 0
	for range 20 {
		watch, err := service.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Receive(); connect.CodeOf(err) == connect.CodeResourceExhausted {
			refused++
		}
	}
	if refused != 4 {
		t.Errorf("%d of 20 watches were refused, want 4", refused)
	}
	h.watchers()["Events"](t, newsToken, &leasev1.WatchLeasesRequest{}) // callers with a token have their own
}

// TestReflection asks as grpcurl does: which services, then the file of one, and checks that it is complete.
func TestReflection(t *testing.T) {
	h := newHub(t, dials{})
	stream, err := reflectionv1connect.NewServerReflectionClient(h.grpc()).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(question *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(question); err != nil {
			t.Fatal(err)
		}
		answer, err := stream.Receive()
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	var names []string
	for _, service := range ask(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}).GetListServicesResponse().GetService() {
		names = append(names, service.Name)
	}
	for _, want := range []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", leasev1connect.LeaseServiceName} {
		if !slices.Contains(names, want) {
			t.Errorf("services %q lack %s", names, want)
		}
	}
	for _, symbol := range []string{
		leasev1connect.LeaseServiceName, "shoal.lease.v1.LeaseService.Acquire", "shoal.lease.v1.Outcome.Kind",
		"shoal.lease.v1.Lease.lease_id", "shoal.lease.v1.Outcome.BLOCKED",
	} {
		described := ask(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: symbol},
		}).GetFileDescriptorResponse().GetFileDescriptorProto()
		set := &descriptorpb.FileDescriptorSet{}
		for _, text := range described {
			file := &descriptorpb.FileDescriptorProto{}
			if err := proto.Unmarshal(text, file); err != nil {
				t.Fatal(err)
			}
			set.File = append(set.File, file)
		}
		files, err := protodesc.NewFiles(set)
		if err != nil {
			t.Fatalf("%s: %v", symbol, err)
		}
		if _, err := files.FindDescriptorByName(protoreflect.FullName(symbol)); err != nil {
			t.Errorf("%s: %v", symbol, err)
		}
	}
	for _, question := range []*reflectionv1.ServerReflectionRequest{
		{MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "shoal.agent.v1.AgentService"}},
		{MessageRequest: &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: "shoal/agent/v1/agent.proto"}},
		{},
	} {
		if got := ask(question).GetErrorResponse().GetErrorCode(); got != int32(connect.CodeNotFound) {
			t.Errorf("%v: %d, want not found: it is another listener's", question, got)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// TestDocument holds the OpenAPI document to the routes and the messages: whoever changes one runs hack/generate.
func TestDocument(t *testing.T) {
	h := newHub(t, dials{})
	answer, text := h.send(t, h.http1, "GET", "/openapi.json", "", nil, nil)
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("got %d %s", answer.StatusCode, text)
	}
	var document struct {
		OpenAPI string `json:"openapi"`
		Paths   map[string]map[string]struct {
			OperationID string                      `json:"operationId"`
			Parameters  []struct{ Name, In string } `json:"parameters"`
			RequestBody *struct{ Content any }      `json:"requestBody"`
			Responses   map[string]map[string]any   `json:"responses"`
		} `json:"paths"`
		Components struct {
			Schemas map[string]struct {
				Properties map[string]any `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(document.OpenAPI, "3.1.") {
		t.Errorf("version %q", document.OpenAPI)
	}
	described := map[string]string{}
	for path, item := range document.Paths {
		for method, operation := range item {
			described[strings.ToUpper(method)+" "+path] = operation.OperationID
		}
	}
	routed := map[string]string{}
	for route := range leaseapi.Routes() {
		name := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(route.Procedure, "/"), "/", "."))
		routed[route.Method+" "+route.Path] = string(name.Name())
		found, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		call := found.(protoreflect.MethodDescriptor)
		operation := document.Paths[route.Path][strings.ToLower(route.Method)]
		if route.Body != (operation.RequestBody != nil) {
			t.Errorf("%s %s: body %v", route.Method, route.Path, operation.RequestBody)
		}
		if len(operation.Responses) != 2 {
			t.Errorf("%s %s has the responses %v", route.Method, route.Path, operation.Responses)
		}
		for _, message := range []protoreflect.MessageDescriptor{call.Input(), call.Output()} {
			if message == call.Input() && !route.Body {
				continue
			}
			want := map[string]bool{}
			for i := range message.Fields().Len() {
				want[message.Fields().Get(i).JSONName()] = true
			}
			got := map[string]bool{}
			for name := range maps.Keys(document.Components.Schemas[string(message.Name())].Properties) {
				got[name] = true
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: run hack/generate: %s", message.Name(), diff)
			}
		}
	}
	if diff := cmp.Diff(routed, described); diff != "" {
		t.Errorf("run hack/generate: %s", diff)
	}
	// What the document says of the query is what the calls take.
	for _, path := range []string{"/v1/proxies", "/v1/proxies:watch", "/v1/leases:watch"} {
		query := "?nonsense=1"
		for _, parameter := range document.Paths[path]["get"].Parameters {
			query += "&" + parameter.Name + "=" + map[string]string{"pageSize": "1", "label": "a=b"}[parameter.Name]
		}
		if _, text := h.send(t, h.http1, "GET", path+query, newsToken, nil, nil); !strings.Contains(string(text), "nonsense is unknown") || strings.Count(string(text), "is unknown") != 2 {
			t.Errorf("%s%s: %s", path, query, text)
		}
	}
}
