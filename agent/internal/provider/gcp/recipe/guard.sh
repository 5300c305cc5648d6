#!/bin/sh
# Opens the proxy's port, and keeps the proxy from the metadata server, which tells whoever asks what this machine was
# booted with. The resolver has the same address: only port 53 of it is left open to the proxy.
#
# usage: guard.sh PORT USER
set -eu
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
port=$1
user=$2

# first TOOL RULE...: puts a rule before all others, once.
first() {
	tool=$1
	shift
	"$tool" -w -C "$@" 2>/dev/null || "$tool" -w -I "$@"
}

first iptables OUTPUT -m owner --uid-owner "$user" -d 169.254.0.0/16 -j REJECT
first iptables OUTPUT -m owner --uid-owner "$user" -d 169.254.169.254/32 -p tcp --dport 53 -j ACCEPT
first iptables OUTPUT -m owner --uid-owner "$user" -d 169.254.169.254/32 -p udp --dport 53 -j ACCEPT
first iptables INPUT -p tcp --dport "$port" -j ACCEPT

# A kernel without IPv6 has no such tool, or no such table.
if command -v ip6tables >/dev/null && ip6tables -w -S OUTPUT >/dev/null 2>&1; then
	first ip6tables OUTPUT -m owner --uid-owner "$user" -d fe80::/10 -j REJECT
	first ip6tables OUTPUT -m owner --uid-owner "$user" -d fd20:ce::254/128 -j REJECT
	first ip6tables INPUT -p tcp --dport "$port" -j ACCEPT
fi
