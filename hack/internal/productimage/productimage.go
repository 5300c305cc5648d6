// Package productimage builds the images of Shoal's own programs, as archives and without a registry. The Dockerfiles in
// hack/images describe the same images for those who publish them.
package productimage

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/debian"
	"github.com/shoal-dev/shoal/hack/internal/imagefile"
	"github.com/shoal-dev/shoal/hack/internal/progress"
)

// Spec says what is in an image.
type Spec struct {
	// Name is the short name: hub, agent, proxy, target.
	Name string
	// Module is the directory of the programs' module, below the repository's root.
	Module string
	// Programs maps a program's name, under /usr/local/bin in the image, to its package in the module.
	Programs map[string]string
	// Entrypoint is the image's.
	Entrypoint []string
	// Squid is true for the image that has Debian with Squid below the programs; the others have nothing.
	Squid bool
	// User is the numeric user and group.
	User string
	// For is the clusters that need it, in the words of cluster.Group.Choose; empty for an image that runs beside them.
	For string
}

// nobody is the user of programs that need no name.
const nobody = "65532:65532"

// Specs are all images.
var Specs = []Spec{
	{
		Name: "hub", Module: "hub", For: "hub", User: nobody,
		Programs:   map[string]string{"shoal-hub": "./cmd/shoal-hub", "shoalctl": "./cmd/shoalctl"},
		Entrypoint: []string{"/usr/local/bin/shoal-hub"},
	},
	{
		Name: "agent", Module: "agent", For: "members", User: nobody,
		Programs:   map[string]string{"shoal-agent": "./cmd/shoal-agent"},
		Entrypoint: []string{"/usr/local/bin/shoal-agent"},
	},
	{
		Name: "proxy", Module: "agent", For: "members", User: "13:13", Squid: true,
		Programs:   map[string]string{"shoal-auth": "./cmd/shoal-auth"},
		Entrypoint: []string{"/usr/sbin/squid", "-N"},
	},
	{
		Name: "target", Module: "hack", User: nobody,
		Programs:   map[string]string{"shoal-target": "./images/target"},
		Entrypoint: []string{"/usr/local/bin/shoal-target"},
	},
}

// Built is a built image.
type Built struct {
	Spec Spec
	// Image is its name. The tag follows the content, so that a changed program is another image to Kubernetes.
	Image string
	// Archive is the path of the archive with it.
	Archive string
}

// Builder builds images.
type Builder struct {
	// Root is the repository.
	Root   string
	Cache  cache.Dir
	Log    *progress.Log
	Run    command.Runner
	Debian *debian.Builder
}

