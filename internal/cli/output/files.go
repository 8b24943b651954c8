package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File describes one file.
type File struct {
	Path string `json:"path"`
	// Machine that the configuration belongs to.
	Machine string `json:"machine,omitempty"`
	// Source is node for the live configuration of the node, rendered for one that was rendered from the spec.
	Source string `json:"source,omitempty"`

	Content []byte
	Warning string
}

// Modes of files and directories with secrets.
const (
	privateFile   = 0o600
	PrivateFolder = 0o700
)

// WriteFiles writes files with secrets below a directory. Without force, no existing file is changed, and nothing is
// written if one of the files exists.
func WriteFiles(dir string, files []File, force bool) error {
	if !force {
		for _, f := range files {
			path := filepath.Join(dir, f.Path)

			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s exists: choose another folder with --dir, or overwrite with --force", path)
			}
		}
	}

	for _, f := range files {
		if err := makeFolders(dir, filepath.Dir(f.Path)); err != nil {
			return err
		}

		if err := writePrivate(filepath.Join(dir, f.Path), f.Content); err != nil {
			return err
		}
	}

	return nil
}

// makeFolders creates the directory and missing directories below it. An existing directory keeps its mode: it may
// contain other files, and the written files are private by themselves.
func makeFolders(dir, below string) error {
	for _, path := range []string{dir, filepath.Join(dir, below)} {
		if err := os.MkdirAll(path, PrivateFolder); err != nil {
			return fmt.Errorf("making folder %s: %w", path, err)
		}
	}

	return nil
}

// writePrivate replaces a file atomically: a reader sees the old or the new one, and a symbolic link is not followed.
func writePrivate(path string, content []byte) (err error) {
	// Created with mode 0600.
	temp, err := os.CreateTemp(filepath.Dir(path), ".export-*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name())
		}
	}()

	_, werr := temp.Write(content)
	if err := errors.Join(werr, temp.Chmod(privateFile), temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	if err := os.Rename(temp.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}

	return nil
}

// WriteStream writes a private file of any size: to a temporary file, which is renamed once it is complete. On failure,
// nothing remains.
func WriteStream(path string, write func(io.Writer) error) (size int64, err error) {
	// Created with mode 0600.
	temp, err := os.CreateTemp(filepath.Dir(path), ".download-*")
	if err != nil {
		return 0, fmt.Errorf("writing %s: %w", path, err)
	}

	defer func() {
		if err != nil {
			_ = temp.Close()
			_ = os.Remove(temp.Name())
		}
	}()

	if err := write(temp); err != nil {
		return 0, err
	}

	info, serr := temp.Stat()
	if err := errors.Join(serr, temp.Sync(), temp.Close()); err != nil {
		return 0, fmt.Errorf("writing %s: %w", path, err)
	}

	if err := os.Rename(temp.Name(), path); err != nil {
		return 0, fmt.Errorf("writing %s: %w", path, err)
	}

	return info.Size(), nil
}
