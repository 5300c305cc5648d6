package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/engine"
	"github.com/shoal-dev/shoal/hack/internal/nodeimage"
)

// nodeImage returns the name of a node image that the engine has: kind's own where the engine has it or a registry gives
// it, else ours. SHOAL_NODE_IMAGE=build skips the registry; any other value is the name of an image to use.
func (k *Keeper) nodeImage(ctx context.Context, e *engine.Engine) (string, error) {
	wish := os.Getenv("SHOAL_NODE_IMAGE")
	if wish != "" && wish != "build" {
		if !has(ctx, e, wish) {
			if _, err := e.Call(ctx, "pull", wish); err != nil {
				return "", err
			}
		}
		return wish, nil
	}
	version, err := k.Images.Version()
	if err != nil {
		return "", err
	}
	official := "kindest/node:" + version
	if wish != "build" {
		if has(ctx, e, official) {
			return official, nil
		}
		if registryAnswers(ctx) {
			err := k.Log.Step("Pulling "+official, "400 MB", func() error {
				ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
				defer cancel()
				_, err := e.Call(ctx, "pull", official)
				return err
			})
			if err == nil {
				return official, nil
			}
			if ctx.Err() != nil {
				return "", err
			}
			k.Log.Printf("%s cannot be pulled, so the node image is built here", official)
		}
	}
	in, err := k.Images.Prepare(ctx)
	if err != nil {
		return "", err
	}
	if has(ctx, e, in.Tag) {
		return in.Tag, nil
	}
	err = k.Log.Step("Loading node image "+in.Tag, "20 s", func() error { return k.load(ctx, e, in) })
	if err != nil {
		return "", err
	}
	return in.Tag, nil
}

// load streams the image into the engine; only its layers touch the disk.
func (k *Keeper) load(ctx context.Context, e *engine.Engine, in *nodeimage.Inputs) error {
	// Below a fixed name: what an interrupted run left is gone then.
	scratch := k.Cache.Path("node-layers")
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	reader, writer := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := k.Images.Write(ctx, in, scratch, writer)
		writer.CloseWithError(err)
		written <- err
	}()
	_, err := e.Run().Feed(ctx, reader, e.Docker, "load", "--quiet")
	reader.CloseWithError(errors.New("docker load has ended"))
	return errors.Join(<-written, err)
}

// removeOldImages removes a repository's images that are not the current one, where no container uses them.
func removeOldImages(ctx context.Context, e *engine.Engine, current string) error {
	repository := current[:strings.LastIndexByte(current, ':')]
	ids, err := e.Call(ctx, "image", "ls", "--format", "{{.Repository}}:{{.Tag}} {{.ID}}", repository)
	if err != nil {
		return err
	}
	var keep string
	for line := range strings.Lines(ids) {
		if name, id, _ := strings.Cut(strings.TrimSpace(line), " "); name == current {
			keep = id
		}
	}
	for line := range strings.Lines(ids) {
		if name, id, _ := strings.Cut(strings.TrimSpace(line), " "); id != keep {
			_, _ = e.Call(ctx, "image", "rm", name) // refused while a container runs it, and rightly so
		}
	}
	return nil
}

func has(ctx context.Context, e *engine.Engine, image string) bool {
	text, err := e.Call(ctx, "image", "ls", "--quiet", image)
	return err == nil && text != ""
}

// registryAnswers asks the registry of kind's images whether it is there at all, so that a machine without a way out does
// not wait for Docker's retries.
func registryAnswers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://registry-1.docker.io/v2/", nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	// It asks for a token; anything else is a proxy's word.
	return response.StatusCode == http.StatusUnauthorized
}
