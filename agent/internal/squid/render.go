package squid

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the template
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"text/template"
	"time"
)

// Names of our denials in the X-Squid-Error header.
const (
	// ErrorPolicy means that the name of the target is refused, before any lookup.
	ErrorPolicy = "ERR_SHOAL_POLICY"
	// ErrorDestination means that an address of the target is refused.
	ErrorDestination = "ERR_SHOAL_DST"
	// ErrorRequest means that the method, the scheme or the port is refused.
	ErrorRequest = "ERR_SHOAL_REQUEST"
)

//go:embed squid.conf.tmpl
var templateText string

var conf = template.Must(template.New("squid.conf.tmpl").Option("missingkey=error").Parse(templateText))

// view is what the template sees: text that is safe to put into a line.
type view struct {
	Listen             string
	AuthCommand        string
	ShutdownSeconds    int64
	MaxFileDescriptors int
	// Ports are joined with spaces. OKPorts and TunnelPorts include the ports of echo targets.
	OKPorts     string
	TunnelPorts string
	// EchoPorts are all ports of echo targets; ProbePorts those that are open for nothing else.
	EchoPorts  string
	ProbePorts string
	// Each element is the ranges of one acl line.
	Never, Cluster, Private, Echo, EchoOnly []string

	ErrorPolicy, ErrorDestination, ErrorRequest string
}

// Render returns the text of squid.conf. The error is a *[FieldError] or a *[RuleError]; nothing is rendered then.
func Render(c Config) ([]byte, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	r, err := c.ranges()
	if err != nil {
		return nil, err
	}
	echo := make([]uint16, 0, len(c.EchoTargets))
	for _, t := range c.EchoTargets {
		echo = append(echo, t.Port())
	}
	if echo, err = cleanPorts("EchoTargets", echo); err != nil {
		return nil, err
	}
	probe := slices.DeleteFunc(slices.Clone(echo), func(p uint16) bool { return slices.Contains(c.ConnectPorts, p) })
	tunnel, err := cleanPorts("ConnectPorts", slices.Concat(c.ConnectPorts, echo))
	if err != nil {
		return nil, err
	}
	ok, err := cleanPorts("PlainPorts", slices.Concat(c.PlainPorts, tunnel))
	if err != nil {
		return nil, err
	}

	uid := "--proxy-uid " + c.ProxyUID
	if c.ProxyUIDFile != "" {
		uid = "--proxy-uid-file " + c.ProxyUIDFile
	}
	listen := fmt.Sprint(c.Port)
	if c.onLoopback {
		listen = "127.0.0.1:" + listen
	}
	var echoOnly []string
	if len(r.echoOnly) > 0 {
		echoOnly = aclLines(r.echoOnly)
	}
	var out bytes.Buffer
	err = conf.Execute(&out, view{
		Listen:             listen,
		AuthCommand:        c.AuthHelper + " " + uid + " --keys " + c.KeysDir,
		ShutdownSeconds:    int64(c.ShutdownLifetime / time.Second),
		MaxFileDescriptors: c.MaxFileDescriptors,
		OKPorts:            joinPorts(ok),
		TunnelPorts:        joinPorts(tunnel),
		EchoPorts:          joinPorts(echo),
		ProbePorts:         joinPorts(probe),
		Never:              aclLines(r.never),
		Cluster:            aclLines(r.cluster),
		Private:            aclLines(r.private),
		Echo:               aclLines(r.echo),
		EchoOnly:           echoOnly,
		ErrorPolicy:        ErrorPolicy,
		ErrorDestination:   ErrorDestination,
		ErrorRequest:       ErrorRequest,
	})
	if err != nil {
		return nil, fmt.Errorf("rendering squid.conf: %w", err)
	}
	return out.Bytes(), nil
}

// Hash names the rendered configuration: 16 hexadecimal characters that differ whenever its text does, so that what
// carries the text can be named by it and a change replaces the instance. Errors are those of [Render].
func Hash(c Config) (string, error) {
	text, err := Render(c)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

func joinPorts(ports []uint16) string {
	words := make([]string, 0, len(ports))
	for _, p := range ports {
		words = append(words, fmt.Sprint(p))
	}
	return strings.Join(words, " ")
}

// rangesPerLine keeps acl lines readable and far from Squid's limit on the length of a line.
const rangesPerLine = 6

// noAddress is an address that no connection can have. An acl without values is an error to Squid.
const noAddress = "255.255.255.255/32"

// aclLines splits ranges into the values of acl lines, at least one.
func aclLines(prefixes []netip.Prefix) []string {
	if len(prefixes) == 0 {
		return []string{noAddress}
	}
	var lines []string
	for chunk := range slices.Chunk(prefixes, rangesPerLine) {
		words := make([]string, 0, len(chunk))
		for _, p := range chunk {
			words = append(words, p.String())
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}
