package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/cluster"
	"github.com/shoal-dev/shoal/hack/internal/hoststate"
)

func env(k *cluster.Keeper, args []string) error {
	var prefix string
	var asJSON bool
	if _, err := flags("env", args, func(set *flag.FlagSet) {
		set.StringVar(&prefix, "prefix", "shoal", "")
		set.BoolVar(&asJSON, "json", false, "")
	}, false); err != nil {
		return err
	}
	group, err := cluster.Existing(k.Cache, prefix)
	if err != nil {
		return err
	}
	vars := group.Env(k.Cache, os.Getenv("PATH"))
	if !asJSON {
		fmt.Print(cluster.Shell(vars))
		return nil
	}
	names := make(map[string]string, len(vars))
	for _, v := range vars {
		names[v.Name] = v.Value
	}
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		*cluster.Group
		Kubeconfig string            `json:"kubeconfig"`
		Env        map[string]string `json:"env"`
	}{group, cluster.Kubeconfig(k.Cache, prefix), names})
}

// check compares the machine before and after: `down` must leave nothing.
func check(ctx context.Context, args []string) error {
	if len(args) != 2 || args[0] != "save" && args[0] != "diff" {
		return fmt.Errorf("check: say `save FILE` or `diff FILE`\n%w", errUsage)
	}
	dir, err := cache.Default()
	if err != nil {
		return err
	}
	now, err := hoststate.Capture(ctx, string(dir))
	if err != nil {
		return err
	}
	path, err := filepath.Abs(args[1])
	if err != nil {
		return err
	}
	if args[0] == "save" {
		return now.Save(path)
	}
	before, err := hoststate.Load(path)
	if err != nil {
		return err
	}
	diff := hoststate.Diff(before, now)
	for _, line := range diff {
		fmt.Println(line)
	}
	if len(diff) > 0 {
		return fmt.Errorf("%d differences from %s", len(diff), args[1])
	}
	fmt.Println("nothing is left")
	return nil
}
