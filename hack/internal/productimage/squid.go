package productimage

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/shoal-dev/shoal/hack/internal/debian"
)

// squidMajor and squidMinor are the oldest Squid that may run: request smuggling (CVE-2023-46846) and the chunked decoder
// (CVE-2024-25111) cannot be configured away, and were fixed before 6.8.
const squidMajor, squidMinor = 6, 13

// squidRoot is the proxy image's system. The other images take their root certificates from it.
var squidRoot = debian.Root{
	Name:    "squid",
	Suite:   "trixie",
	Variant: "essential",
	Include: []string{"squid", "ca-certificates"},
	Exclude: []string{
		"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*",
		"/usr/share/bash-completion/*", "/usr/share/zsh/*", "/usr/lib/*/gconv/*",
	},
	// Wanted by the packages' scripts while they are configured, and by nothing in the container.
	Remove: []string{
		"usr/share/perl/*", "usr/lib/*/perl/*", "usr/lib/*/perl5/*", "usr/share/zoneinfo", "usr/lib/systemd", "usr/lib/*/systemd",
		"var/lib/apt/*", "var/cache/*", "var/log/*.log", "var/lib/dpkg/info/*",
	},
	Expect: "25 s",
}

// squidRoot returns the tar of the proxy's system, and an error if its Squid is too old or cannot be told.
func (b *Builder) squidRoot(ctx context.Context) (string, error) {
	path, err := b.Debian.Tar(ctx, squidRoot)
	if err != nil {
		return "", err
	}
	version, err := debian.PackageVersion(path, "squid")
	if err != nil {
		return "", err
	}
	ok, err := debian.AtLeast(version, squidMajor, squidMinor)
	if err != nil {
		return "", err
	}
	if !ok {
		return "", fmt.Errorf("%s has squid %s; at least %d.%d is required", filepath.Base(path), version, squidMajor, squidMinor)
	}
	return path, nil
}
