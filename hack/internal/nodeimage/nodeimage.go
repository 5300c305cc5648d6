package nodeimage

import (
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/debian"
	"github.com/shoal-dev/shoal/hack/internal/imagefile"
	"github.com/shoal-dev/shoal/hack/internal/toolchain"
)

//go:embed all:rootfs
var rootfs embed.FS

// Builder makes node images.
type Builder struct {
	Tools  *toolchain.Toolchain
	Debian *debian.Builder
}

// Inputs are the cached parts of an image, and the tag that follows from them.
type Inputs struct {
	// Tag is the image's name; equal inputs give equal tags.
	Tag string

	version  string
	binaries map[string]string
	node     string
	proxy    string
}

// Version returns the pinned Kubernetes version, for example v1.35.4.
func (b *Builder) Version() (string, error) { return b.Tools.ToolVersion("kubernetes") }

// Prepare builds what the image is made from, where it is not cached: minutes the first time, then milliseconds.
func (b *Builder) Prepare(ctx context.Context) (*Inputs, error) {
	in := &Inputs{}
	var err error
	if in.version, err = b.Version(); err != nil {
		return nil, err
	}
	if in.node, err = b.Debian.Tar(ctx, nodeRoot); err != nil {
		return nil, err
	}
	if in.proxy, err = b.Debian.Tar(ctx, proxyRoot); err != nil {
		return nil, err
	}
	if in.binaries, err = b.Tools.BuildAll(ctx, "crictl", "etcd", "coredns", "kubernetes"); err != nil {
		return nil, err
	}
	pause, err := b.pause(ctx)
	if err != nil {
		return nil, err
	}
	in.binaries["pause"] = pause

	var key cache.Key
	key.String("layout", layout)
	// Names of cached files end with keys of their own; where the cache lies is no part of an image.
	key.String("node", filepath.Base(in.node))
	key.String("proxy", filepath.Base(in.proxy))
	for _, name := range []string{"crictl", "etcd", "coredns", "kubernetes", "pause"} {
		key.String(name, filepath.Base(in.binaries[name]))
	}
	if err := key.Tree(rootfs); err != nil {
		return nil, err
	}
	in.Tag = fmt.Sprintf("shoal.dev/kind-node:%s-%s", in.version, key.Sum())
	return in, nil
}

// layout changes when this file writes the same inputs differently.
const layout = "1"

// pause builds the program of a pod's sandbox from hack/tools/kubernetes/pause.
func (b *Builder) pause(ctx context.Context) (string, error) {
	source := filepath.Join(b.Tools.Hack, "tools", "kubernetes", "pause")
	goVersion, err := b.Tools.Run.Output(ctx, "go", "version")
	if err != nil {
		return "", err
	}
	var key cache.Key
	key.String("go", goVersion)
	if err := key.Tree(os.DirFS(source)); err != nil {
		return "", err
	}
	out := b.Tools.Cache.Path("bin", "pause-"+key.Sum())
	return out, cache.Make(out, func(tmp string) error {
		return b.Tools.Run.In(source).With("GOWORK=off", "CGO_ENABLED=0", "GOFLAGS=-mod=readonly").Run(ctx,
			"go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", tmp, ".")
	})
}

