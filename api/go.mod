module github.com/shoal-dev/shoal/api

go 1.26.0
