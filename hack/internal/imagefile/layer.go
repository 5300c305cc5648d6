package imagefile

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Layer is an uncompressed tar on disk. Compression would cost more time than it saves: these layers travel over a
// unix socket, not a network.
type Layer struct {
	path string
	hash v1.Hash
	size int64
}

var _ v1.Layer = (*Layer)(nil)

// OpenLayer reads the tar at path once, to hash it. The file must stay as it is while the layer is used.
func OpenLayer(path string) (*Layer, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	size, err := io.Copy(h, f)
	if err != nil {
		return nil, err
	}
	return &Layer{path: path, size: size, hash: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(h.Sum(nil))}}, nil
}

// Digest is the hash of the tar; without compression it equals DiffID.
func (l *Layer) Digest() (v1.Hash, error) { return l.hash, nil }

// DiffID is the hash of the tar.
func (l *Layer) DiffID() (v1.Hash, error) { return l.hash, nil }

// Compressed opens the tar, which is not compressed.
func (l *Layer) Compressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Uncompressed opens the tar.
func (l *Layer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }

// Size is the tar's length in bytes.
func (l *Layer) Size() (int64, error) { return l.size, nil }

// MediaType says that it is not compressed.
func (l *Layer) MediaType() (types.MediaType, error) { return types.DockerUncompressedLayer, nil }

// Writer writes a layer's tar. The same calls give the same bytes: owner root, time zero. The first error sticks and
// Close reports it.
type Writer struct {
	file *os.File
	tar  *tar.Writer
	dirs map[string]bool
	err  error
}

// CreateLayer starts a layer at path.
func CreateLayer(path string) (*Writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &Writer{file: f, tar: tar.NewWriter(f), dirs: map[string]bool{".": true}}, nil
}

var epoch = time.Unix(0, 0)

func (w *Writer) header(h *tar.Header) bool {
	if w.err != nil {
		return false
	}
	h.ModTime = epoch
	h.Format = tar.FormatPAX
	w.err = w.tar.WriteHeader(h)
	return w.err == nil
}

func (w *Writer) parents(name string) {
	if dir := path.Dir(name); !w.dirs[dir] {
		w.Dir(dir, 0o755)
	}
}

// Dir adds a directory and its missing parents.
func (w *Writer) Dir(name string, mode fs.FileMode) {
	if w.dirs[name] {
		return
	}
	w.parents(name)
	w.dirs[name] = true
	w.header(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: int64(mode.Perm()) | int64(mode&fs.ModeSticky)>>11})
}

// File adds a file with its missing parents.
func (w *Writer) File(name string, content []byte, mode fs.FileMode) {
	w.parents(name)
	if w.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: int64(mode.Perm())}) {
		_, w.err = io.Copy(w.tar, bytes.NewReader(content))
	}
}

// CopyFile adds a file of the disk.
func (w *Writer) CopyFile(name, from string, mode fs.FileMode) {
	if w.err != nil {
		return
	}
	f, err := os.Open(from)
	if err != nil {
		w.err = err
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		w.err = err
		return
	}
	w.parents(name)
	if w.header(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: int64(mode.Perm())}) {
		_, w.err = io.Copy(w.tar, f)
	}
}

// Symlink adds a symbolic link.
func (w *Writer) Symlink(name, target string) {
	w.parents(name)
	w.header(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target, Mode: 0o777})
}

// Remove hides a file of the layers below.
func (w *Writer) Remove(name string) {
	w.File(path.Join(path.Dir(name), ".wh."+path.Base(name)), nil, 0o644)
}

// Empty hides all that the layers below have in a directory, and keeps the directory.
func (w *Writer) Empty(dir string) {
	w.Dir(dir, 0o755)
	w.File(path.Join(dir, ".wh..wh..opq"), nil, 0o644)
}

// Tree adds every file of root, by its name in root. Files are executable where executable says so: an embedded file
// system keeps no modes.
func (w *Writer) Tree(root fs.FS, executable func(name string) bool) {
	if w.err != nil {
		return
	}
	w.err = errors.Join(w.err, fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if executable(name) {
			mode = 0o755
		}
		w.File(name, content, mode)
		return w.err
	}))
}

// Close finishes the layer and opens it for use.
func (w *Writer) Close() (*Layer, error) {
	err := errors.Join(w.err, w.tar.Close(), w.file.Close())
	if err != nil {
		return nil, err
	}
	return OpenLayer(w.file.Name())
}
