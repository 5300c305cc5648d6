package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Load brings the images of archives into every node of the clusters that choose admits, all nodes at once. A node that
// has all images of an archive already, with the same content, is left alone.
func (k *Keeper) Load(ctx context.Context, group *Group, choose func(*Cluster) bool, archives ...string) error {
	var nodes []Node
	for _, c := range group.Clusters {
		if choose(c) {
			nodes = append(nodes, c.Nodes...)
		}
	}
	e, err := k.engineFor(ctx, group)
	if err != nil {
		return err
	}
	w := &worker{keeper: k, engine: e, group: group, bin: filepath.Join(groupDir(k.Cache, group.Prefix), "bin")}
	for _, archive := range archives {
		images, err := contents(archive)
		if err != nil {
			return err
		}
		var todo []Node
		for _, node := range nodes {
			if !w.hasImages(ctx, node, images) {
				todo = append(todo, node)
			}
		}
		if len(todo) == 0 {
			continue
		}
		title := fmt.Sprintf("Loading %s into %d nodes", filepath.Base(archive), len(todo))
		err = k.Log.Step(title, "", func() error {
			return errors.Join(parallel(todo, func(node Node) error { return w.importArchive(ctx, node, archive) })...)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Choose returns a filter for a wish: "all", "hub", "members", or a cluster's name.
func (g *Group) Choose(wish string) (func(*Cluster) bool, error) {
	choose := func(c *Cluster) bool {
		return wish == "all" || wish == c.Role || wish == c.Role+"s" || wish == c.Name
	}
	if !slices.ContainsFunc(g.Clusters, choose) {
		return nil, fmt.Errorf("no cluster of prefix %s is meant by %q: say all, hub, members or a cluster's name", g.Prefix, wish)
	}
	return choose, nil
}

// contents returns the images of an archive: full name and the hash of the configuration, which is an image's identity.
func contents(archive string) ([]string, error) {
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(archive) })
	if err != nil {
		return nil, fmt.Errorf("%s is not an image archive: %w", archive, err)
	}
	var images []string
	for _, descriptor := range manifest {
		digest := strings.TrimSuffix(filepath.Base(descriptor.Config), ".json")
		if _, err := v1.NewHash(digest); err != nil {
			digest = "sha256:" + digest
		}
		for _, tag := range descriptor.RepoTags {
			images = append(images, tag+" "+digest)
		}
	}
	return images, nil
}

func (w *worker) hasImages(ctx context.Context, node Node, images []string) bool {
	text, err := w.engine.Call(ctx, "exec", node.Name, "crictl", "images", "--output", "json")
	if err != nil {
		return false
	}
	var list struct {
		Images []struct {
			ID       string   `json:"id"`
			RepoTags []string `json:"repoTags"`
		} `json:"images"`
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return false
	}
	have := make(map[string]bool)
	for _, image := range list.Images {
		for _, tag := range image.RepoTags {
			have[tag+" "+image.ID] = true
		}
	}
	return !slices.ContainsFunc(images, func(image string) bool { return !have[image] })
}

func (w *worker) importArchive(ctx context.Context, node Node, archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = w.run("").Feed(ctx, f, w.tool("docker"), "exec", "--interactive", node.Name,
		"ctr", "--namespace=k8s.io", "images", "import", "--all-platforms", "--digests", "-")
	return err
}
