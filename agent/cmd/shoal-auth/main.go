// Command shoal-auth is Squid's basic authentication program on a Shoal proxy. It checks signed credentials offline.
package main

import (
	"flag"
	"fmt"
	"os"

	"k8s.io/utils/clock"

	"github.com/shoal-dev/shoal/agent/internal/authhelper"
	"github.com/shoal-dev/shoal/agent/internal/buildinfo"
	"github.com/shoal-dev/shoal/proto/credential"
)

// Set by the build: -ldflags "-X main.version=… -X main.commit=…".
var version, commit = buildinfo.NoVersion, buildinfo.NoCommit

func main() {
	flags := flag.NewFlagSet("shoal-auth", flag.ExitOnError)
	uid := flags.String("proxy-uid", "", "`UID` of the Proxy object that this proxy is")
	uidFile := flags.String("proxy-uid-file", "", "`file` with that UID, instead of --proxy-uid")
	keys := flags.String("keys", "", "`directory` of key files (*.json), reread when it changes")
	tell := flags.Bool("version", false, "print what this program was built from, and end")
	// ExitOnError: Parse does not return one.
	_ = flags.Parse(os.Args[1:])
	if *tell {
		fmt.Fprintln(os.Stdout, "shoal-auth version", buildinfo.Read(version, commit))
		return
	}
	if flags.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "shoal-auth: unexpected argument %q; everything is given by flags, see --help\n", flags.Arg(0))
		os.Exit(2)
	}
	err := authhelper.Run(authhelper.Options{
		ProxyUID:     credential.ProxyUID(*uid),
		ProxyUIDFile: *uidFile,
		KeysDir:      *keys,
		Clock:        clock.RealClock{},
		In:           os.Stdin,
		Out:          os.Stdout,
		Log:          os.Stderr,
	})
	if err != nil {
		fmt.Fprintf(os.Stderr, "shoal-auth: %v\n", err)
		os.Exit(1)
	}
}
