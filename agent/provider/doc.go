// Package provider is the contract between the agent and whatever runs instances for it: pods in a cluster, virtual
// machines in a cloud.
//
// A provider is four verbs over instances. The controller that calls them owns the order: it sets its finalizer and
// writes down the instance's name before the first Create, observes with Get before it acts, and calls Delete until Get
// says that the instance is gone. A provider therefore never waits and never retries: it does one thing and says what
// came of it.
//
// Errors have kinds ([Kind]); the vendor's own codes are translated into them once, by the provider. Nothing above this
// package looks at a vendor's error, and nothing looks at an error's text.
//
// The package imports the API's types and nothing of Kubernetes' machinery. Implementations live under
// agent/internal/provider; the package fake has one for tests, with dials for what can go wrong, and providertest has the
// suite that every implementation passes.
package provider
