module github.com/shoal-dev/shoal/agent

go 1.26.0

require (
	github.com/shoal-dev/shoal/api v0.0.0
	github.com/shoal-dev/shoal/proto v0.0.0
)

require (
	github.com/google/go-cmp v0.7.0 // indirect
	go4.org/netipx v0.0.0-20260823151212-3075585bcbeb // indirect
	k8s.io/utils v0.0.0-20261023123148-ca04ba58ecab // indirect
	pgregory.net/rapid v1.3.0 // indirect
)

replace github.com/shoal-dev/shoal/api => ../api

replace github.com/shoal-dev/shoal/proto => ../proto
