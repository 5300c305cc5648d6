package leaseapi

import (
	"context"
	"errors"
	"io"
	"slices"

	"connectrpc.com/connect/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"

	reflectionv1 "github.com/shoal-dev/shoal/proto/gen/grpc/reflection/v1"
	"github.com/shoal-dev/shoal/proto/gen/grpc/reflection/v1/reflectionv1connect"
)

// maxReflected is how many questions one reflection call may ask: no tool needs more, and strangers may call.
const maxReflected = 256

// reflection is gRPC's reflection service: tools such as grpcurl ask it for the API. It tells what proto/ tells anybody,
// of the services of this listener and no others.
type reflection struct {
	streams  *streams
	services []string
	files    map[string]protoreflect.FileDescriptor // by path: those of the services, and all that they import
}

func newReflection(s *streams) *reflection {
	return &reflection{streams: s, files: map[string]protoreflect.FileDescriptor{}}
}

// describes says which servers there are to tell of. It is called before the first call.
func (r *reflection) describes(servers ...*connect.Server) {
	for _, server := range servers {
		for spec := range server.Specs() {
			method, ok := spec.Schema.(protoreflect.MethodDescriptor)
			if !ok {
				continue
			}
			if name := string(method.Parent().FullName()); !slices.Contains(r.services, name) {
				r.services = append(r.services, name)
			}
			r.add(method.ParentFile())
		}
	}
	slices.Sort(r.services)
}

// add adds a file and all that it imports.
func (r *reflection) add(file protoreflect.FileDescriptor) {
	if _, known := r.files[file.Path()]; known {
		return
	}
	r.files[file.Path()] = file
	for i := range file.Imports().Len() {
		r.add(file.Imports().Get(i).FileDescriptor)
	}
}

// ServerReflectionInfo implements [reflectionv1connect.ServerReflectionHandler]. Its deadlines are those of a short call:
// a tool asks, is answered, and goes.
func (r *reflection) ServerReflectionInfo(ctx context.Context, stream reflectionv1connect.ServerReflectionServerReflectionInfoServerStream) error {
	leave, err := r.streams.enter(strangerOf(ctx), kindStranger)
	if err != nil {
		return err
	}
	defer leave()
	for range maxReflected {
		request, err := stream.Receive()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		answer := r.answer(request)
		answer.ValidHost, answer.OriginalRequest = request.GetHost(), request
		if err := stream.Send(answer); err != nil {
			return err
		}
	}
	return connect.NewError(connect.CodeResourceExhausted, "that is enough for one call; make another")
}

func (r *reflection) answer(request *reflectionv1.ServerReflectionRequest) *reflectionv1.ServerReflectionResponse {
	switch question := request.GetMessageRequest().(type) {
	case *reflectionv1.ServerReflectionRequest_ListServices:
		list := &reflectionv1.ListServiceResponse{}
		for _, name := range r.services {
			list.Service = append(list.Service, &reflectionv1.ServiceResponse{Name: name})
		}
		return &reflectionv1.ServerReflectionResponse{
			MessageResponse: &reflectionv1.ServerReflectionResponse_ListServicesResponse{ListServicesResponse: list},
		}
	case *reflectionv1.ServerReflectionRequest_FileByFilename:
		if file := r.files[question.FileByFilename]; file != nil {
			return r.describe(file)
		}
	case *reflectionv1.ServerReflectionRequest_FileContainingSymbol:
		for _, file := range r.files {
			if has(file, protoreflect.FullName(question.FileContainingSymbol)) {
				return r.describe(file)
			}
		}
	case *reflectionv1.ServerReflectionRequest_AllExtensionNumbersOfType:
		return &reflectionv1.ServerReflectionResponse{
			MessageResponse: &reflectionv1.ServerReflectionResponse_AllExtensionNumbersResponse{
				AllExtensionNumbersResponse: &reflectionv1.ExtensionNumberResponse{BaseTypeName: question.AllExtensionNumbersOfType},
			},
		}
	}
	return &reflectionv1.ServerReflectionResponse{MessageResponse: &reflectionv1.ServerReflectionResponse_ErrorResponse{
		ErrorResponse: &reflectionv1.ErrorResponse{ErrorCode: int32(connect.CodeNotFound), ErrorMessage: "there is no such thing on this server"},
	}}
}

// describe tells a file and what it imports, itself first.
func (r *reflection) describe(file protoreflect.FileDescriptor) *reflectionv1.ServerReflectionResponse {
	described := &reflectionv1.FileDescriptorResponse{}
	told := map[string]bool{}
	var tell func(protoreflect.FileDescriptor)
	tell = func(file protoreflect.FileDescriptor) {
		if told[file.Path()] {
			return
		}
		told[file.Path()] = true
		// What was generated can be encoded.
		text, _ := proto.Marshal(protodesc.ToFileDescriptorProto(file))
		described.FileDescriptorProto = append(described.FileDescriptorProto, text)
		for i := range file.Imports().Len() {
			tell(file.Imports().Get(i).FileDescriptor)
		}
	}
	tell(file)
	return &reflectionv1.ServerReflectionResponse{
		MessageResponse: &reflectionv1.ServerReflectionResponse_FileDescriptorResponse{FileDescriptorResponse: described},
	}
}

// has tells whether a file declares a name, at any depth.
func has(file protoreflect.FileDescriptor, name protoreflect.FullName) bool {
	for i := range file.Services().Len() {
		service := file.Services().Get(i)
		if service.FullName() == name || service.FullName() == name.Parent() && service.Methods().ByName(name.Name()) != nil {
			return true
		}
	}
	return hasIn(file.Messages(), file.Enums(), name)
}

func hasIn(messages protoreflect.MessageDescriptors, enums protoreflect.EnumDescriptors, name protoreflect.FullName) bool {
	for i := range enums.Len() {
		enum := enums.Get(i)
		if enum.FullName() == name || enum.FullName().Parent() == name.Parent() && enum.Values().ByName(name.Name()) != nil {
			return true
		}
	}
	for i := range messages.Len() {
		message := messages.Get(i)
		if message.FullName() == name || message.FullName() == name.Parent() &&
			(message.Fields().ByName(name.Name()) != nil || message.Oneofs().ByName(name.Name()) != nil) {
			return true
		}
		if hasIn(message.Messages(), message.Enums(), name) {
			return true
		}
	}
	return false
}
