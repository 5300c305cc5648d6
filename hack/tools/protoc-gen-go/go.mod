// Pins protoc-gen-go; a module of its own so that its dependencies move nothing else.
module github.com/shoal-dev/shoal/hack/tools/protoc-gen-go

go 1.26.0

tool google.golang.org/protobuf/cmd/protoc-gen-go

require google.golang.org/protobuf v1.36.11 // indirect
