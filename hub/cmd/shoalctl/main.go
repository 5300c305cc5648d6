// Command shoalctl works with a hub of Shoal: see package ctl.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/shoal-dev/shoal/hub/internal/buildinfo"
	"github.com/shoal-dev/shoal/hub/internal/ctl"
)

// Set by the build: -ldflags "-X main.version=… -X main.commit=…".
var version, commit = buildinfo.NoVersion, buildinfo.NoCommit

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.Discard()) // What a person should know is an error or a result.
	cmd := ctl.New(ctl.Options{Version: buildinfo.Read(version, commit).String()})
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "shoalctl:", err)
		os.Exit(1)
	}
}
