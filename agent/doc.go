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
//	pods                                      get list watch create patch delete (patch: the mark of leased ones)
//	resourcequotas, limitranges               list (why a pod was forbidden)
//	configmaps                                get create patch delete
//	secrets                                   create; get update of shoal-agent-identity and shoal-agent-probe-key; get of
//	                                          those that ceiling.cloudInitSecrets lists; get patch of all unless
//	                                          ceiling.noExternal (credentials of proxies that someone else runs, whose
//	                                          Secrets bear their proxy sets' names)
//	proxysets, proxies (shoal.dev)            get list watch create patch delete
//	proxysets/status, proxies/status          patch
//	proxysets/finalizers, proxies/finalizers  update (to own what blocks their deletion)
//	leases (coordination.k8s.io)              get create update
//	events (events.k8s.io)                    create patch (transitions of proxies and sets)
//	events (core)                             create patch (leader election)
//
// where kubeconfigSecrets is set
//
//	secrets                                   list watch
//
// and in the cluster
//
//	nodes                                     get list watch (their addresses)
//	namespaces                                get of kube-system (its UID is the cluster's)
//
// A cluster of a kubeconfig Secret must grant the kubeconfig's user what engage.Preflight asks for.
package agent
