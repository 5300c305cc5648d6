// Package imagefile writes container images as archives that `docker load` and `ctr images import` read, from tars and
// single files, without a registry, a builder or a running engine. The same input gives the same bytes.
package imagefile

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image says what an image is made of.
type Image struct {
	// Tags are full names with a registry and a tag.
	Tags []string
	// Layers from the lowest up. Layers that several images of one archive share are stored once.
	Layers []*Layer
	// Entrypoint, Env, User and Labels as in a Dockerfile.
	Entrypoint []string
	Env        []string
	User       string
	Labels     map[string]string
	// StopSignal is what ends the first process; empty means SIGTERM.
	StopSignal string
}

// DefaultPath is the PATH that images get unless their Env says otherwise.
const DefaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// WriteArchive writes images into one archive at path.
func WriteArchive(path string, images ...Image) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(Write(f, images...), f.Close())
}

// Write writes images as one archive into w.
func Write(w io.Writer, images ...Image) error {
	refs := make(map[name.Reference]v1.Image)
	for _, image := range images {
		built, err := image.build()
		if err != nil {
			return fmt.Errorf("image %v: %w", image.Tags, err)
		}
		for _, text := range image.Tags {
			tag, err := name.NewTag(text, name.StrictValidation)
			if err != nil {
				return err
			}
			refs[tag] = built
		}
	}
	return tarball.MultiRefWrite(refs, w)
}

// ID returns the hex hash of the image's configuration, which names all of its content but not its tags.
func (i Image) ID() (string, error) {
	built, err := i.build()
	if err != nil {
		return "", err
	}
	hash, err := built.ConfigName()
	return hash.Hex, err
}

func (i Image) build() (v1.Image, error) {
	layers := make([]v1.Layer, 0, len(i.Layers))
	for _, layer := range i.Layers {
		layers = append(layers, layer)
	}
	built, err := mutate.AppendLayers(empty.Image, layers...)
	if err != nil {
		return nil, err
	}
	config, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	env := i.Env
	if !slices.ContainsFunc(env, func(v string) bool { return len(v) > 5 && v[:5] == "PATH=" }) {
		env = append([]string{DefaultPath}, env...)
	}
	config.Config = v1.Config{
		Env:        env,
		Entrypoint: i.Entrypoint,
		User:       i.User,
		Labels:     maps.Clone(i.Labels),
		StopSignal: i.StopSignal,
	}
	return mutate.ConfigFile(built, config)
}
