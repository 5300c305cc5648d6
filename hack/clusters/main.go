package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/progress"
	"github.com/shoal-dev/shoal/hack/internal/toolchain"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := cache.Default()
	if err != nil {
		panic(err)
	}
	t := &toolchain.Toolchain{Hack: os.Getenv("SHOAL_HACK"), Cache: dir, Log: progress.New(os.Stderr), Run: command.Runner{LogFile: dir.Path("log", "build.log")}}
	switch os.Args[1] {
	case "assets":
		d, err := envtestAssets(ctx, t)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(d)
	}
}
