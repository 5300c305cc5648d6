package provider_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/shoal-dev/shoal/agent/provider"
)

func TestInstanceNamesAreLabelsAndDiffer(t *testing.T) {
	// A virtual machine's name; a pod's may be more.
	label := regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	names := map[string]string{}
	for i := range 100_000 {
		uid := fmt.Sprintf("%08x-5dd0-4f4e-9c1d-%012x", i, i/7)
		name := provider.InstanceName(uid, "0123456789abcdef")
		if !label.MatchString(name) {
			t.Fatalf("%s is no label by RFC 1035", name)
		}
		if other, taken := names[name]; taken {
			t.Fatalf("%s and %s are both %s", uid, other, name)
		}
		names[name] = uid
		if again := provider.InstanceName(uid, "0123456789abcdef"); again != name {
			t.Fatalf("%s is %s, then %s", uid, name, again)
		}
	}
	if provider.InstanceName("a", "b") == provider.InstanceName("a", "c") {
		t.Error("another spec has the same name")
	}
}
