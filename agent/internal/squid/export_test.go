package squid

// OnLoopback returns c changed so that a test can run Squid with it: it listens on 127.0.0.1 and may reach targets
// there.
func OnLoopback(c Config) Config {
	c.onLoopback = true
	return c
}
