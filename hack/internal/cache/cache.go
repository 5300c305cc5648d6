// Package cache knows where built things are kept and makes them so that an interruption leaves none half-made.
package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Dir is the root of the cache, $XDG_CACHE_HOME/shoal.
type Dir string

// Default returns the cache of the calling user. It is not created.
func Default() (Dir, error) {
	base := os.Getenv("XDG_CACHE_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("no cache directory: set HOME or XDG_CACHE_HOME: %w", err)
		}
		base = filepath.Join(home, ".cache")
	}
	if !filepath.IsAbs(base) {
		return "", fmt.Errorf("XDG_CACHE_HOME is %q; it must be an absolute path", base)
	}
	return Dir(filepath.Join(base, "shoal")), nil
}

// Path joins elem to the root.
func (d Dir) Path(elem ...string) string {
	return filepath.Join(append([]string{string(d)}, elem...)...)
}

// Exists reports whether path is there, whatever it is.
func Exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// Make calls build with a temporary path beside path, a file or directory for build to create, and renames it to path
// when build succeeded. Where path exists already, build is not called. What earlier interrupted calls left is removed.
// Of several processes that want the same, one builds and the others wait for it.
func Make(path string, build func(tmp string) error) error {
	if Exists(path) {
		return nil
	}
	dir, base := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "."+base+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	// Closing it lets it go, and so does the end of the process.
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if Exists(path) {
		return nil
	}
	if err := removeAbandoned(dir, base); err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+base+".tmp-"+strconv.Itoa(os.Getpid()))
	defer os.RemoveAll(tmp)
	if err := build(tmp); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// removeAbandoned removes the temporaries of base whose process is gone.
func removeAbandoned(dir, base string) error {
	found, err := filepath.Glob(filepath.Join(dir, "."+base+".tmp-*"))
	if err != nil {
		return err
	}
	for _, path := range found {
		pid, err := strconv.Atoi(path[strings.LastIndexByte(path, '-')+1:])
		if err != nil || pid == os.Getpid() || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// WriteFile replaces path with content in one step: a reader sees the old content or the new.
func WriteFile(path string, content []byte, mode fs.FileMode) error {
	dir, base := filepath.Split(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(dir, "."+base+".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// Key hashes what a cached thing is made from; two keys are equal if and only if all parts are.
type Key struct{ parts []string }

// String adds a named value.
func (k *Key) String(name, value string) {
	k.parts = append(k.parts, fmt.Sprintf("%s=%q", name, value))
}

// File adds a file's content under its base name.
func (k *Key) File(path string) error {
	sum, err := FileSum(path)
	if err != nil {
		return err
	}
	k.String(filepath.Base(path), sum)
	return nil
}

// Tree adds the content, mode and relative name of every file under root.
func (k *Key) Tree(root fs.FS) error {
	return fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		k.String(path, fmt.Sprintf("%o %x", info.Mode().Perm(), sha256.Sum256(content)))
		return nil
	})
}

// Sum returns twelve hex digits.
func (k *Key) Sum() string {
	sum := sha256.Sum256([]byte(strings.Join(k.parts, "\n")))
	return hex.EncodeToString(sum[:6])
}

// FileSum returns the hex SHA-256 of a file.
func FileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
