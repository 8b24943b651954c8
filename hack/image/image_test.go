package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

const (
	version = "v0.7.1"
	commit  = "0123456789abcdef0123456789abcdef01234567"
	epoch   = "1764000000"
	created = "2025-11-24T16:00:00Z"
)

// built is an image as its users see it: pulled from a registry.
type built struct {
	*testing.T

	reference name.Reference
	index     v1.ImageIndex
	into      string
	digest    string
}

// TestSmallImage is about everything but the operator itself, whose compilation for two platforms takes minutes.
func TestSmallImage(t *testing.T) {
	program := "github.com/talos-operator/talos-operator/hack/image/testdata/small"
	first := makeImage(t, ".", program)
	first.check("small")

	// Another checkout, at another time, with other settings of Go: the same image.
	copied := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.CopyFS(copied, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}

	t.Setenv("GOAMD64", "v3")
	t.Setenv("GOFLAGS", "-buildvcs=true")

	if second := makeImage(t, copied, program); second.digest != first.digest {
		t.Errorf("the first image is %s, the second one %s", first.digest, second.digest)
	}
}

// makeImage builds an image for two platforms, pushes it to a registry of its own, and pulls it back.
func makeImage(t *testing.T, source, program string) *built {
	t.Helper()

	licenses := t.TempDir()
	if err := os.MkdirAll(filepath.Join(licenses, "example.com/module"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(licenses, "example.com/module/LICENSE"), []byte("may be used"), 0o600); err != nil {
		t.Fatal(err)
	}

	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)

	tag := strings.TrimPrefix(server.URL, "http://") + "/team/operator:" + version
	b := &built{T: t, into: t.TempDir()}

	var out bytes.Buffer

	err := run(t.Context(), []string{
		"-source", source, "-program", program, "-licenses", licenses, "-version", version, "-commit", commit, "-date", epoch,
		"-into", b.into, "-push", tag,
	}, &out)
	if err != nil {
		t.Fatal(err)
	}

	b.digest = strings.TrimSpace(out.String())

	if b.reference, err = name.ParseReference(tag); err != nil {
		t.Fatal(err)
	}

	if b.index, err = remote.Index(b.reference); err != nil {
		t.Fatal(err)
	}

	return b
}

func (b *built) check(program string) {
	b.Helper()
	b.checkDigest()

	manifest, err := b.index.IndexManifest()
	if err != nil {
		b.Fatal(err)
	}

	var platforms []string

	for _, entry := range manifest.Manifests {
		platforms = append(platforms, entry.Platform.String())

		image, err := b.index.Image(entry.Digest)
		if err != nil {
			b.Fatal(err)
		}

		b.checkConfig(image, program)
		b.checkFiles(image, entry.Platform.Architecture, program)
		b.checkSBOM(entry.Digest, program, entry.Platform)
	}

	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		b.Errorf("platforms (-want +got):\n%s", diff)
	}
}

// checkDigest: what was printed, written and pushed are one image.
func (b *built) checkDigest() {
	b.Helper()

	pulled, err := b.index.Digest()
	if err != nil {
		b.Fatal(err)
	}

	written, err := os.ReadFile(filepath.Join(b.into, digestFile))
	if err != nil {
		b.Fatal(err)
	}

	index, err := layout.ImageIndexFromPath(filepath.Join(b.into, layoutDirectory))
	if err != nil {
		b.Fatal(err)
	}

	manifest, err := index.IndexManifest()
	if err != nil {
		b.Fatal(err)
	}

	want := []string{b.digest, b.digest, b.digest}

	got := []string{pulled.String(), strings.TrimSpace(string(written))}
	for _, entry := range manifest.Manifests {
		got = append(got, entry.Digest.String())
	}

	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("digests (-want +got):\n%s", diff)
	}
}

func (b *built) checkConfig(image v1.Image, program string) {
	b.Helper()

	file, err := image.ConfigFile()
	if err != nil {
		b.Fatal(err)
	}

	if got, want := fmt.Sprint(file.Config.User, file.Config.Entrypoint, file.Config.Cmd), "65532:65532[/ko-app/"+program+"] []"; got != want {
		b.Errorf("user and entrypoint are %s, not %s", got, want)
	}

	// The Deployment names the program without its directory.
	if !slices.ContainsFunc(file.Config.Env, func(e string) bool {
		return strings.HasPrefix(e, "PATH=") && slices.Contains(strings.Split(e[len("PATH="):], ":"), "/ko-app")
	}) {
		b.Errorf("the directory of the program is not in PATH: %v", file.Config.Env)
	}

	if diff := cmp.Diff(map[string]string{
		"org.opencontainers.image.title":       "talos-operator",
		"org.opencontainers.image.description": "Kubernetes operator that runs Talos Linux Kubernetes clusters",
		"org.opencontainers.image.source":      repository, "org.opencontainers.image.version": version,
		"org.opencontainers.image.revision": commit, "org.opencontainers.image.created": created,
		"org.opencontainers.image.licenses": "Apache-2.0",
	}, file.Config.Labels); diff != "" {
		b.Errorf("labels (-want +got):\n%s", diff)
	}

	if got := file.Created.UTC().Format("2006-01-02T15:04:05Z"); got != created {
		b.Errorf("created %s", got)
	}
}

