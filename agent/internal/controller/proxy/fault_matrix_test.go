package proxy_test

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/shoal-dev/shoal/agent/internal/controller/proxy/faultmatrix"
)

// TestFaultMatrixOfPods plays a part of the matrix over a real API server. All of it is played in memory, in package
// faultmatrix; here it is seen that the real one does the same.
func TestFaultMatrixOfPods(t *testing.T) {
	faultmatrix.RunEvery(t, "kubernetes with a real API server", 97, func(t *testing.T) faultmatrix.Subject {
		return faultmatrix.Pods(server.Client, server.Namespace(t), clocktesting.NewFakePassiveClock(time.Now().Truncate(time.Second)))
	})
}
