// Command clusters makes and removes the kind clusters that demos, tests and developers run Shoal on. Run it by
// hack/clusters.sh.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/shoal-dev/shoal/hack/internal/cluster"
	"github.com/shoal-dev/shoal/hack/internal/engine"
)

const usage = `usage: hack/clusters.sh COMMAND

  up     [--prefix shoal] [--members 2] [--nodes-per-member 1]
         make the clusters PREFIX-hub and PREFIX-member-1..N, or verify that they are there
  down   [--prefix shoal | --all]
         remove them and everything else that up made, but for what is cached
  clean  remove the cache too; the next up takes minutes
  env    [--prefix shoal] [--json]
         print what scripts need: eval "$(hack/clusters.sh env)"
  load   [--prefix shoal] [--to all|hub|members|CLUSTER] ARCHIVE...
         bring the images of archives into the clusters' nodes
  check  save FILE | diff FILE
         write down the state of this machine, or print what is different now (and fail if anything is)
  assets print a directory with kube-apiserver, etcd and kubectl, for KUBEBUILDER_ASSETS
`

func main() {
	if err := engine.RunAsRuntime(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if ctx.Err() != nil {
			fmt.Fprintln(os.Stderr, "Interrupted; run the same command again to go on, or `down` to clean up.")
			os.Exit(130)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// errUsage asks for the usage text.
var errUsage = errors.New(usage)

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	case "check":
		return check(ctx, args[1:])
	}
	k, err := cluster.Open(os.Getenv("SHOAL_HACK"), os.Stderr)
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, k, args[1:])
	case "down":
		return down(ctx, k, args[1:])
	case "clean":
		return clean(ctx, k, args[1:])
	case "env":
		return env(k, args[1:])
	case "load":
		return load(ctx, k, args[1:])
	case "assets":
		dir, err := envtestAssets(ctx, k.Tools)
		if err == nil {
			fmt.Println(dir)
		}
		return err
	}
	return fmt.Errorf("no command is named %q\n%w", args[0], errUsage)
}

// flags parses the flags of a command; what is left over is an error unless more is allowed.
func flags(name string, args []string, define func(*flag.FlagSet), more bool) ([]string, error) {
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	define(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	if !more && set.NArg() > 0 {
		return nil, fmt.Errorf("%s takes no argument %q\n%w", name, set.Arg(0), errUsage)
	}
	return set.Args(), nil
}

func up(ctx context.Context, k *cluster.Keeper, args []string) error {
	var request cluster.Request
	if _, err := flags("up", args, func(set *flag.FlagSet) {
		set.StringVar(&request.Prefix, "prefix", "shoal", "")
		set.IntVar(&request.Members, "members", 2, "")
		set.IntVar(&request.NodesPerMember, "nodes-per-member", 1, "")
	}, false); err != nil {
		return err
	}
	if err := request.Validate(); err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	group, err := k.Up(ctx, request)
	if err != nil {
		return err
	}
	k.Log.Printf("Up: %d clusters on network %s (%s); eval \"$(hack/clusters.sh env --prefix %s)\" to use them",
		len(group.Clusters), group.Network.Name, group.Network.Subnet, group.Prefix)
	return nil
}

func down(ctx context.Context, k *cluster.Keeper, args []string) error {
	var prefix string
	var all bool
	if _, err := flags("down", args, func(set *flag.FlagSet) {
		set.StringVar(&prefix, "prefix", "shoal", "")
		set.BoolVar(&all, "all", false, "")
	}, false); err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	prefixes := []string{prefix}
	if all {
		groups, err := cluster.Groups(k.Cache)
		if err != nil {
			return err
		}
		prefixes = nil
		for _, group := range groups {
			prefixes = append(prefixes, group.Prefix)
		}
		if len(prefixes) == 0 {
			// An engine may run all the same, if it was all that an interrupted run had come to.
			return k.Release(ctx)
		}
	}
	for _, prefix := range prefixes {
		if err := k.Log.Step("Removing the clusters of "+prefix, "", func() error { return k.Down(ctx, prefix) }); err != nil {
			return err
		}
	}
	return nil
}

// clean removes the cache; clusters that run are in the way.
func clean(ctx context.Context, k *cluster.Keeper, args []string) error {
	if _, err := flags("clean", args, func(*flag.FlagSet) {}, false); err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	groups, err := cluster.Groups(k.Cache)
	if err != nil {
		return err
	}
	if len(groups) > 0 {
		return fmt.Errorf("clusters of prefix %s are there; remove them first: hack/clusters.sh down --all", groups[0].Prefix)
	}
	if err := k.Release(ctx); err != nil {
		return err
	}
	return os.RemoveAll(string(k.Cache))
}

func load(ctx context.Context, k *cluster.Keeper, args []string) error {
	var prefix, to string
	archives, err := flags("load", args, func(set *flag.FlagSet) {
		set.StringVar(&prefix, "prefix", "shoal", "")
		set.StringVar(&to, "to", "all", "")
	}, true)
	if err != nil {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("load: name at least one archive\n%w", errUsage)
	}
	group, err := cluster.Existing(k.Cache, prefix)
	if err != nil {
		return err
	}
	choose, err := group.Choose(to)
	if err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	return k.Load(ctx, group, choose, archives...)
}
