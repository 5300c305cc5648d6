// Package authhelper is Squid's basic authentication program: it answers, line by line, whether a user name and a
// token open this proxy.
//
// Squid starts one or two of these per proxy and talks to them through pipes, with channel numbers so that many
// questions can be under way at once. Everything needed for an answer is local: the proxy's UID, a directory of public
// key files, and the clock. The program writes nothing but its answers and, on standard error, what an operator must
// know.
//
// The key directory is updated in place while proxies run: [KeyDir] looks for a change at most once a second, takes a
// new set only as a whole, and keeps the old one when the new one cannot be read. A missing update delays a key; it
// never locks everybody out.
//
// One goroutine does all of it. The package imports proto/credential for the format and no Kubernetes: the proxy image
// should carry little.
package authhelper
