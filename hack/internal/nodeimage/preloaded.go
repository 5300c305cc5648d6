package nodeimage

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/imagefile"
)

// imageNames are the images that kubeadm will ask for, by what runs in them.
type imageNames struct {
	control                     []string // kube-apiserver, kube-controller-manager, kube-scheduler
	proxy, etcd, coredns, pause string
}

// imageNames asks kubeadm itself, so that no version is written down twice.
func (b *Builder) imageNames(ctx context.Context, in *Inputs) (imageNames, error) {
	dir, err := os.MkdirTemp("", "shoal-kubeadm-")
	if err != nil {
		return imageNames{}, err
	}
	defer os.RemoveAll(dir)
	kubeadm := filepath.Join(dir, "kubeadm")
	if err := os.Symlink(in.binaries["kubernetes"], kubeadm); err != nil {
		return imageNames{}, err
	}
	text, err := b.Tools.Run.Output(ctx, kubeadm, "config", "images", "list", "--kubernetes-version", in.version)
	if err != nil {
		return imageNames{}, err
	}
	var names imageNames
	for line := range strings.Lines(text) {
		image := strings.TrimSpace(line)
		repository, _, _ := strings.Cut(image, ":")
		switch base := filepath.Base(repository); base {
		case "kube-apiserver", "kube-controller-manager", "kube-scheduler":
			names.control = append(names.control, image)
		case "kube-proxy":
			names.proxy = image
		case "etcd":
			names.etcd = image
		case "coredns":
			names.coredns = image
		case "pause":
			names.pause = image
		default:
			return imageNames{}, fmt.Errorf("kubeadm %s asks for image %s, which nothing here makes", in.version, image)
		}
	}
	if len(names.control) != 3 || names.proxy == "" || names.etcd == "" || names.coredns == "" || names.pause == "" {
		return imageNames{}, fmt.Errorf("kubeadm %s lists fewer images than a control plane has:\n%s", in.version, text)
	}
	return names, nil
}

// writePreloaded writes the archive that a node imports when it starts.
func (b *Builder) writePreloaded(in *Inputs, names imageNames, scratch, out string) error {
	kubernetes, err := layer(scratch, "kubernetes", func(w *imagefile.Writer) {
		w.CopyFile("usr/local/bin/kubernetes", in.binaries["kubernetes"], 0o755)
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubectl"} {
			w.Symlink("usr/local/bin/"+name, "kubernetes")
		}
	})
	if err != nil {
		return err
	}
	proxy, err := imagefile.OpenLayer(in.proxy)
	if err != nil {
		return err
	}
	// The packages below are unpacked and not configured: these are the links that configuring would have made.
	links, err := layer(scratch, "links", func(w *imagefile.Writer) {
		for _, family := range []string{"iptables", "ip6tables"} {
			for _, verb := range []string{"", "-save", "-restore"} {
				w.Symlink("usr/sbin/"+family+verb, "xtables-nft-multi")
			}
		}
	})
	if err != nil {
		return err
	}
	images := []imagefile.Image{{Tags: []string{names.proxy}, Layers: []*imagefile.Layer{kubernetes, proxy, links}}}
	for _, name := range names.control {
		images = append(images, imagefile.Image{Tags: []string{name}, Layers: []*imagefile.Layer{kubernetes}})
	}
	for _, single := range []struct{ name, binary, at, entrypoint string }{
		{names.etcd, "etcd", "usr/local/bin/etcd", ""},
		{names.coredns, "coredns", "coredns", "/coredns"},
		{names.pause, "pause", "pause", "/pause"},
	} {
		only, err := layer(scratch, single.binary, func(w *imagefile.Writer) {
			w.CopyFile(single.at, in.binaries[single.binary], 0o755)
		})
		if err != nil {
			return err
		}
		image := imagefile.Image{Tags: []string{single.name}, Layers: []*imagefile.Layer{only}}
		if single.entrypoint != "" {
			image.Entrypoint = []string{single.entrypoint}
		}
		images = append(images, image)
	}
	return imagefile.WriteArchive(out, images...)
}
