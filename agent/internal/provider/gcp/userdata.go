package gcp

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the scripts of a machine
	"encoding/base64"
	"errors"
	"fmt"
	"mime/multipart"
	"net/textproto"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/shoal-dev/shoal/agent/internal/squid"
)

// Where things are on a machine. /etc and /run are memory on Container-Optimized OS: cloud-init writes them at each boot.
const (
	configDir = "/etc/shoal/squid"
	keysDir   = "/run/shoal/keys"
	scripts   = "/etc/shoal"
	units     = "/etc/systemd/system"
	// squidUser is Debian's user and group "proxy", as in pods.
	squidUser = 13
	// descriptors is twice what squid.conf sets, so that only Squid's own bound is ever met.
	descriptors = 2 * squid.DefaultMaxFileDescriptors
)

//go:embed recipe/guard.sh
var guardScript string

//go:embed recipe/watch-keys.sh
var watchScript string

// recipe is what a machine's first boot depends on.
type recipe struct {
	// Image is the proxy image.
	Image string
	// Port is where Squid listens.
	Port int32
	// Config is squid.conf.
	Config string
}

// cloudConfig is a document of cloud-init.
type cloudConfig struct {
	WriteFiles []writeFile `yaml:"write_files"`
	RunCmd     [][]string  `yaml:"runcmd"`
}

type writeFile struct {
	Path        string `yaml:"path"`
	Permissions string `yaml:"permissions"`
	Content     string `yaml:"content"`
}

// stopSeconds outlives Squid's own shutdown_lifetime, which it always waits out.
var stopSeconds = int(squid.DefaultShutdownLifetime.Seconds()) + 10

// document renders our own part of the user data.
func (r recipe) document() (string, error) {
	unit := func(name, content string) writeFile {
		return writeFile{Path: units + "/" + name, Permissions: "0644", Content: content}
	}
	c := cloudConfig{
		WriteFiles: []writeFile{
			{Path: configDir + "/squid.conf", Permissions: "0644", Content: r.Config},
			{Path: scripts + "/guard.sh", Permissions: "0644", Content: guardScript},
			{Path: scripts + "/watch-keys.sh", Permissions: "0644", Content: watchScript},
			unit("shoal-guard.service", r.guardUnit()),
			unit("shoal-keys@.service", keysUnit()),
			unit("shoal-proxy.service", r.proxyUnit()),
		},
		RunCmd: [][]string{
			{"systemctl", "daemon-reload"},
			// The image may take a while to pull; cloud-init, and the user's part with it, does not wait for that.
			{"systemctl", "start", "--no-block", "shoal-guard.service", "shoal-keys@hub.service", "shoal-keys@agent.service", "shoal-proxy.service"},
		},
	}
	var out bytes.Buffer
	out.WriteString("#cloud-config\n")
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(c), encoder.Close()); err != nil {
		return "", err
	}
	return out.String(), nil
}

// guardUnit runs scripts by name of their interpreter: no filesystem that is written at boot may be executed from.
func (r recipe) guardUnit() string {
	return fmt.Sprintf(`[Unit]
Description=Firewall of the Shoal proxy
After=network-pre.target docker.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh %s/guard.sh %d %d
`, scripts, r.Port, squidUser)
}

func keysUnit() string {
	return fmt.Sprintf(`[Unit]
Description=Keys of the Shoal proxy (%%i)
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStartPre=/bin/mkdir -p %s
ExecStart=/bin/sh %s/watch-keys.sh shoal-keys-%%i %s/%%i.json
Restart=always
RestartSec=2
`, keysDir, scripts, keysDir)
}

