// Package enroll gets the agent its certificate from the hub, and the next one before it ends.
//
// The key is made here and never leaves the member. An agent that has no certificate knows the hub by a pin of its
// certificate authority and itself by a join token (Register); one that has a certificate uses that (Renew). What it
// was given is kept in a Store, so that an agent starts without the hub.
//
// The package reads the clock that it is given and no other, talks to nobody but the hub and the Store, and logs
// neither keys nor tokens.
package enroll