// Write writes the image as an archive into w. Scratch is an empty directory for its layers.
func (b *Builder) Write(ctx context.Context, in *Inputs, scratch string, w io.Writer) error {
	names, err := b.imageNames(ctx, in)
	if err != nil {
		return err
	}
	preloaded := filepath.Join(scratch, "preloaded.tar")
	if err := b.writePreloaded(in, names, scratch, preloaded); err != nil {
		return err
	}
	base, err := imagefile.OpenLayer(in.node)
	if err != nil {
		return err
	}
	programs, err := layer(scratch, "programs", func(w *imagefile.Writer) {
		w.CopyFile("usr/bin/kubernetes", in.binaries["kubernetes"], 0o755)
		for _, name := range []string{"kubeadm", "kubelet", "kubectl", "shoal-node"} {
			w.Symlink("usr/bin/"+name, "kubernetes")
		}
		w.CopyFile("usr/local/bin/crictl", in.binaries["crictl"], 0o755)
	})
	if err != nil {
		return err
	}
	images, err := layer(scratch, "images", func(w *imagefile.Writer) {
		w.CopyFile("kind/images.tar", preloaded, 0o644)
	})
	if err != nil {
		return err
	}
	files, err := layer(scratch, "files", func(w *imagefile.Writer) { writeFiles(w, in, names) })
	if err != nil {
		return err
	}
	return imagefile.Write(w, imagefile.Image{
		Tags:       []string{in.Tag},
		Layers:     []*imagefile.Layer{base, programs, images, files},
		Entrypoint: []string{"/usr/local/bin/entrypoint", "/sbin/init"},
		Env:        []string{"container=docker"},
		StopSignal: "SIGRTMIN+3", // systemd's word for an orderly halt
	})
}

func layer(scratch, name string, write func(*imagefile.Writer)) (*imagefile.Layer, error) {
	w, err := imagefile.CreateLayer(filepath.Join(scratch, name+".tar"))
	if err != nil {
		return nil, err
	}
	write(w)
	return w.Close()
}

// writeFiles adds rootfs and what turns a Debian system into a node.
func writeFiles(w *imagefile.Writer, in *Inputs, names imageNames) {
	tree, err := fs.Sub(rootfs, "rootfs")
	if err != nil {
		panic(err) // the directory is embedded under this name
	}
	w.Tree(substituted{tree, strings.NewReplacer("@PAUSE@", names.pause)}, func(name string) bool {
		return path.Dir(name) == "usr/local/bin"
	})
	w.File("kind/version", []byte(in.version+"\n"), 0o644)
	w.Symlink("opt/cni/bin", "/usr/lib/cni")
	w.Dir("etc/kubernetes/manifests", 0o755)

	// What Debian starts by default and a node container must not. Removing the links is not enough where other units
	// ask for them, hence the masks.
	for _, dir := range []string{
		"usr/lib/systemd/system/multi-user.target.wants",
		"usr/lib/systemd/system/local-fs.target.wants",
		"etc/systemd/system/multi-user.target.wants",
		"etc/systemd/system/timers.target.wants",
		"etc/systemd/system/getty.target.wants",
	} {
		w.Empty(dir)
	}
	for _, unit := range []string{
		"systemd-binfmt.service", "proc-sys-fs-binfmt_misc.automount", // the host's kernel, not ours
		"systemd-udevd.service", "systemd-udevd-control.socket", "systemd-udevd-kernel.socket", "systemd-udev-trigger.service",
		"systemd-sysctl.service", "systemd-modules-load.service",
		"systemd-logind.service", "systemd-update-utmp.service", "systemd-initctl.socket", // nobody logs in
		"getty@tty1.service", "console-getty.service",
		"systemd-tmpfiles-setup.service", // would walk /var, a large volume, at each start
		"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-fs-fuse-connections.mount", "dev-hugepages.mount",
	} {
		w.Symlink("etc/systemd/system/"+unit, "/dev/null")
	}
	for _, unit := range []string{"containerd", "preloaded-images", "kubelet", "shoal-node"} {
		w.Symlink("etc/systemd/system/multi-user.target.wants/"+unit+".service", "/etc/systemd/system/"+unit+".service")
	}
	// The kernel's log is the host's; and the journal stays in memory, a node's life is short.
	w.File("etc/systemd/journald.conf.d/node.conf", []byte("[Journal]\nReadKMsg=no\nStorage=volatile\n"), 0o644)
}

// substituted replaces words in every file of a file system.
type substituted struct {
	fs.FS
	words *strings.Replacer
}

// ReadFile implements fs.ReadFileFS.
func (s substituted) ReadFile(name string) ([]byte, error) {
	content, err := fs.ReadFile(s.FS, name)
	return []byte(s.words.Replace(string(content))), err
}
