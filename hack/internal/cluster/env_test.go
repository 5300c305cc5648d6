package cluster

import (
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/shoal-dev/shoal/hack/internal/cache"
)

func TestEnvIsReadByAShell(t *testing.T) {
	group := &Group{Prefix: "t"}
	if err := group.plan(1, 2, nil); err != nil {
		t.Fatal(err)
	}
	group.Clusters[1].Nodes = []Node{
		{Name: "t-member-1-control-plane", IP: netip.MustParseAddr("172.31.0.3")},
		{Name: "t-member-1-worker", IP: netip.MustParseAddr("172.31.0.4")},
	}
	dir := cache.Dir(t.TempDir() + "/it's here")
	script := Shell(group.Env(dir, "/bin")) + `echo "$SHOAL_MEMBER_1_NODE_IP|$SHOAL_MEMBER_1_NODE_IPS|$SHOAL_MEMBERS|$KUBECONFIG|${PATH%%:*}"`
	out, err := exec.Command("sh", "-euc", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	want := "172.31.0.3|172.31.0.3 172.31.0.4|1|" + Kubeconfig(dir, "t") + "|" + groupDir(dir, "t") + "/bin\n"
	if string(out) != want {
		t.Errorf("got  %swant %s", out, want)
	}
}

func TestEnvAddsToPathOnce(t *testing.T) {
	group := &Group{Prefix: "t"}
	dir := cache.Dir("/c")
	for _, v := range group.Env(dir, groupDir(dir, "t")+"/bin:"+os.Getenv("PATH")) {
		if v.Name == "PATH" {
			t.Errorf("PATH grows to %s", v.Value)
		}
	}
}

func TestKindConfig(t *testing.T) {
	group := &Group{Prefix: "t", NodeImage: "shoal.dev/kind-node:v1"}
	if err := group.plan(1, 3, nil); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason   string
		cluster  *Cluster
		cgroupV1 bool
		has, not []string
	}{
		"OneNode": {
			reason: "kind itself removes the taint of a node that is alone, and fails if there is none", cluster: group.Clusters[0], cgroupV1: true,
			has: []string{"failCgroupV1: false", "podSubnet: 10.100.0.0/16"}, not: []string{"taints", "role: worker"},
		},
		"ThreeNodes": {
			reason: "the control plane beside workers takes pods too", cluster: group.Clusters[1], cgroupV1: false,
			has: []string{"taints: []", "role: worker"}, not: []string{"failCgroupV1"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			config, err := kindConfig(group, tc.cluster, tc.cgroupV1)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range tc.has {
				if !strings.Contains(string(config), text) {
					t.Errorf("%s: no %q in\n%s", tc.reason, text, config)
				}
			}
			for _, text := range tc.not {
				if strings.Contains(string(config), text) {
					t.Errorf("%s: %q in\n%s", tc.reason, text, config)
				}
			}
		})
	}
}
