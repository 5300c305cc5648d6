package disk

import (
	"fmt"
	"os"
	"testing"
)

// TestMain makes the test binary the victim of TestCrash when it is asked to
// be.
func TestMain(m *testing.M) {
	if dir := os.Getenv(victimDir); dir != "" {
		if err := victim(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
