// Package readme_test keeps what the README shows true: its Go is compiled here, and its requests are read as the hub
// would read them.
package readme_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	leasev1 "github.com/shoal-dev/shoal/proto/gen/shoal/lease/v1"
)

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestGoCompiles checks that every line of the README's Go stands in the example that is compiled.
func TestGoCompiles(t *testing.T) {
	_, block, found := strings.Cut(read(t, "../../README.md"), "```go\n")
	block, _, ended := strings.Cut(block, "```")
	if !found || !ended {
		t.Fatal("the README shows no Go")
	}
	compiled := map[string]bool{}
	for line := range strings.Lines(read(t, "example_test.go")) {
		compiled[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); !compiled[line] {
			t.Errorf("the README has a line that example_test.go has not: %s", line)
		}
	}
}

// TestRequestsAreKnown checks that the JSON that the README sends has no field or outcome that the protocol lacks.
func TestRequestsAreKnown(t *testing.T) {
	requests := regexp.MustCompile(`'(\{"fleet".*?\})'|`+"`"+`(\{"outcome".*?\}\})`+"`").FindAllStringSubmatch(read(t, "../../README.md"), -1)
	var acquires, reports int
	for _, found := range requests {
		body, into := found[1], proto.Message(&leasev1.AcquireRequest{})
		if body == "" {
			body, into = found[2], &leasev1.ReportRequest{}
			reports++
		} else {
			acquires++
		}
		if err := protojson.Unmarshal([]byte(body), into); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
	if acquires == 0 || reports == 0 {
		t.Errorf("found %d Acquires and %d Reports in the README, want some of each", acquires, reports)
	}
}
