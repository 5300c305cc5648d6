// Package kubernetes runs proxies as pods beside the agent.
//
// An instance is a bare Pod and a ConfigMap with its squid.conf, both owned by the Proxy and both named after the
// instance, so that a changed configuration is another instance. The pod is restricted as far as Pod Security can ask,
// has no writable path and holds no secret: credentials are checked with the public keys of a ConfigMap that all
// proxies of the member share and that is updated in place.
//
// Exposure is PodIP, for crawlers on a network that routes to pods, or HostPort, where each proxy has a port on its
// node; the port is the controller's choice and comes with the request.
package kubernetes
