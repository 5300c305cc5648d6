// Command generate writes the OpenAPI document of the REST API to standard output. Its argument is a file with a
// FileDescriptorSet of proto/, comments included; see hack/generate.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/shoal-dev/shoal/hub/internal/leaseapi"
	"github.com/shoal-dev/shoal/hub/internal/openapi"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: generate DESCRIPTORS")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(text, set); err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return fmt.Errorf("read %s: %w", args[0], err)
	}
	refusal, err := find[protoreflect.MessageDescriptor](files, "shoal.lease.v1.Refusal")
	if err != nil {
		return err
	}
	options := openapi.Options{
		Title: "Shoal leases", Version: "v1",
		Description: "Leases of crawling proxies. Every call needs a bearer token. JSON is camelCase out, either case in, and strict: " +
			"what is unknown is refused. The same calls are served over Connect, gRPC and gRPC-Web, and Stream only there.",
		PathField: leaseapi.PathField, Flatten: []protoreflect.FullName{"shoal.lease.v1.Selector"}, Error: refusal,
	}
	for route := range leaseapi.Routes() {
		name := strings.ReplaceAll(strings.TrimPrefix(route.Procedure, "/"), "/", ".")
		call, err := find[protoreflect.MethodDescriptor](files, protoreflect.FullName(name))
		if err != nil {
			return err
		}
		options.Routes = append(options.Routes, openapi.Route{
			Method: route.Method, Path: route.Path, Call: call, Body: route.Body, Events: route.Events,
		})
	}
	document, err := openapi.Build(options)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(document)
	return err
}

func find[D protoreflect.Descriptor](files *protoregistry.Files, name protoreflect.FullName) (D, error) {
	var none D
	found, err := files.FindDescriptorByName(name)
	if err != nil {
		return none, fmt.Errorf("find %s: %w", name, err)
	}
	desc, ok := found.(D)
	if !ok {
		return none, fmt.Errorf("%s is a %T", name, found)
	}
	return desc, nil
}
