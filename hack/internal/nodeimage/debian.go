package nodeimage

import "github.com/shoal-dev/shoal/hack/internal/debian"

// suite is the Debian release of the node. Bookworm's systemd 252 and containerd 1.6 are the newest that run on hosts
// with cgroup v1; trixie's systemd refuses them.
const suite = "bookworm"

// unread is what nobody reads in a container.
var unread = []string{
	"/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*",
	"/usr/share/bash-completion/*", "/usr/share/zsh/*", "/usr/lib/*/gconv/*",
}

// nodeRoot is the node itself.
var nodeRoot = debian.Root{
	Name:    "node",
	Suite:   suite,
	Variant: "minbase",
	Include: []string{
		"systemd", "systemd-sysv", "dbus", // the init system
		"containerd", "runc", "containernetworking-plugins", // pods
		"iptables", "nftables", "iproute2", "conntrack", "ethtool", "socat", // kubelet, kube-proxy, port forwarding
		"mount", "util-linux", "kmod", "procps", "curl", "ca-certificates",
	},
	Exclude: unread,
	Remove: []string{
		"var/lib/apt/lists/*", "var/cache/apt/*", "var/log/*", "usr/share/zoneinfo", "usr/lib/udev/hwdb.*",
		"usr/share/perl/*", "usr/lib/*/perl/*", // wanted by the packages' scripts, by nothing later
	},
	Expect: "45 s",
}

// proxyRoot is the user land of the kube-proxy image. Its packages are unpacked only, never configured.
var proxyRoot = debian.Root{
	Name:    "kube-proxy",
	Suite:   suite,
	Variant: "extract",
	Include: []string{"iptables", "nftables", "kmod", "conntrack"},
	Exclude: append([]string{"/usr/share/*", "/usr/lib/*/perl-base/*", "/usr/lib/*/perl/*", "/var/cache/*"}, unread...),
	Remove:  []string{"var/lib/apt", "var/cache"},
	Expect:  "20 s",
}