// proxyUnit never starts the proxy without its firewall. Standard output is a pipe of docker's own: Squid cannot write to
// the journal's socket.
func (r recipe) proxyUnit() string {
	run := []string{
		"/usr/bin/docker", "run", "--rm", "--name=shoal-proxy", "--network=host", "--read-only",
		fmt.Sprintf("--user=%d:%d", squidUser, squidUser), "--cap-drop=ALL", "--security-opt=no-new-privileges",
		fmt.Sprintf("--ulimit=nofile=%d:%d", descriptors, descriptors), "--log-driver=none",
		"-v", configDir + ":" + configDir + ":ro", "-v", keysDir + ":" + squid.DefaultKeysDir + ":ro",
		// As a pod's command does, it replaces the image's entry point, whatever that is.
		"--entrypoint=/usr/sbin/squid", r.Image, "-N", "-f", configDir + "/squid.conf",
	}
	return fmt.Sprintf(`[Unit]
Description=Shoal proxy
Requires=docker.service shoal-guard.service
After=docker.service shoal-guard.service network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStartPre=/bin/mkdir -p %s
ExecStartPre=-/usr/bin/docker rm --force shoal-proxy
ExecStart=%s
ExecStop=/usr/bin/docker stop -t %d shoal-proxy
TimeoutStartSec=infinity
TimeoutStopSec=%d
Restart=always
RestartSec=2
`, keysDir, strings.Join(run, " "), stopSeconds, stopSeconds+10)
}

// mergeTheirs tells cloud-init how the user's part is joined to ours: lists are appended, and what is ours stays. By
// default the user's write_files would replace our own.
const mergeTheirs = "list(append)+dict(no_replace,recurse_list)+str()"

// renderUserData renders the user data: our document, or both in one archive. Only our own documents go by themselves, so
// that a machine without a user's part is as simple as it can be.
func renderUserData(r recipe, theirs string) (string, error) {
	ours, err := r.document()
	if err != nil || theirs == "" {
		return ours, err
	}
	if err := checkTheirs(theirs); err != nil {
		return "", err
	}
	var out bytes.Buffer
	archive := multipart.NewWriter(&out)
	// The same parts give the same bytes. What is in a part cannot have its own hash in it.
	sum := sha256.Sum256([]byte(ours + "\x00" + theirs))
	if err := archive.SetBoundary(fmt.Sprintf("shoal-%x", sum[:16])); err != nil {
		return "", err
	}
	fmt.Fprintf(&out, "Content-Type: multipart/mixed; boundary=%q\r\nMIME-Version: 1.0\r\n\r\n", archive.Boundary())
	for _, part := range []struct{ name, merge, text string }{{"shoal.yaml", "", ours}, {"fleet.yaml", mergeTheirs, theirs}} {
		header := textproto.MIMEHeader{}
		header.Set("Content-Type", `text/cloud-config; charset="utf-8"`)
		header.Set("Content-Disposition", fmt.Sprintf("attachment; filename=%q", part.name))
		header.Set("MIME-Version", "1.0")
		encoding, text := encoded(part.text)
		header.Set("Content-Transfer-Encoding", encoding)
		if part.merge != "" {
			header.Set("Merge-Type", part.merge)
		}
		w, err := archive.CreatePart(header)
		if err != nil {
			return "", err
		}
		if _, err := w.Write([]byte(text)); err != nil {
			return "", err
		}
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	return out.String(), nil
}

// encoded keeps what can be read readable. Python's mail parser, which cloud-init uses, spoils other text than ASCII unless
// it is encoded.
func encoded(text string) (encoding, body string) {
	for _, c := range []byte(text) {
		if c >= 0x80 || c == '\r' {
			return "base64", base64.StdEncoding.EncodeToString([]byte(text))
		}
	}
	return "7bit", text
}

// checkTheirs refuses what cloud-init would drop without a word that reaches anybody.
func checkTheirs(document string) error {
	if !strings.HasPrefix(document, "#cloud-config\n") && !strings.HasPrefix(document, "#cloud-config\r\n") {
		return errors.New("cloudInit is no cloud-config document; its first line must be #cloud-config. For a script use cloudInit.startupScript")
	}
	var content map[string]any
	if yaml.Unmarshal([]byte(document), &content) != nil {
		// The parser's error quotes the document, which may come from a Secret.
		return errors.New("cloudInit is no YAML mapping; try it with `cloud-init schema --config-file`")
	}
	return nil
}