// checkFiles: the image has these files and no others, so no shell, and its program runs.
func (b *built) checkFiles(image v1.Image, architecture, program string) {
	b.Helper()

	flat := mutate.Extract(image)
	defer flat.Close()

	var names []string

	files := map[string][]byte{}

	for r := tar.NewReader(flat); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			b.Fatal(err)
		}

		if header.Typeflag == tar.TypeDir {
			if header.Name == "tmp/" && header.Mode != 0o1777 {
				b.Errorf("the mode of /tmp is %o", header.Mode)
			}

			continue
		}

		path := strings.TrimPrefix(header.Name, "/")
		names = append(names, path)

		if files[path], err = io.ReadAll(r); err != nil {
			b.Fatal(err)
		}
	}

	slices.Sort(names)

	want := []string{
		"etc/group", "etc/passwd", certificatesPath, "ko-app/" + program, licensesPath + "/example.com/module/LICENSE",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		b.Errorf("files (-want +got):\n%s", diff)
	}

	if !strings.Contains(string(files["etc/passwd"]), "\nnonroot:x:65532:65532:") {
		b.Errorf("there is no user 65532: %s", files["etc/passwd"])
	}

	b.checkCertificates(files[certificatesPath])

	if architecture == runtime.GOARCH {
		b.checkProgram(files["ko-app/"+program])
	}
}

// checkCertificates: a certificate authority that most of the web depends on is trusted.
func (b *built) checkCertificates(bundle []byte) {
	b.Helper()

	var subjects []string

	for block, rest := pem.Decode(bundle); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			b.Fatal(err)
		}

		subjects = append(subjects, certificate.Subject.CommonName)
	}

	if len(subjects) < 100 || !slices.Contains(subjects, "ISRG Root X1") {
		b.Errorf("%d CA certificates: %v", len(subjects), subjects)
	}
}

func (b *built) checkProgram(program []byte) {
	b.Helper()

	path := filepath.Join(b.TempDir(), "program")
	if err := os.WriteFile(path, program, 0o700); err != nil {
		b.Fatal(err)
	}

	cmd := exec.CommandContext(b.Context(), path, "version")
	cmd.Env = []string{}

	out, err := cmd.CombinedOutput()
	if err != nil {
		b.Errorf("%v: %s", err, out)
	}

	for _, part := range []string{version, commit, created} {
		if !strings.Contains(string(out), part) {
			b.Errorf("there is no %s in what it prints: %s", part, out)
		}
	}
}

// checkSBOM: the list of modules is where cosign looks for it, and beside the layout.
func (b *built) checkSBOM(image v1.Hash, program string, platform *v1.Platform) {
	b.Helper()

	tag := b.reference.Context().Tag(image.Algorithm + "-" + image.Hex + ".sbom")

	attached, err := remote.Image(tag)
	if err != nil {
		b.Fatal(err)
	}

	layers, err := attached.Layers()
	if err != nil || len(layers) != 1 {
		b.Fatalf("%d layers, %v", len(layers), err)
	}

	content, err := layers[0].Compressed()
	if err != nil {
		b.Fatal(err)
	}
	defer content.Close()

	pushed, err := io.ReadAll(content)
	if err != nil {
		b.Fatal(err)
	}

	file := fmt.Sprintf("%s-%s-%s.spdx.json", program, platform.OS, platform.Architecture)

	written, err := os.ReadFile(filepath.Join(b.into, sbomDirectory, file))
	if err != nil {
		b.Fatal(err)
	}

	if diff := cmp.Diff(string(written), string(pushed)); diff != "" {
		b.Errorf("the SBOM that is written and the one that is pushed (-written +pushed):\n%s", diff)
	}

	var sbom struct {
		Version  string `json:"spdxVersion"`
		Packages []struct{ Name string }
	}
	if err := json.Unmarshal(pushed, &sbom); err != nil {
		b.Fatal(err)
	}

	has := func(text string) bool {
		return slices.ContainsFunc(sbom.Packages, func(p struct{ Name string }) bool { return strings.Contains(p.Name, text) })
	}
	if !strings.HasPrefix(sbom.Version, "SPDX-") || !has(image.String()) || !has("github.com/talos-operator/talos-operator") {
		b.Errorf("%s", pushed)
	}

	if program == "talos-operator" && !has("sigs.k8s.io/controller-runtime") {
		b.Error("the SBOM names no dependency")
	}
}

// TestRefused: what cannot be built is said.
func TestRefused(t *testing.T) {
	for want, args := range map[string][]string{
		"set -into":            {},
		"reading the platform": {"-into", t.TempDir(), "-platforms", "a/b/c/d/e"},
		"building the image":   {"-into", t.TempDir(), "-program", "example.com/none"},
	} {
		if err := run(context.Background(), args, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, not %q", args, err, want)
		}
	}
}
