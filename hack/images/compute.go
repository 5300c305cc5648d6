package main

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cluster"
	"github.com/shoal-dev/shoal/hack/internal/productimage"
)

// What the Compute Engine fake has.
const (
	computePort    = "8085"
	computeProject = "shoal-demo"
	computePackage = "./internal/provider/gcp/computefake/cmd/compute-fake"
)

// computeZones are those of one region.
var computeZones = []string{"europe-west1-b", "europe-west1-c", "europe-west1-d"}

// compute runs the Compute Engine fake on the host: it must reach the engine, whose containers its machines are, and be
// reached from the clusters.
func compute(ctx context.Context, k *cluster.Keeper, b *productimage.Builder, prefix string) error {
	group, err := cluster.Existing(k.Cache, prefix)
	if err != nil {
		return err
	}
	built, err := build(ctx, k, b, "proxy")
	if err != nil {
		return err
	}
	program, err := program(ctx, k, b, cluster.ProgramPrefix+"compute-fake", "agent", computePackage)
	if err != nil {
		return err
	}
	unlock, err := k.Lock(ctx, cluster.Changing)
	if err != nil {
		return err
	}
	defer unlock()
	if err := k.LoadBeside(ctx, group, built[0].Image, built[0].Archive); err != nil {
		return err
	}
	docker, err := k.Docker(ctx, group)
	if err != nil {
		return err
	}
	const name = "compute"
	address := net.JoinHostPort(group.Network.Gateway.String(), computePort)
	err = k.EnsureProcess(ctx, group, cluster.Process{
		Name: name, Program: program, Address: address,
		Args: []string{
			"--listen", address, "--projects", computeProject, "--zones", strings.Join(computeZones, ","),
			"--boot", "docker", "--docker", docker, "--docker-network", group.Network.Name,
			"--dir", k.ProcessDir(group, name), "--run-id", group.Prefix,
		},
	})
	if err != nil {
		return err
	}
	fmt.Printf("export SHOAL_COMPUTE_ENDPOINT='http://%s'\nexport SHOAL_COMPUTE_PROJECT='%s'\nexport SHOAL_COMPUTE_ZONES='%s'\n",
		address, computeProject, strings.Join(computeZones, ","))
	return nil
}

// program builds a program under the lock of builds.
func program(ctx context.Context, k *cluster.Keeper, b *productimage.Builder, name, module, pkg string) (string, error) {
	unlock, err := k.Lock(ctx, cluster.Building)
	if err != nil {
		return "", err
	}
	defer unlock()
	return b.Program(ctx, name, module, pkg)
}
