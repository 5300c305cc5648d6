// Command images builds the images of Shoal's own programs and brings them to where they run. Run it by hack/images.sh.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/shoal-dev/shoal/hack/internal/cluster"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/productimage"
)

const usage = `usage: hack/images.sh COMMAND

  build  [hub] [agent] [proxy] [target]
         build the images (all if none is named) as archives, and print for each
         SHOAL_<NAME>_IMAGE and SHOAL_<NAME>_ARCHIVE as lines for a shell to evaluate
  load   [--prefix shoal] [hub] [agent] [proxy]
         build, and bring each image to the clusters that need it; prints the same lines
  target [--prefix shoal]
         build and run the test target as a container on the clusters' network, and print
         SHOAL_TARGET_IP; hack/clusters.sh down removes it
  compute [--prefix shoal]
         build and run the Compute Engine fake on this machine, at the address of the clusters'
         network; its machines are containers of the proxy image on that network. Prints
         SHOAL_COMPUTE_ENDPOINT, SHOAL_COMPUTE_PROJECT and SHOAL_COMPUTE_ZONES;
         hack/clusters.sh down ends it
`

var errUsage = errors.New(usage)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	if args[0] == "help" || args[0] == "-h" || args[0] == "--help" {
		fmt.Print(usage)
		return nil
	}
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	set.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	prefix := set.String("prefix", "shoal", "")
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	hack := os.Getenv("SHOAL_HACK")
	k, err := cluster.Open(hack, os.Stderr)
	if err != nil {
		return err
	}
	b := &productimage.Builder{
		Root:   filepath.Dir(hack),
		Cache:  k.Cache,
		Log:    k.Log,
		Run:    command.Runner{LogFile: k.Cache.Path("log", "images.log")},
		Debian: k.Debian,
	}
	switch args[0] {
	case "build":
		built, err := build(ctx, k, b, set.Args()...)
		if err != nil {
			return err
		}
		printImages(built)
		return nil
	case "load":
		return load(ctx, k, b, *prefix, set.Args())
	case "target":
		return target(ctx, k, b, *prefix)
	case "compute":
		return compute(ctx, k, b, *prefix)
	}
	return fmt.Errorf("no command is named %q\n%w", args[0], errUsage)
}

// build builds under a lock of its own.
func build(ctx context.Context, k *cluster.Keeper, b *productimage.Builder, names ...string) ([]productimage.Built, error) {
	unlock, err := k.Lock(ctx, cluster.Building)
	if err != nil {
		return nil, err
	}
	defer unlock()
	return b.Build(ctx, names...)
}

func printImages(built []productimage.Built) {
	for _, one := range built {
		name := "SHOAL_" + strings.ToUpper(one.Spec.Name)
		fmt.Printf("export %s_IMAGE='%s'\nexport %s_ARCHIVE='%s'\n", name, one.Image, name, one.Archive)
	}
}

func load(ctx context.Context, k *cluster.Keeper, b *productimage.Builder, prefix string, names []string) error {
	group, err := cluster.Existing(k.Cache, prefix)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		names = []string{"hub", "agent", "proxy"}
	}
	built, err := build(ctx, k, b, names...)
	if err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	for _, one := range built {
		if one.Spec.For == "" {
			return fmt.Errorf("image %s runs beside the clusters: hack/images.sh target", one.Spec.Name)
		}
		choose, err := group.Choose(one.Spec.For)
		if err != nil {
			return err
		}
		if err := k.Load(ctx, group, choose, one.Archive); err != nil {
			return err
		}
	}
	printImages(built)
	return nil
}

func target(ctx context.Context, k *cluster.Keeper, b *productimage.Builder, prefix string) error {
	group, err := cluster.Existing(k.Cache, prefix)
	if err != nil {
		return err
	}
	built, err := build(ctx, k, b, "target")
	if err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	ip, err := k.RunBeside(ctx, group, "target", built[0].Image, built[0].Archive)
	if err != nil {
		return err
	}
	fmt.Printf("export SHOAL_TARGET_IP='%s'\n", ip)
	return nil
}
