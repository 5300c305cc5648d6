package agent

import (
	"testing"

	"github.com/shoal-dev/shoal/agent/internal/apitest"
	"github.com/shoal-dev/shoal/agent/internal/probe/probetest"
)

var server apitest.Server

func TestMain(m *testing.M) {
	probetest.Main()
	aloneMain()
	apitest.Main(m, &server)
}
