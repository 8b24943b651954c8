// Package filetree is the file tree of an emulated machine, as its API shows it.
package filetree

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// File is one entry of a tree.
type File struct {
	Path string
	Mode fs.FileMode
	Size int64
	At   time.Time

	data []byte
	real string // where the content is instead
}

// Content returns the content of a file.
func (f File) Content() ([]byte, error) {
	if f.real != "" {
		return os.ReadFile(f.real)
	}

	return f.data, nil
}

// Tree has the files of a machine by their paths.
type Tree struct {
	at    time.Time
	files map[string]File
}

// New returns a tree whose files are from the same time.
func New(at time.Time) *Tree { return &Tree{at: at, files: map[string]File{}} }

// Add adds a file, and the directories that it is in.
func (t *Tree) Add(p, content string) {
	t.put(File{Path: p, Mode: 0o644, data: []byte(content), Size: int64(len(content)), At: t.at})
}

func (t *Tree) put(f File) {
	t.files[f.Path] = f

	for dir := path.Dir(f.Path); ; dir = path.Dir(dir) {
		if _, ok := t.files[dir]; !ok {
			t.files[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755, At: t.at}
		}

		if dir == "/" {
			return
		}
	}
}

// Mount shows a real directory at a path.
func (t *Tree) Mount(root, dir string) {
	t.put(File{Path: root, Mode: fs.ModeDir | 0o700, At: t.at})

	_ = filepath.WalkDir(dir, func(p string, entry fs.DirEntry, err error) error { // what is gone is gone
		if err != nil {
			return nil // etcd renames its files while we look
		}

		rel, _ := filepath.Rel(dir, p) // p is below dir

		info, err := entry.Info()
		if err != nil || rel == "." {
			return nil // see above
		}

		t.put(File{
			Path: path.Join(root, filepath.ToSlash(rel)), Mode: info.Mode(), Size: info.Size(), At: info.ModTime(), real: p,
		})

		return nil
	})
}

// Get returns a file.
func (t *Tree) Get(p string) (File, bool) {
	f, ok := t.files[p]

	return f, ok
}

// Walk returns the files below a root by path, down to a depth; negative is without end.
func (t *Tree) Walk(root string, depth int) ([]File, error) {
	top, ok := t.files[root]
	if !ok {
		return nil, fmt.Errorf("lstat %s: no such file or directory", root)
	}

	list := []File{top}

	for p, f := range t.files {
		rel, ok := strings.CutPrefix(p, strings.TrimSuffix(root, "/")+"/")
		if !ok || rel == "" {
			continue
		}

		if depth < 0 || strings.Count(rel, "/") < depth {
			list = append(list, f)
		}
	}

	slices.SortFunc(list, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })

	return list, nil
}

// Packed is a file of an archive.
type Packed struct {
	Name string
	Data []byte
}

// Pack packs files as Copy does.
func Pack(files ...Packed) ([]byte, error) {
	var buf bytes.Buffer

	zw := gzip.NewWriter(&buf)
	tw := tar.NewWriter(zw)

	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Size: int64(len(f.Data)), ModTime: time.Now(), Mode: 0o600,
		}
		if err := tw.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}

		if _, err := tw.Write(f.Data); err != nil {
			return nil, fmt.Errorf("packing %s: %w", f.Name, err)
		}
	}

	if err := errors.Join(tw.Close(), zw.Close()); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}

	return buf.Bytes(), nil
}
