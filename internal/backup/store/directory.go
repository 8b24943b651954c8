package store

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/talos-operator/talos-operator/internal/failure"
)

// partSuffix marks files that are being written; they are no objects.
const partSuffix = ".talos-operator-part"

// Directory stores objects as files below a directory, such as a mounted volume. No key can leave it, not even through
// symbolic links.
type Directory struct{ path string }

var _ Store = (*Directory)(nil)

// NewDirectory uses an existing directory.
func NewDirectory(path string) (*Directory, error) {
	if path == "" || path[0] != '/' {
		return nil, failure.Terminal(ReasonInvalid, "the backup directory must be an absolute path", nil)
	}

	return &Directory{path: path}, nil
}

// Location implements Store.
func (d *Directory) Location() string { return "file://" + d.path }

// Close implements Store.
func (d *Directory) Close() {}

// Check implements Store.
func (d *Directory) Check(ctx context.Context, need int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.path, &s); err != nil {
		return d.classify("checking the free space", "", err)
	}

	if free := int64(s.Bavail) * s.Bsize; need > 0 && free < need { // types differ by platform
		return failure.Transient(ReasonFull, d.Location()+" has not enough free space for the backup",
			fmt.Errorf("%d bytes free, %d needed", free, need))
	}

	return checkProbe(ctx, d)
}

// Put implements Store.
func (d *Directory) Put(ctx context.Context, key string, write func(io.Writer) error) (Object, error) {
	return d.put(ctx, key, key == probeKey, write)
}

// Replace implements Store.
func (d *Directory) Replace(ctx context.Context, key string, content []byte) error {
	_, err := d.put(ctx, key, true, func(w io.Writer) error {
		_, err := w.Write(content)

		return err
	})

	return err
}

// put writes a temporary file, flushes it and renames it.
func (d *Directory) put(
	ctx context.Context, key string, replace bool, write func(io.Writer) error,
) (Object, error) {
	if err := ValidKey(key); err != nil {
		return Object{}, err
	}

	root, err := d.open()
	if err != nil {
		return Object{}, err
	}
	defer root.Close()

	if err := root.MkdirAll(path.Dir(key), 0o700); err != nil {
		return Object{}, d.classify("creating the folder", key, err)
	}

	part := path.Join(path.Dir(key), "."+path.Base(key)+"."+rand.Text()[:8]+partSuffix)

	size, err := d.writePart(ctx, root, part, write)
	if err == nil {
		err = d.publish(ctx, root, part, key, replace)
	}

	if err != nil {
		// The temporary file is the operator's own, and the error above is the one to report even if removing it fails.
		_ = root.Remove(part)

		return Object{}, err
	}

	info, err := root.Stat(key)
	if err != nil || info.Size() != size {
		return Object{}, lost(key, d.Location(), err)
	}

	return Object{Key: key, Size: size, Modified: info.ModTime()}, nil
}

// writePart writes the temporary file and flushes it to the disk.
func (d *Directory) writePart(
	ctx context.Context, root *os.Root, part string, write func(io.Writer) error,
) (int64, error) {
	f, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, d.classify("creating a file for", part, err)
	}
	defer f.Close() // closed below when it matters

	w := &fileWriter{done: ctx.Done(), cause: ctx.Err, file: f}
	if err := write(w); err != nil {
		if w.err != nil {
			return 0, d.classify("writing", part, w.err)
		}

		return 0, err
	}

	if err := f.Sync(); err != nil {
		return 0, d.classify("flushing", part, err)
	}

	if err := f.Close(); err != nil {
		return 0, d.classify("closing", part, err)
	}

	return w.size, nil
}

// publish renames the finished file to its key.
func (d *Directory) publish(ctx context.Context, root *os.Root, part, key string, replace bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}

	if _, err := root.Lstat(key); err == nil && !replace {
		return failure.Terminal(ReasonObjectExists, fmt.Sprintf("%s has an object %s already", d.Location(), key), nil)
	}

	if err := root.Rename(part, key); err != nil {
		return d.classify("naming", key, err)
	}

	// The name is durable only once every directory above it is flushed.
	for dir := path.Dir(key); ; dir = path.Dir(dir) {
		if err := syncDir(root, dir); err != nil {
			// It is unknown whether the name is durable. Since the caller gets an error, a new file is removed. A replaced file
			// is either the old or the new one.
			if !replace {
				_ = root.Remove(key)
			}

			return d.classify("flushing the folder of", key, err)
		}

		if dir == "." {
			return nil
		}
	}
}

func syncDir(root *os.Root, dir string) error {
	f, err := root.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()

	// Some network file systems do not support this, and do not need it.
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}

	return nil
}

// fileWriter stops at the end of the context and records its own error.
type fileWriter struct {
	done  <-chan struct{}
	cause func() error
	file  io.Writer
	size  int64
	err   error
}

// Write implements io.Writer.
func (w *fileWriter) Write(p []byte) (int, error) {
	select {
	case <-w.done:
		return 0, w.cause()
	default:
	}

	n, err := w.file.Write(p)
	w.size += int64(n)
	w.err = err

	return n, err
}

// Get implements Store.
func (d *Directory) Get(_ context.Context, key string) (io.ReadCloser, Object, error) {
	root, err := d.open()
	if err != nil {
		return nil, Object{}, err
	}
	defer root.Close()

	if err := validReadKey(key); err != nil {
		return nil, Object{}, err
	}

	// Without O_NONBLOCK, a named pipe would block forever.
	f, err := root.OpenFile(key, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, Object{}, d.classify("reading", key, err)
	}

	o, err := d.describe(key, f.Stat)
	if err != nil {
		_ = f.Close()

		return nil, Object{}, err
	}

	return f, o, nil
}

