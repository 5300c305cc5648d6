package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/toolchain"
)

// envtestAssets returns a directory with kube-apiserver, etcd and kubectl, for KUBEBUILDER_ASSETS.
func envtestAssets(ctx context.Context, tools *toolchain.Toolchain) (string, error) {
	built, err := tools.BuildAll(ctx, "kubernetes", "etcd")
	if err != nil {
		return "", err
	}
	var key cache.Key
	key.String("kubernetes", built["kubernetes"])
	key.String("etcd", built["etcd"])
	dir := tools.Cache.Path("envtest", key.Sum())
	return dir, cache.Make(dir, func(tmp string) error {
		if err := os.MkdirAll(tmp, 0o755); err != nil {
			return err
		}
		for name, target := range map[string]string{
			"kube-apiserver": built["kubernetes"],
			"kubectl":        built["kubernetes"],
			"etcd":           built["etcd"],
		} {
			if err := os.Symlink(target, filepath.Join(tmp, name)); err != nil {
				return err
			}
		}
		return nil
	})
}
