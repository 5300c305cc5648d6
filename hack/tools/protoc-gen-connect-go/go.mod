// Pins protoc-gen-connect-go; a module of its own so that its dependencies move nothing else.
module github.com/shoal-dev/shoal/hack/tools/protoc-gen-connect-go

go 1.26.0

tool connectrpc.com/connect/v2/cmd/protoc-gen-connect-go

require (
	connectrpc.com/connect/v2 v2.0.2 // indirect
	google.golang.org/protobuf v1.36.11 // indirect
)
