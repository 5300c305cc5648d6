module github.com/shoal-dev/shoal/test

go 1.26.0

require (
	github.com/shoal-dev/shoal/agent v0.0.0
	github.com/shoal-dev/shoal/api v0.0.0
	github.com/shoal-dev/shoal/hub v0.0.0
	github.com/shoal-dev/shoal/proto v0.0.0
)

replace github.com/shoal-dev/shoal/api => ../api

replace github.com/shoal-dev/shoal/proto => ../proto

replace github.com/shoal-dev/shoal/hub => ../hub

replace github.com/shoal-dev/shoal/agent => ../agent
