package authhelper

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/shoal-dev/shoal/proto/credential"
)

// checkInterval is how often a busy proxy looks whether its keys have changed.
const checkInterval = time.Second

// maxFiles bounds what is read from a key directory.
const maxFiles = 64

// KeyDir is a directory of key files (*.json) that is updated while it is read, by kubelet's symlink swap or by
// writing a file and renaming it. It is not safe for concurrent use.
type KeyDir struct {
	path    string
	log     io.Writer
	keys    credential.KeySet
	deny    credential.DenyList
	seen    string // fingerprint of the last state looked at, good or bad
	checked time.Time
}

// OpenKeyDir reads the directory for the first time; unlike later, what is wrong with it now is an error. What happens
// later is written to log, one line per change.
func OpenKeyDir(path string, log io.Writer, now time.Time) (*KeyDir, error) {
	d := &KeyDir{path: path, log: log, checked: now}
	seen, err := d.fingerprint()
	if err != nil {
		return nil, fmt.Errorf("key directory: %w; mount the directory of key files there or name another one", err)
	}
	if err := d.load(); err != nil {
		return nil, err
	}
	d.seen = seen
	return d, nil
}

// Current returns the keys to check with, after looking for a change if the last look is old enough.
func (d *KeyDir) Current(now time.Time) (credential.KeySet, credential.DenyList) {
	// A clock that stepped back must not stop the looking.
	if age := now.Sub(d.checked); age < 0 || age >= checkInterval {
		d.checked = now
		d.refresh()
	}
	return d.keys, d.deny
}

func (d *KeyDir) refresh() {
	// The fingerprint is taken before the files are read: what changes in between differs at the next look.
	seen, err := d.fingerprint()
	if err != nil {
		seen = "unreadable"
	}
	if seen == d.seen {
		return
	}
	d.seen = seen
	if err == nil {
		err = d.load()
	}
	if err != nil {
		fmt.Fprintf(d.log, "shoal-auth: the changed keys in %s cannot be used, the %d loaded before stay: %v\n", d.path, len(d.keys.Keys()), err)
		return
	}
	fmt.Fprintf(d.log, "shoal-auth: loaded %d keys from %s\n", len(d.keys.Keys()), d.path)
}

// load replaces keys and deny list, or leaves both alone.
func (d *KeyDir) load() error {
	names, err := d.names()
	if err != nil {
		return err
	}
	files := make([]credential.File, 0, len(names))
	for _, name := range names {
		data, err := readBounded(filepath.Join(d.path, name))
		if err != nil {
			return err
		}
		files = append(files, credential.File{Name: name, Data: data})
	}
	keys, deny, err := credential.Merge(files...)
	if err != nil {
		return err
	}
	d.keys, d.deny = keys, deny
	return nil
}

// names returns the key files' names in order. Dot names are kubelet's own machinery.
func (d *KeyDir) names() ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !strings.HasPrefix(name, ".") && strings.HasSuffix(name, ".json") {
			names = append(names, name)
		}
	}
	if len(names) > maxFiles {
		return nil, fmt.Errorf("%d key files, more than %d", len(names), maxFiles)
	}
	return names, nil
}

// fingerprint changes whenever a file is added, removed, replaced or rewritten. It follows symlinks: kubelet swaps the
// directory that the names point into, so that the names themselves never change.
func (d *KeyDir) fingerprint() (string, error) {
	names, err := d.names()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	target, err := os.Readlink(filepath.Join(d.path, "..data"))
	if err == nil {
		b.WriteString(target)
	}
	for _, name := range names {
		info, err := os.Stat(filepath.Join(d.path, name))
		if errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(&b, "\n%s gone", name)
			continue
		}
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "\n%s %d %d", name, info.Size(), info.ModTime().UnixNano())
	}
	return b.String(), nil
}

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, credential.MaxKeySetBytes+1))
	if err != nil {
		return nil, err
	}
	return data, nil
}
