// Everything that builds and runs the development clusters and images. Outside go.work, so that none of it moves the
// versions the product is built and tested with.
module github.com/shoal-dev/shoal/hack

go 1.26.0

require (
	github.com/google/go-containerregistry v0.22.1
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/klauspost/compress v1.19.2 // indirect
	github.com/opencontainers/go-digest v1.0.0 // indirect
	github.com/opencontainers/image-spec v1.1.1 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
)