// Build builds the named images, all if none is named, and returns them in the order of Specs.
func (b *Builder) Build(ctx context.Context, names ...string) ([]Built, error) {
	for _, name := range names {
		if !slices.ContainsFunc(Specs, func(s Spec) bool { return s.Name == name }) {
			return nil, fmt.Errorf("no image is named %q; there are hub, agent, proxy and target", name)
		}
	}
	squid, err := b.squidRoot(ctx)
	if err != nil {
		return nil, err
	}
	scratch := b.Cache.Path("image-layers")
	if err := os.RemoveAll(scratch); err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	var built []Built
	for _, spec := range Specs {
		if len(names) > 0 && !slices.Contains(names, spec.Name) {
			continue
		}
		dir := filepath.Join(scratch, spec.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		var one Built
		err := b.Log.Step("Image shoal-"+spec.Name, "", func() (err error) {
			stamp, err := b.stamp(ctx, spec.Module)
			if err != nil {
				return err
			}
			one, err = b.build(ctx, spec, stamp, squid, dir)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("image shoal-%s: %w", spec.Name, err)
		}
		built = append(built, one)
	}
	return built, nil
}

func (b *Builder) build(ctx context.Context, spec Spec, stamp stamp, squid, dir string) (Built, error) {
	programs, err := imagefile.CreateLayer(filepath.Join(dir, "programs.tar"))
	if err != nil {
		return Built{}, err
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		binary := filepath.Join(dir, name)
		if err := b.compile(ctx, spec.Module, spec.Programs[name], binary, stamp); err != nil {
			return Built{}, err
		}
		programs.CopyFile("usr/local/bin/"+name, binary, 0o755)
	}
	top, err := programs.Close()
	if err != nil {
		return Built{}, err
	}
	var base *imagefile.Layer
	if spec.Squid {
		base, err = imagefile.OpenLayer(squid)
	} else {
		base, err = scratchBase(squid, filepath.Join(dir, "base.tar"))
	}
	if err != nil {
		return Built{}, err
	}
	image := imagefile.Image{
		Layers:     []*imagefile.Layer{base, top},
		Entrypoint: spec.Entrypoint,
		User:       spec.User,
		Labels: map[string]string{
			"org.opencontainers.image.title":    "shoal-" + spec.Name,
			"org.opencontainers.image.version":  stamp.version,
			"org.opencontainers.image.revision": stamp.commit,
			"shoal.dev/go-version":              stamp.goVersion,
		},
	}
	id, err := image.ID()
	if err != nil {
		return Built{}, err
	}
	repository := "shoal.dev/shoal-" + spec.Name
	one := Built{
		Spec:    spec,
		Image:   repository + ":dev-" + id[:12],
		Archive: b.Cache.Path("images", "shoal-"+spec.Name+"-"+id[:12]+".tar"),
	}
	image.Tags = []string{one.Image, repository + ":dev"}
	if err := cache.Make(one.Archive, func(tmp string) error { return imagefile.WriteArchive(tmp, image) }); err != nil {
		return Built{}, err
	}
	// Each archive takes some 100 MB.
	return one, b.forgetOld(b.Cache.Path("images", "shoal-"+spec.Name+"-*.tar"), one.Archive)
}

// Program builds a program that runs on this machine and not in an image, and returns its path; the name ends in a hash of
// the content.
func (b *Builder) Program(ctx context.Context, name, module, pkg string) (string, error) {
	s, err := b.stamp(ctx, module)
	if err != nil {
		return "", err
	}
	dir := b.Cache.Path("bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fresh := filepath.Join(dir, ".new-"+name)
	defer os.Remove(fresh)
	if err := b.compile(ctx, module, pkg, fresh, s); err != nil {
		return "", err
	}
	sum, err := cache.FileSum(fresh)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+"-"+sum[:12])
	if err := cache.Make(path, func(tmp string) error { return os.Rename(fresh, tmp) }); err != nil {
		return "", err
	}
	return path, b.forgetOld(filepath.Join(dir, name+"-*"), path)
}

// compile builds one program as it will be released: static, without the workspace, and knowing what it is.
func (b *Builder) compile(ctx context.Context, module, pkg, out string, stamp stamp) error {
	dir := filepath.Join(b.Root, module)
	if !cache.Exists(filepath.Join(dir, pkg)) {
		return fmt.Errorf("there is no package %s in %s", pkg, dir)
	}
	ldflags := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s", stamp.version, stamp.commit)
	return b.Run.In(dir).With("GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly").Run(ctx,
		"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", out, pkg)
}

// forgetOld keeps what was built of the last few contents of something.
func (b *Builder) forgetOld(pattern, current string) error {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	now := time.Now()
	if err := os.Chtimes(current, now, now); err != nil {
		return err
	}
	age := func(path string) time.Time {
		info, err := os.Stat(path)
		if err != nil {
			return time.Time{}
		}
		return info.ModTime()
	}
	slices.SortFunc(paths, func(a, b string) int { return age(b).Compare(age(a)) })
	for _, path := range paths[min(len(paths), 3):] {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// scratchBase is what a static program expects of a system: root certificates and a name for its user.
func scratchBase(squid, path string) (*imagefile.Layer, error) {
	const bundle = "etc/ssl/certs/ca-certificates.crt"
	certificates, err := debian.ReadFile(squid, bundle)
	if err != nil {
		return nil, err
	}
	w, err := imagefile.CreateLayer(path)
	if err != nil {
		return nil, err
	}
	w.File(bundle, certificates, 0o644)
	w.File("etc/passwd", []byte("root:x:0:0:root:/:/none\nnobody:x:65532:65532:nobody:/:/none\n"), 0o644)
	w.File("etc/group", []byte("root:x:0:\nnobody:x:65532:\n"), 0o644)
	return w.Close()
}

// stamp is what a program and its image say of their origin.
type stamp struct{ version, commit, goVersion string }

// stamp tells of the last commit that changed what a module is built from, so that commits elsewhere in the repository
// make no new image.
func (b *Builder) stamp(ctx context.Context, module string) (stamp, error) {
	text, err := b.Run.Output(ctx, "go", "env", "GOVERSION")
	if err != nil {
		return stamp{}, err
	}
	s := stamp{version: "dev", commit: "unknown", goVersion: text}
	git := b.Run.In(b.Root)
	git.LogFile = ""
	sources := []string{"--", module, "api", "proto"}
	// A source tree without git is no mistake.
	commit, err := git.Output(ctx, "git", append([]string{"log", "-1", "--format=%H"}, sources...)...)
	if err != nil || commit == "" {
		return s, nil
	}
	s.commit = commit
	changes, err := git.Output(ctx, "git", append([]string{"status", "--porcelain"}, sources...)...)
	if err != nil {
		return s, nil
	}
	if changes != "" {
		s.commit += "-dirty"
		return s, nil
	}
	if version, err := git.Output(ctx, "git", "describe", "--tags", "--exact-match", "--match", "v*", commit); err == nil {
		s.version = version
	}
	return s, nil
}
