package gcp_test

import (
	"encoding/base64"
	"flag"
	"io"
	"mime"
	"mime/multipart"
	"net/mail"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/shoal-dev/shoal/agent/internal/provider/gcp/computefake"
	"github.com/shoal-dev/shoal/agent/internal/squid"
	"github.com/shoal-dev/shoal/agent/provider"
	"github.com/shoal-dev/shoal/api/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files")

// item gives one item of the only machine's metadata.
func item(i computefake.Instance, key string) string {
	for _, m := range i.Metadata.Items {
		if m.Key == key {
			return m.Value
		}
	}
	return ""
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // golden files are for everybody
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is other than it was; look at what has changed, and run the test with -update:\n%s", file, got)
	}
}

// document is a cloud-config document.
type document struct {
	WriteFiles []struct {
		Path, Permissions, Content string
	} `yaml:"write_files"`
	RunCmd [][]string `yaml:"runcmd"`
}

func parse(t *testing.T, text string) document {
	t.Helper()
	if !strings.HasPrefix(text, "#cloud-config\n") {
		t.Fatalf("it is no cloud-config document: %.40q", text)
	}
	var d document
	decoder := yaml.NewDecoder(strings.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d document) file(t *testing.T, path string) string {
	t.Helper()
	for _, f := range d.WriteFiles {
		if f.Path == path {
			return f.Content
		}
	}
	t.Fatalf("there is no file %s", path)
	return ""
}

func TestUserData(t *testing.T) {
	w := newWorld(t)
	r := request("a")
	config, err := squid.Render(squid.Config{Port: 3128, ProxyUID: "a", PlainPorts: []uint16{80}, ConnectPorts: []uint16{443}, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	r.Config = string(config)
	w.created(r)
	text := item(w.only(), "user-data")
	d := parse(t, text)
	if got := d.file(t, "/etc/shoal/squid/squid.conf"); got != string(config) {
		t.Errorf("squid.conf is not the one that pods get:\n%s", got)
	}
	unit := d.file(t, "/etc/systemd/system/shoal-proxy.service")
	for _, want := range []string{
		"Requires=docker.service shoal-guard.service",
		"--read-only --user=13:13 --cap-drop=ALL --security-opt=no-new-privileges",
		"-v /etc/shoal/squid:/etc/shoal/squid:ro -v /run/shoal/keys:" + squid.DefaultKeysDir + ":ro --entrypoint=/usr/sbin/squid registry.example/shoal-proxy:1 -N -f /etc/shoal/squid/squid.conf\n",
	} {
		if !strings.Contains(unit, want) {
			t.Errorf("the proxy's unit has no %q:\n%s", want, unit)
		}
	}
	r = request("a")
	golden(t, "user-data.yaml", strings.Replace(text, indent(string(config)), indent(r.Config), 1))
}

// indent is a text as a block of YAML has it, so that the golden file need not change with squid.conf.
func indent(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if line != "\n" {
			out.WriteString("      ")
		}
		out.WriteString(line)
	}
	return out.String()
}

func TestUsersPartGoesBesideOurs(t *testing.T) {
	const theirs = "#cloud-config\nwrite_files:\n- path: /etc/motd\n  content: hello\n"
	const foreign = "#cloud-config\nfinal_message: schön\n"
	for name, c := range map[string]struct {
		init v1alpha1.CloudInit
		want string
	}{
		"Inline": {v1alpha1.CloudInit{Inline: theirs}, theirs},
		"Secret": {v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "boot", Key: "user-data"}}, theirs},
		// Other text than ASCII is spoilt by the parser that cloud-init uses, unless it is encoded.
		"Encoded": {v1alpha1.CloudInit{Inline: foreign}, foreign},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, holding(secret("boot", "user-data", theirs)))
			r := request("a")
			r.Settings.CloudInit = &c.init
			w.created(r)
			text := item(w.only(), "user-data")
			parts := archive(t, text)
			if len(parts) != 2 {
				t.Fatalf("%d parts, want ours and the user's", len(parts))
			}
			parse(t, parts[0].text).file(t, "/etc/systemd/system/shoal-proxy.service")
			if parts[0].merge != "" || parts[1].merge != "list(append)+dict(no_replace,recurse_list)+str()" {
				t.Errorf("parts are merged by %q and %q: the user's files would replace ours", parts[0].merge, parts[1].merge)
			}
			if parts[1].text != c.want {
				t.Errorf("the user's part is %q, want %q", parts[1].text, c.want)
			}
			for _, ch := range []byte(text) {
				if ch >= 0x80 {
					t.Fatal("the archive is not ASCII")
				}
			}
			if name == "Inline" {
				golden(t, "user-data.mime", strings.ReplaceAll(text, "\r\n", "\n"))
			}
			// The same request is the same machine.
			again := newWorld(t, holding(secret("boot", "user-data", theirs)))
			again.created(r)
			if other := item(again.only(), "user-data"); other != text {
				t.Error("rendered again it is different")
			}
		})
	}
}

