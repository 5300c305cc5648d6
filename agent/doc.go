// Package agent is the whole of shoal-agent: what runs in each member cluster and turns what the hub desires into
// proxies that have proved themselves.
//
// [Run] is the composition root and the only place that sees every package. It reads as a list of stages with what each
// takes in and gives out. [Settings] is the cluster owner's configuration file; [Config] is what a process is given
// beside it.
//
// # Rights
//
// In its own namespace the agent needs
//
//	pods, configmaps                      get list watch create patch delete
//	secrets                               get create update (shoal-agent-identity, shoal-agent-probe-key)
//	proxysets, proxies (shoal.dev)        get list watch create update patch delete
//	proxysets/status, proxies/status      get update patch
//	proxies/finalizers, proxysets/finalizers  update
//	leases (coordination.k8s.io)          get create update
//	events (events.k8s.io, and core)      create patch
//
// and in the cluster
//
//	nodes                                 get list watch
//	namespaces (kube-system only)         get
package agent
