package agent

import (
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
)

var server apitest.Server

func TestMain(m *testing.M) { apitest.Main(m, &server) }
