// Package fake is a provider without instances behind it, for tests. It keeps the contract of package provider, and has
// dials for what can go wrong: calls that fail, hang or lose their answer, requests that are taken and come to nothing,
// zones without room or out of sight, listings that lag behind, instances that are taken back.
package fake
