// Package ctl has the commands of shoalctl: joining members, tokens for crawlers, and what kubectl cannot show.
//
// Most goes through the Kubernetes API with the caller's own rights; what a hub must not be asked for, such as a new
// token, is written there as the hub would read it. The list of proxies, and what operators do to leases in force
// (principal, target, ban), ask the hub itself. Results go to standard output, in a
// form that scripts can use; what is only for people goes to standard error.
package ctl
