// Package pump moves frames between a session and a stream: the goroutines, the clock and the waiting that package
// session does without.
//
// One goroutine owns the session; it never waits for the stream nor for the caller's slow work. Two others wait for the
// stream, one for each direction, so that two peers that both have much to send do not wait for each other for ever.
// What does not fit into the stream stays in the session, latest-wins.
package pump
