// Package nodeimage makes the image that kind runs as a node, from Debian packages and the pinned programs of
// hack/tools: kind's own image minus the registry.
//
// What lies in it, from the lowest layer up: Debian with systemd, containerd and runc; the Kubernetes programs; the
// images of the control plane, to be imported when a node starts; our own files (rootfs/), links, masks and removals.
// The files that change most come last, so that what is below is found in the engine.
package nodeimage
