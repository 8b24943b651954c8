package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// nonroot is the user and the group of the program.
const nonroot = "65532"

// Where the files of the base are.
const (
	certificatesPath = "etc/ssl/certs/ca-certificates.crt"
	licensesPath     = "usr/share/licenses/talos-operator"
)

// newBase is an image for each platform with nothing but what the operator needs beside its program: CA certificates,
// a user, a folder for temporary files, the licences. There is no shell and no package manager.
func newBase(platforms []string, licenses string) (v1.ImageIndex, error) {
	files, err := archive(licenses)
	if err != nil {
		return nil, err
	}

	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	}, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, fmt.Errorf("making the layer of the base: %w", err)
	}

	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)

	for _, p := range platforms {
		platform, err := v1.ParsePlatform(p)
		if err != nil {
			return nil, fmt.Errorf("reading the platform %q: %w", p, err)
		}

		image, err := baseImage(*platform, layer)
		if err != nil {
			return nil, fmt.Errorf("making the base for %s: %w", p, err)
		}

		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: platform},
		})
	}

	return index, nil
}

func baseImage(platform v1.Platform, layer v1.Layer) (v1.Image, error) {
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)

	image, err := mutate.ConfigFile(image, &v1.ConfigFile{
		OS: platform.OS, Architecture: platform.Architecture, Variant: platform.Variant,
		Config: v1.Config{User: nonroot + ":" + nonroot, WorkingDir: "/"},
		RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}

	return mutate.Append(image, mutate.Addendum{
		Layer: layer, MediaType: types.OCILayer,
		History: v1.History{CreatedBy: "hack/image", Comment: "CA certificates, user, licences"},
	})
}

// archive is the file system of the base. Every date in it is 1970: a file has none that all machines agree on.
func archive(licenses string) ([]byte, error) {
	var out bytes.Buffer

	w := &writer{Writer: tar.NewWriter(&out)}
	w.directory("tmp", 0o1777)
	w.directory("etc", 0o755)
	w.file("etc/passwd", []byte("root:x:0:0:root:/:/sbin/nologin\n"+
		"nonroot:x:"+nonroot+":"+nonroot+":nonroot:/:/sbin/nologin\n"))
	w.file("etc/group", []byte("root:x:0:\nnonroot:x:"+nonroot+":\n"))
	w.directory("etc/ssl", 0o755)
	w.directory("etc/ssl/certs", 0o755)
	w.file(certificatesPath, certificates())

	if licenses != "" {
		w.directory("usr", 0o755)
		w.directory("usr/share", 0o755)
		w.directory("usr/share/licenses", 0o755)
		w.tree(os.DirFS(licenses), licensesPath)
	}

	if err := errors.Join(w.failed, w.Close()); err != nil {
		return nil, fmt.Errorf("making the files of the base: %w", err)
	}

	return out.Bytes(), nil
}

// certificates are the roots of Mozilla, from a module that go.sum pins: those of the machine that builds would make
// another image on each. Roots under a constraint are left out, because a PEM file cannot carry it.
func certificates() []byte {
	var out bytes.Buffer

	for root := range bundle.Roots() {
		if root.Constraint == nil {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}

	return out.Bytes()
}

// writer remembers the first failure.
type writer struct {
	*tar.Writer

	failed error
}

func (w *writer) directory(name string, mode int64) {
	w.add(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (w *writer) file(name string, data []byte) {
	w.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}, data)
}

func (w *writer) add(h *tar.Header, data []byte) {
	if w.failed != nil {
		return
	}

	if w.failed = w.WriteHeader(h); w.failed == nil {
		_, w.failed = w.Write(data)
	}
}

// tree adds a directory, in the order of its names.
func (w *writer) tree(files fs.FS, into string) {
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}

		target := strings.TrimSuffix(path.Join(into, name), "/.")
		if entry.IsDir() {
			w.directory(target, 0o755)

			return nil
		}

		data, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}

		w.file(target, data)

		return nil
	})

	w.failed = errors.Join(w.failed, err)
}