type part struct{ text, merge string }

// archive takes user data apart as a mail reader does.
func archive(t *testing.T, text string) (parts []part) {
	t.Helper()
	m, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	kind, parameters, err := mime.ParseMediaType(m.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/mixed" {
		t.Fatalf("content type %q, %v", kind, err)
	}
	reader := multipart.NewReader(m.Body, parameters["boundary"])
	for {
		p, err := reader.NextPart()
		if err == io.EOF { //nolint:errorlint // the documented end
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, _, _ := mime.ParseMediaType(p.Header.Get("Content-Type")); got != "text/cloud-config" {
			t.Errorf("part of type %q", got)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		if p.Header.Get("Content-Transfer-Encoding") == "base64" {
			if body, err = base64.StdEncoding.DecodeString(string(body)); err != nil {
				t.Fatal(err)
			}
		}
		parts = append(parts, part{string(body), p.Header.Get("Merge-Type")})
	}
}

func TestStartupScriptIsAnItemOfItsOwn(t *testing.T) {
	const script = "#!/bin/sh\necho hello\n"
	w := newWorld(t)
	r := request("a")
	r.Settings.CloudInit = &v1alpha1.CloudInit{StartupScript: script}
	w.created(r)
	i := w.only()
	if got := item(i, "startup-script"); got != script {
		t.Errorf("startup-script = %q, want %q", got, script)
	}
	parse(t, item(i, "user-data"))
}

func TestUsersPartThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		init v1alpha1.CloudInit
		want provider.Kind
	}{
		"NoHeader":  {v1alpha1.CloudInit{Inline: "write_files: []\n"}, provider.KindInvalidSpec},
		"Script":    {v1alpha1.CloudInit{Inline: "#!/bin/sh\n"}, provider.KindInvalidSpec},
		"NoYAML":    {v1alpha1.CloudInit{Inline: "#cloud-config\n- hunter2: [\n"}, provider.KindInvalidSpec},
		"NoMapping": {v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "boot", Key: "broken"}}, provider.KindInvalidSpec},
		"TooLong":   {v1alpha1.CloudInit{StartupScript: strings.Repeat("x", 256<<10+1)}, provider.KindInvalidSpec},
		"NoSecret":  {v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "other", Key: "x"}}, provider.KindUnavailable},
		"NoKey":     {v1alpha1.CloudInit{SecretRef: &v1alpha1.SecretKeyRef{Name: "boot", Key: "x"}}, provider.KindUnavailable},
	} {
		w := newWorld(t, holding(secret("boot", "broken", "#cloud-config\nhunter2\n")))
		r := request("a")
		r.Settings.CloudInit = &c.init
		_, err := w.Create(t.Context(), r)
		if provider.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error tells what is in the document: %v", name, err)
		}
		if n := len(w.fake.Calls()); n != 0 {
			t.Errorf("%s: %d calls were made for it", name, n)
		}
	}
}

func TestNobodyLogsIn(t *testing.T) {
	w := newWorld(t)
	w.created(request("a"))
	i := w.only()
	for key, want := range map[string]string{"block-project-ssh-keys": "TRUE", "serial-port-enable": "FALSE", "shoal-keys-hub": w.keys.Hub, "shoal-keys-agent": w.keys.Agent} {
		if got := item(i, key); got != want {
			t.Errorf("%s = %q, want %q", key, got, want)
		}
	}
}

func TestScriptsParse(t *testing.T) {
	files, err := filepath.Glob("recipe/*.sh")
	if err != nil || len(files) != 2 {
		t.Fatalf("scripts: %v, %v", files, err)
	}
	for _, shell := range []string{"sh", "bash"} {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("%s is not here", shell)
			continue
		}
		for _, file := range files {
			if out, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
				t.Errorf("%s -n %s: %v\n%s", shell, file, err, out)
			}
		}
	}
}
