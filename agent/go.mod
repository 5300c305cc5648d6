module github.com/shoal-dev/shoal/agent

go 1.26.0

require (
	github.com/shoal-dev/shoal/api v0.0.0
	github.com/shoal-dev/shoal/proto v0.0.0
)

replace github.com/shoal-dev/shoal/api => ../api

replace github.com/shoal-dev/shoal/proto => ../proto