// Stat implements Store.
func (d *Directory) Stat(_ context.Context, key string) (Object, error) {
	root, err := d.open()
	if err != nil {
		return Object{}, err
	}
	defer root.Close()

	if err := validReadKey(key); err != nil {
		return Object{}, err
	}

	return d.describe(key, func() (fs.FileInfo, error) { return root.Stat(key) })
}

func (d *Directory) describe(key string, stat func() (fs.FileInfo, error)) (Object, error) {
	info, err := stat()
	if err != nil {
		return Object{}, d.classify("looking at", key, err)
	}

	if !info.Mode().IsRegular() {
		return Object{}, notFound(key, d.Location())
	}

	return Object{Key: key, Size: info.Size(), Modified: info.ModTime()}, nil
}

// List implements Store.
func (d *Directory) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		root, err := d.open()
		if err != nil {
			yield(Object{}, err)

			return
		}
		defer root.Close()

		// The directories of the prefix need not exist: then there are no objects.
		err = d.walk(ctx, root.FS(), ".", prefix, func(o Object) bool { return yield(o, nil) })
		if err != nil && !errors.Is(err, fs.SkipAll) {
			yield(Object{}, d.classify("listing", prefix, err))
		}
	}
}

// walk visits files in the order of their keys. A directory sorts as its name with a slash, which fs.WalkDir does not
// do.
func (d *Directory) walk(ctx context.Context, fsys fs.FS, dir, prefix string, visit func(Object) bool) error {
	entries, err := fs.ReadDir(fsys, dir)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		return nil
	}

	if err != nil {
		return err
	}

	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(sortName(a), sortName(b)) })

	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return err
		}

		key := path.Join(dir, e.Name())
		if !strings.HasPrefix(key, prefix) && (!e.IsDir() || !strings.HasPrefix(prefix, key+"/")) {
			continue
		}

		if e.IsDir() {
			err = d.walk(ctx, fsys, key, prefix, visit)
		} else {
			err = visitFile(e, key, visit)
		}

		if err != nil {
			return err
		}
	}

	return nil
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}

	return e.Name()
}

func visitFile(e fs.DirEntry, key string, visit func(Object) bool) error {
	if !e.Type().IsRegular() || strings.HasSuffix(key, partSuffix) {
		return nil
	}

	info, err := e.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // deleted in between
	}

	if err != nil {
		return err
	}

	if !visit(Object{Key: key, Size: info.Size(), Modified: info.ModTime()}) {
		return fs.SkipAll
	}

	return nil
}

// Delete implements Store.
func (d *Directory) Delete(_ context.Context, key string) error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer root.Close() // what matters is flushed

	if err := ValidKey(key); err != nil {
		return err
	}

	info, err := root.Lstat(key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err == nil && info.IsDir() {
		return notFound(key, d.Location())
	}

	if err := root.Remove(key); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return d.classify("deleting", key, err)
	}

	if err := syncDir(root, path.Dir(key)); err != nil {
		return d.classify("flushing the folder of", key, err)
	}

	return nil
}

// Sweep implements Store.
func (d *Directory) Sweep(ctx context.Context, prefix string, before time.Time) (int, error) {
	root, err := d.open()
	if err != nil {
		return 0, err
	}
	defer root.Close()

	swept := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}

		// The prefix applies to the final name of the file.
		folder, base := path.Split(name)
		if !e.Type().IsRegular() || !strings.HasSuffix(name, partSuffix) ||
			!strings.HasPrefix(folder+strings.TrimPrefix(base, "."), prefix) {
			return nil
		}

		info, err := e.Info()
		if err != nil || !info.ModTime().Before(before) {
			return ignoreNotExist(err)
		}

		swept++

		return ignoreNotExist(root.Remove(name))
	})
	if err != nil {
		return swept, d.classify("sweeping", prefix, err)
	}

	return swept, nil
}

func ignoreNotExist(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	return err
}

// open opens the directory for one call, so that a remounted volume is noticed.
func (d *Directory) open() (*os.Root, error) {
	root, err := os.OpenRoot(d.path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, failure.Terminal(ReasonNotFound, d.Location()+" does not exist", err)
	}

	if err != nil {
		return nil, d.classify("opening the directory", "", err)
	}

	return root, nil
}

// classify assigns a class to an error of the file system.
func (d *Directory) classify(doing, key string, err error) error {
	what := strings.TrimSpace(doing + " " + key)
	err = fmt.Errorf("%s in %s: %w", what, d.Location(), err)

	switch {
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, fs.ErrNotExist) && key == "":
		return failure.Terminal(ReasonNotFound, d.Location()+" does not exist", err)
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return failure.Terminal(ReasonObjectNotFound, fmt.Sprintf("%s has no object %s", d.Location(), key),
			errors.Join(ErrNotFound, err))
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		return failure.Transient(ReasonFull, d.Location()+" is full", err)
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return failure.Auth(ReasonForbidden, fmt.Sprintf("%s cannot be read or written with the operator's permissions",
			d.Location()), err)
	}

	return failure.Transient(ReasonUnavailable, fmt.Sprintf("%s fails while %s", d.Location(), what), err)
}
