package controller

import (
	"testing"

	"github.com/shoal-dev/shoal/hub/internal/apiserver"
)

var server apiserver.Server

func TestMain(m *testing.M) { apiserver.Main(m, &server) }
