// Package debian makes root filesystems from Debian packages, as tar files that can be an image's first layer.
package debian

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/shoal-dev/shoal/hack/internal/cache"
	"github.com/shoal-dev/shoal/hack/internal/command"
	"github.com/shoal-dev/shoal/hack/internal/progress"
)

// Root describes a root filesystem. Its tar is cached by this description: Debian's point releases reach it only when
// the description changes or the cache is cleaned.
type Root struct {
	// Name is what the cache file and progress lines call it.
	Name string
	// Suite is Debian's code name.
	Suite string
	// Variant is mmdebstrap's: minbase, essential, extract ...
	Variant string
	// Include lists the packages asked for by name.
	Include []string
	// Exclude lists dpkg path globs that are not unpacked.
	Exclude []string
	// Remove lists what is removed once everything is configured: shell globs relative to the root.
	Remove []string
	// Expect says how long it takes.
	Expect string
}

// Builder makes root filesystems.
type Builder struct {
	Hack  string
	Cache cache.Dir
	Log   *progress.Log
	Run   command.Runner
}

// Tar returns the path of the root filesystem's tar, made by mmdebstrap unless cached. SHOAL_DEBIAN_MIRROR replaces
// Debian's own address.
func (b *Builder) Tar(ctx context.Context, root Root) (string, error) {
	mirror := os.Getenv("SHOAL_DEBIAN_MIRROR")
	var key cache.Key
	key.String("root", fmt.Sprintf("%q %q %q %q %q %q", root.Suite, root.Variant, root.Include, root.Exclude, root.Remove, mirror))
	out := b.Cache.Path("debian", root.Name+"-"+key.Sum()+".tar")
	if cache.Exists(out) {
		return out, nil
	}
	if err := b.Run.Run(ctx, filepath.Join(b.Hack, "packages"), "mmdebstrap", "debian-archive-keyring"); err != nil {
		return "", err
	}
	title := fmt.Sprintf("Unpacking Debian %s for the %s image", root.Suite, root.Name)
	return out, b.Log.Step(title, root.Expect, func() error {
		return cache.Make(out, func(tmp string) error { return b.bootstrap(ctx, root, mirror, tmp) })
	})
}

func (b *Builder) bootstrap(ctx context.Context, root Root, mirror, out string) error {
	// mmdebstrap unpacks below TMPDIR; a directory of ours means that what an interrupted run leaves is found again.
	work := b.Cache.Path("debian", "work-"+root.Name)
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	args := []string{"--variant=" + root.Variant, "--format=tar", "--include=" + strings.Join(root.Include, ",")}
	for _, glob := range root.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+glob)
	}
	if len(root.Remove) > 0 {
		args = append(args, `--customize-hook=cd "$1" && rm -rf `+strings.Join(root.Remove, " "))
	}
	args = append(args, root.Suite, out)
	if mirror != "" {
		args = append(args, mirror)
	}
	return b.Run.With("TMPDIR="+work, "SOURCE_DATE_EPOCH=0").Run(ctx, "mmdebstrap", args...)
}

// PackageVersion reads the installed version of a package from a root filesystem's tar. A package that is not there is
// an error.
func PackageVersion(tarPath, name string) (string, error) {
	status, err := ReadFile(tarPath, "var/lib/dpkg/status")
	if err != nil {
		return "", err
	}
	for stanza := range strings.SplitSeq(string(status), "\n\n") {
		if !strings.HasPrefix(stanza, "Package: "+name+"\n") {
			continue
		}
		for line := range strings.Lines(stanza) {
			if version, ok := strings.CutPrefix(line, "Version: "); ok {
				return strings.TrimSpace(version), nil
			}
		}
	}
	return "", fmt.Errorf("%s: package %s is not installed", filepath.Base(tarPath), name)
}

// ReadFile returns one file of a tar.
func ReadFile(tarPath, name string) ([]byte, error) {
	f, err := os.Open(tarPath)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s has no file %s", filepath.Base(tarPath), name)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", tarPath, err)
		}
		if strings.TrimPrefix(header.Name, "./") == name && header.Typeflag == tar.TypeReg {
			return io.ReadAll(r)
		}
	}
}

var upstream = regexp.MustCompile(`^(?:\d+:)?(\d+)\.(\d+)`)

// AtLeast reports whether a package version's first two numbers are at least major.minor. A version it cannot read is
// an error, never a pass.
func AtLeast(version string, major, minor int) (bool, error) {
	found := upstream.FindStringSubmatch(version)
	if found == nil {
		return false, fmt.Errorf("cannot read version %q", version)
	}
	gotMajor, err1 := strconv.Atoi(found[1])
	gotMinor, err2 := strconv.Atoi(found[2])
	if err := errors.Join(err1, err2); err != nil {
		return false, fmt.Errorf("cannot read version %q: %w", version, err)
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor, nil
}
