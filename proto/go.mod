module github.com/shoal-dev/shoal/proto

go 1.26.3

require (
	connectrpc.com/connect/v2 v2.0.2
	github.com/google/go-cmp v0.7.0
	google.golang.org/protobuf v1.36.11
	pgregory.net/rapid v1.3.0
)
