module github.com/shoal-dev/shoal/proto

go 1.26.0
