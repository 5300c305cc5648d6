// Package toolchain builds the pinned programs of hack/tools and keeps them by version.
package toolchain

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/progress"
)

// Toolchain builds the modules under hack/tools.
type Toolchain struct {
	// Hack is the absolute path of the hack directory.
	Hack  string
	Cache cache.Dir
	Log   *progress.Log
	Run   command.Runner
}

// expect says what a person waits for; measured on two cores.
var expect = map[string]string{
	"kubernetes": "30 s with a warm Go cache, about 8 min without",
	"etcd":       "1 min without a warm Go cache",
	"coredns":    "2 min without a warm Go cache",
	"kind":       "10 s",
	"crictl":     "20 s",
}

// Build returns the path of the tool's static binary and builds it first if it is not cached. The cache key is the Go
// release, the module's files and the linker's flags.
func (t *Toolchain) Build(ctx context.Context, name string) (string, error) {
	module := filepath.Join(t.Hack, "tools", name)
	goVersion, err := t.Run.Output(ctx, "go", "version")
	if err != nil {
		return "", err
	}
	ldflags, err := t.ldflags(name)
	if err != nil {
		return "", err
	}
	var key cache.Key
	key.String("go", goVersion)
	key.String("ldflags", ldflags)
	if err := key.Tree(moduleFiles{os.DirFS(module)}); err != nil {
		return "", fmt.Errorf("tool %s: %w", name, err)
	}
	out := t.Cache.Path("bin", name+"-"+key.Sum())
	if cache.Exists(out) {
		return out, nil
	}
	title := "Building " + name
	if version := t.moduleVersion(name); version != "" {
		title += " " + version
	}
	return out, t.Log.Step(title, expect[name], func() error {
		return cache.Make(out, func(tmp string) error {
			pkg, err := t.mainPackage(ctx, module)
			if err != nil {
				return err
			}
			return t.Run.In(module).With("GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly").Run(ctx,
				"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", tmp, pkg)
		})
	})
}

// BuildAll builds several tools one after another (each build uses all cores already) and returns their paths by name.
func (t *Toolchain) BuildAll(ctx context.Context, names ...string) (map[string]string, error) {
	paths := make(map[string]string, len(names))
	for _, name := range names {
		path, err := t.Build(ctx, name)
		if err != nil {
			return nil, err
		}
		paths[name] = path
	}
	return paths, nil
}

// Version returns the version of a module that the tool's go.mod requires, for example v1.35.4.
func (t *Toolchain) Version(tool, module string) (string, error) {
	content, err := os.ReadFile(filepath.Join(t.Hack, "tools", tool, "go.mod"))
	if err != nil {
		return "", err
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(module) + `\s+(v\S+)`).FindSubmatch(content)
	if found == nil {
		return "", fmt.Errorf("hack/tools/%s/go.mod does not require %s", tool, module)
	}
	return string(found[1]), nil
}

// modules names the module whose version is a tool's version.
var modules = map[string]string{
	"kubernetes": "k8s.io/kubernetes",
	"etcd":       "go.etcd.io/etcd/server/v3",
	"coredns":    "github.com/coredns/coredns",
	"kind":       "sigs.k8s.io/kind",
	"crictl":     "sigs.k8s.io/cri-tools",
}

// ToolVersion returns the pinned version of one of our tools.
func (t *Toolchain) ToolVersion(tool string) (string, error) {
	module, ok := modules[tool]
	if !ok {
		return "", fmt.Errorf("no tool is named %q", tool)
	}
	return t.Version(tool, module)
}

func (t *Toolchain) moduleVersion(tool string) string {
	version, err := t.ToolVersion(tool)
	if err != nil {
		return ""
	}
	return version
}

// ldflags stamps the version where the program asks for it: kubeadm refuses to run without one.
func (t *Toolchain) ldflags(name string) (string, error) {
	flags := "-s -w"
	switch name {
	case "kubernetes":
		version, err := t.ToolVersion(name)
		if err != nil {
			return "", err
		}
		numbers := strings.Split(strings.TrimPrefix(version, "v"), ".")
		const pkg = "k8s.io/component-base/version"
		flags += fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s -X %[1]s.gitTreeState=clean",
			pkg, version, numbers[0], numbers[1])
	case "crictl":
		version, err := t.ToolVersion(name)
		if err != nil {
			return "", err
		}
		flags += " -X sigs.k8s.io/cri-tools/pkg/version.Version=" + version
	}
	return flags, nil
}

// mainPackage is the package that the module's tool directive names, else the module itself.
func (t *Toolchain) mainPackage(ctx context.Context, module string) (string, error) {
	text, err := t.Run.In(module).With("GOWORK=off").Output(ctx, "go", "mod", "edit", "-print")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if pkg, ok := strings.CutPrefix(strings.TrimSpace(line), "tool "); ok {
			return pkg, nil
		}
	}
	return ".", nil
}

// moduleFiles shows only what a build reads, so that an editor's leftovers do not change the key.
type moduleFiles struct{ fs.FS }

func (m moduleFiles) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(m.FS, name)
	if err != nil {
		return nil, err
	}
	var kept []fs.DirEntry
	for _, entry := range entries {
		file := entry.Name()
		test := strings.HasSuffix(file, "_test.go")
		if entry.IsDir() || file == "go.mod" || file == "go.sum" || (strings.HasSuffix(file, ".go") && !test) {
			kept = append(kept, entry)
		}
	}
	return kept, nil
}
