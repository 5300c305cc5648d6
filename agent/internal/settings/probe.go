package settings

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Probe says what proxies are probed with.
type Probe struct {
	// Targets are the addresses and ports of echo targets, the hub's own first. The agent opens each to its proxies. One
	// may be given by name, for the proxies to look up: that tells whether they can. No proxy is opened for it, so it must be
	// where every proxy may go, on port 443.
	Targets []string `yaml:"targets"`
	// ServerName is the name in the certificates of targets that are given by address; unset means each target's address.
	ServerName string `yaml:"serverName,omitempty"`
	// CA is the certificates, in PEM, of authorities of targets beside the hub's own.
	CA string `yaml:"ca,omitempty"`

	targets     []netip.AddrPort
	names       []string
	authorities []*x509.Certificate
}

// Echoes gives the Targets that are addresses, parsed.
func (p *Probe) Echoes() []netip.AddrPort { return p.targets }

// Names gives the Targets that are names, each as host:port.
func (p *Probe) Names() []string { return p.names }

// Authorities gives CA, parsed.
func (p *Probe) Authorities() []*x509.Certificate { return p.authorities }

var hostPattern = regexp.MustCompile(`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z][-a-z0-9]{0,61}[a-z0-9]$`)

// localSuffixes are what no proxy looks up: see squid.conf.tmpl.
var localSuffixes = []string{".local", ".internal", ".svc", ".localhost", ".lan", ".home.arpa"}

func (d *document) checkProbe(p *Probe, cluster []netip.Prefix) {
	if len(p.Targets) == 0 {
		d.refuse("probe.targets", "it is empty, and no proxy would ever become Ready; write the address and port of the hub's echo listener, such as [198.51.100.7:443]")
	}
	for i, w := range p.Targets {
		field := fmt.Sprintf("probe.targets[%d]", i)
		if slices.Contains(p.Targets[:i], w) {
			d.refuse(field, "%s is written twice; two targets are two only where they do not fail together", w)
			continue
		}
		target, err := netip.ParseAddrPort(w)
		if err != nil || target.Port() == 0 {
			d.checkTargetName(field, w, p)
			continue
		}
		target = netip.AddrPortFrom(target.Addr().Unmap(), target.Port())
		if own, inside := within(target, cluster); inside {
			d.refuse(field, "%s is in ceiling.clusterCIDRs (%s), where no proxy ever connects; name an address outside, or narrow that range", w, own)
			continue
		}
		p.targets = append(p.targets, target)
	}
	d.checkAuthorities(p)
}

func (d *document) checkTargetName(field, w string, p *Probe) {
	host, port, err := net.SplitHostPort(w)
	switch {
	case err != nil || !hostPattern.MatchString(host):
		d.refuse(field, "%q is no address and port, nor a name and port; write such as 198.51.100.7:443, or echo.example.com:443 for the proxies to look up", w)
	case port != "443":
		d.refuse(field, "%q is a name with port %s; no other port than 443 is open to every proxy, so write the address, which the agent opens", w, port)
	case slices.ContainsFunc(localSuffixes, func(suffix string) bool { return strings.HasSuffix(host, suffix) }):
		d.refuse(field, "%q is a local name, which no proxy looks up; write the address, or a public name", w)
	default:
		p.names = append(p.names, w)
	}
}

func (d *document) checkAuthorities(p *Probe) {
	for rest := []byte(p.CA); len(strings.TrimSpace(string(rest))) > 0; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil || block.Type != "CERTIFICATE" {
			d.refuse("probe.ca", "it is not PEM with certificates and nothing else")
			return
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !certificate.IsCA {
			d.refuse("probe.ca", "it has a certificate that is not readable, or is no authority's; write the authority's, not the target's own")
			return
		}
		p.authorities = append(p.authorities, certificate)
	}
}
