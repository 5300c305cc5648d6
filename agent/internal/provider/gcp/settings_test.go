package gcp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp"
)

const usual = "project: crawl-project\nproxyImage: registry.example/shoal-proxy:1\n"

func settings(t *testing.T, text string) gcp.Settings {
	t.Helper()
	var s gcp.Settings
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return s
}

func mistakes(s gcp.Settings) (found []string) {
	s.Check(func(field, format string, args ...any) {
		found = append(found, field+": "+fmt.Sprintf(format, args...))
	})
	return found
}

func TestSettingsThatAreRight(t *testing.T) {
	for _, text := range []string{
		usual,
		usual + "machineType: e2-micro\nimage: projects/my-images/global/images/cos-117\ndiskGB: 20\nspot: true\nmaxRunDuration: 24h\n",
		usual + "network: crawl\nsubnetwork: crawl-eu\ntags: [a, b]\nlabels: {team: crawl}\nnetworkTier: STANDARD\naddress: Static\n",
		usual + "network: projects/host-project/global/networks/shared\nsubnetwork: projects/host-project/regions/europe-west1/subnetworks/crawl\n",
		usual + "address: None\nendpoint: Internal\ncredentialsFile: /etc/gcp/key.json\n",
		usual + "apiEndpoint: http://127.0.0.1:8080\nmaxRunDuration: 0s\n",
		usual + "apiEndpoint: https://compute.example\ncredentialsFile: key.json\n",
		"project: example.com:crawl-project\nproxyImage: a/b@sha256:0123\n",
	} {
		if found := mistakes(settings(t, text)); len(found) != 0 {
			t.Errorf("%s\n%v", text, found)
		}
	}
}

func TestSettingsThatAreWrong(t *testing.T) {
	for text, want := range map[string]string{
		"proxyImage: x\n":                                            "project: it is missing",
		"project: '123456789'\nproxyImage: x\n":                      "project: \"123456789\" is no project's ID",
		"project: ../other\nproxyImage: x\n":                         "project:",
		"project: crawl-project\n":                                   "proxyImage: it is missing",
		"project: crawl-project\nproxyImage: 'a b'\n":                "proxyImage:",
		"project: crawl-project\nproxyImage: '--rm'\n":               "proxyImage:",
		usual + "machineType: zones/x/machineTypes/e2\n":             "machineType:",
		usual + "image: cos-stable\n":                                "image:",
		usual + "diskGB: 5\n":                                        "diskGB: 5 is no size",
		usual + "network: a/b\n":                                     "network:",
		usual + "subnetwork: ../x\n":                                 "subnetwork:",
		usual + "tags: [A]\n":                                        "tags:",
		usual + "labels: {shoal-hub-uid: x}\n":                       "labels: \"shoal-hub-uid\" is one of ours",
		usual + "labels: {Team: x}\n":                                "labels: Team",
		usual + "maxRunDuration: 1m\n":                               "maxRunDuration: 1m0s is out of range",
		usual + "maxRunDuration: 3000h\n":                            "maxRunDuration:",
		usual + "networkTier: GOLD\n":                                "networkTier:",
		usual + "address: Fixed\n":                                   "address:",
		usual + "address: None\n":                                    "endpoint: with address None",
		usual + "endpoint: Both\n":                                   "endpoint:",
		usual + "apiEndpoint: ftp://x\n":                             "apiEndpoint:",
		usual + "apiEndpoint: https://x/compute/v1\n":                "apiEndpoint:",
		usual + "apiEndpoint: http://x\ncredentialsFile: key.json\n": "apiEndpoint: http://x is not encrypted",
	} {
		found := mistakes(settings(t, text))
		if len(found) != 1 || !strings.HasPrefix(found[0], want) {
			t.Errorf("%s\n%q, want one that begins with %q", text, found, want)
		}
	}
}

func TestUnknownSettingIsRefused(t *testing.T) {
	var s gcp.Settings
	d := yaml.NewDecoder(strings.NewReader(usual + "zone: europe-west1-b\n"))
	d.KnownFields(true)
	if err := d.Decode(&s); err == nil || !strings.Contains(err.Error(), "line 3") {
		t.Errorf("error = %v, want one with the line", err)
	}
}

// A changed salt replaces every machine.
func TestSaltIsOfWhatMachinesAreMadeFrom(t *testing.T) {
	base := settings(t, usual)
	same := []func(*gcp.Settings){
		func(s *gcp.Settings) { s.MachineType = gcp.DefaultMachineType },
		func(s *gcp.Settings) { d := gcp.DefaultMaxRunDuration; s.MaxRunDuration = &d },
		func(s *gcp.Settings) { s.CredentialsFile = "/other" },
		func(s *gcp.Settings) { s.APIEndpoint = "http://127.0.0.1:1" },
	}
	for i, f := range same {
		s := base
		if f(&s); s.Salt() != base.Salt() {
			t.Errorf("change %d is none, and the salt is another", i)
		}
	}
	other := []func(*gcp.Settings){
		func(s *gcp.Settings) { s.Project = "other-project" },
		func(s *gcp.Settings) { s.ProxyImage = "x:2" },
		func(s *gcp.Settings) { s.MachineType = "e2-micro" },
		func(s *gcp.Settings) { s.Spot = true },
		func(s *gcp.Settings) { s.Address = gcp.AddressStatic },
		func(s *gcp.Settings) { s.Tags = []string{"x"} },
		func(s *gcp.Settings) { s.Labels = map[string]string{"a": "b"} },
		func(s *gcp.Settings) { d := time.Hour; s.MaxRunDuration = &d },
	}
	seen := map[string]bool{base.Salt(): true}
	for i, f := range other {
		s := base
		if f(&s); seen[s.Salt()] {
			t.Errorf("change %d makes other machines, and the salt is the same", i)
		} else {
			seen[s.Salt()] = true
		}
	}
}
