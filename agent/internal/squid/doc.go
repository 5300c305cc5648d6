// Package squid renders the configuration of a forward proxy for crawlers: authenticated, anonymous, without a cache,
// and closed towards everything that is not the public internet.
//
// [Render] is a pure function from [Config] to the text of squid.conf; the same input gives the same bytes, and [Hash]
// names them. The template beside it is squid.conf as an operator would read it; ranges and ports are its data.
//
// # What a proxy may not reach
//
// Addresses are judged after Squid has resolved them, in three lists that are all denials:
//
//   - never: metadata services, loopback, link-local, multicast, reserved and translated ranges;
//   - cluster: the member's own pods, services and nodes;
//   - private: everything else that is not the public internet.
//
// Squid's "dst" matches a request when any address of the name matches. That is right for a denial and wrong for a
// permission: a name with one allowed and one forbidden address would pass. So nothing is ever allowed by address.
// What a fleet may reach besides the internet is subtracted from the private list before rendering, and a request to
// subtract from the other two is an error that names the rule.
//
// Probe targets are cut out in the same way, one address each, and open only on their own ports.
//
// # What Squid needs
//
// One process (-N) as uid 13, no capability, no writable directory; logs go to standard output and error, one JSON
// object per request. Error pages are Squid's own: our denials have names of their own, which Squid reports in the
// X-Squid-Error header without a page file for them. Measured with Squid 5.7 and 6.13.
//
// The package must not import Kubernetes, the API types or a provider: pods and virtual machines get the same text.
package squid
