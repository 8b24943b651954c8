package spec_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
)

// talhelper is the path of talhelper 3.1.16. With it, what it writes for the fleets is recorded anew.
var talhelper = flag.String("talhelper", "", "path of talhelper, to record its machine configs")

const (
	recorded = "talhelper.tar.gz"
	// pinned is the version of Talos of fleets without one: each program has another default.
	pinned = "talosVersion: v1.13.9\n"
)

// difference is one from talhelper: the fields of a fleet that begin with a text, and what the row in docs/talhelper.md
// that says so contains.
type difference struct{ fleet, field, row string }

var onPurpose = []difference{
	{"anchors", `machine.nodeLabels["node.kubernetes.io/exclude-from-external-load-balancers"]`, "labels of a control plane"},
	{"bond-of-selectors", "LinkAliasConfig/bond0-m1: selector.match", "`physical: true`"},
	{"groups", "ResolverConfig: searchDomains.disableDefault", "a node cannot set to `false`"},
	{"hcloud-vip", "HCloudVIPConfig/10.0.0.10", "`vip.hcloud`"},
	{"hcloud-vip", "Layer2VIPConfig/10.0.0.10", "`vip.hcloud`"},
	{"inline-manifests", "cluster.inlineManifests", "`inlineManifests` are in the machine configs of workers"},
	{"ipv6-only", "cluster.network.podSubnets[0]", "networks of an IPv6 endpoint"},
	{"ipv6-only", "cluster.network.serviceSubnets[0]", "networks of an IPv6 endpoint"},
	{"talos-1.12-bonds", "DummyLinkConfig/dummy0", "`dummy`"},
	{"talos-1.12-bonds", "LinkConfig/dummy0", "`dummy`"},
}

// refusedThere are fleets for which talhelper ends with an error, with the row.
var refusedThere = map[string]string{
	"json-patches": "RFC 6902 patches fail", "json-patch-removes": "RFC 6902 patches fail",
}

// TestTalhelper compares the machine configs of each fleet with those that talhelper 3.1.16 has written for it: they are the
// same, apart from what docs/talhelper.md says.
func TestTalhelper(t *testing.T) {
	if *talhelper != "" {
		record(t)
	}

	page, err := os.ReadFile("../../../docs/talhelper.md")
	if err != nil {
		t.Fatal(err)
	}

	theirs, seen, compared := recordings(t), map[int]bool{}, 0

	for name, path := range fleets(t) {
		if row, ok := refusedThere[name]; ok && strings.Contains(string(page), row) {
			continue
		}

		for _, file := range rendered(t, path) {
			content := theirs[name+"/"+file.Name]

			changes, err := machineconfig.DiffWithSecrets(content, file.Content)
			if err != nil || len(content) == 0 {
				t.Errorf("%s: talhelper has written no %s: %v", name, file.Name, err)

				continue
			}

			compared++

			for _, change := range flat(changes.Changes) {
				at := reasonOf(name, change.Field())
				if seen[at] = true; at < 0 {
					t.Errorf("%s, %s: %s is %q, and %q according to talhelper", name, file.Name, change.Field(), change.New, change.Old)
				}
			}
		}
	}

	for i, p := range onPurpose {
		if !seen[i] || !strings.Contains(string(page), p.row) {
			t.Errorf("%s, %s: there is no such difference, or docs/talhelper.md does not say %q", p.fleet, p.field, p.row)
		}
	}

	if compared < 100 {
		t.Errorf("only %d machine configs were compared", compared)
	}
}

// rendered are the machine configs of a fleet, with the patches in the order of talhelper.
func rendered(t *testing.T, path string) []render.File {
	t.Helper()

	fleet, err := talconfig.Load(talconfig.Options{Path: path, Keys: ageKeys})
	if err != nil {
		t.Fatal(err)
	}

	files, err := render.Nodes(fleet, render.Options{Secrets: testBundle(t).Secrets(), Compat: true})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

// reasonOf returns the place in onPurpose of a field; -1 if it has none.
func reasonOf(fleet, field string) int {
	return slices.IndexFunc(onPurpose, func(p difference) bool {
		return p.fleet == fleet && strings.HasPrefix(field, p.field)
	})
}

func flat(changes []machineconfig.Change) []machineconfig.Change {
	var out []machineconfig.Change

	for _, c := range changes {
		if len(c.Content) > 0 {
			out = append(out, flat(c.Content)...)
		} else {
			out = append(out, c)
		}
	}

	return out
}

// fleets copies the fleets, each with a version of Talos, and returns their paths by their names.
func fleets(t *testing.T) map[string]string {
	t.Helper()

	dir, out := t.TempDir(), map[string]string{}
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "fleets"))); err != nil {
		t.Fatal(err)
	}

	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".yaml")
		if name == "talenv" {
			continue
		}

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if !strings.Contains("\n"+string(text), "\ntalosVersion:") {
			if err := os.WriteFile(path, append([]byte(pinned), text...), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		out[name] = path
	}

	return out
}

// recordings are the files that talhelper has written, by FLEET/FILE.
func recordings(t *testing.T) map[string][]byte {
	t.Helper()

	file, err := os.Open(filepath.Join("testdata", recorded))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	unzipped, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}

	out := map[string][]byte{}

	for archive := tar.NewReader(unzipped); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}

		if err == nil {
			out[header.Name], err = io.ReadAll(archive)
		}

		if err != nil {
			t.Fatal(err)
		}
	}
}

// record runs talhelper for each fleet.
func record(t *testing.T) {
	t.Helper()

	var out bytes.Buffer

	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}

	archive := tar.NewWriter(zipped)

	secrets, err := filepath.Abs(filepath.Join("..", "..", "machineconfig", "testdata", "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	paths := fleets(t)
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		for file, content := range run(t, name, paths[name], secrets) {
			header := &tar.Header{Name: name + "/" + file, Mode: 0o600, Size: int64(len(content))}
			if err := archive.WriteHeader(header); err != nil {
				t.Fatal(err)
			}

			if _, err := archive.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}

	if err := errors.Join(archive.Close(), zipped.Close(),
		os.WriteFile(filepath.Join("testdata", recorded), out.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// run yields what talhelper writes for one fleet, in the order of the names.
func run(t *testing.T, name, path, secrets string) iter.Seq2[string, []byte] {
	t.Helper()

	dir, written := filepath.Dir(path), filepath.Join(t.TempDir(), name)

	cmd := exec.CommandContext(t.Context(), *talhelper, "genconfig", "--offline-mode", "--no-gitignore",
		"-c", path, "-e", "talenv.yaml", "-s", secrets, "-o", written)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SOPS_AGE_KEY_FILE="+filepath.Join(dir, "files", "age.txt"))

	if text, err := cmd.CombinedOutput(); (err != nil) != (refusedThere[name] != "") {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}

	configs, err := filepath.Glob(filepath.Join(written, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	return func(yield func(string, []byte) bool) {
		for _, config := range configs {
			content, err := os.ReadFile(config)
			if err != nil {
				t.Fatal(err)
			}

			if !yield(filepath.Base(config), content) {
				return
			}
		}
	}
}
