package render_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"github.com/siderolabs/talos/pkg/machinery/config/validation"
	"go.yaml.in/yaml/v4"

	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
)

var update = flag.Bool("update", false, "write the golden file anew")

// keyCase sets keys of a talconfig.yaml: root at the top, node in the one node, which is a control plane.
type keyCase struct{ name, root, node string }

const (
	plainRoot = "clusterName: prod\nendpoint: https://10.0.0.10:6443\nkubernetesVersion: v1.36.2\n"
	plainNode = "  - hostname: cp-1\n    ipAddress: 10.0.0.11\n    controlPlane: true\n"
)

// write makes a talconfig.yaml of a case: what the case does not set is plain.
func (c keyCase) write(t *testing.T) string {
	t.Helper()

	dir := t.TempDir()
	root := c.root

	for line := range strings.Lines(plainRoot) {
		if key, _, _ := strings.Cut(line, ":"); !strings.Contains("\n"+root, "\n"+key+":") {
			root += line
		}
	}

	node := plainNode
	if !strings.Contains(c.node, "installDisk") {
		node += "    installDisk: /dev/sda\n"
	}

	for line := range strings.Lines(c.node) {
		node += "    " + line
	}

	files := map[string]string{
		"talconfig.yaml": root + "nodes:\n" + node,
		"script.sh":      "#!/bin/sh\n# a comment\necho one\necho $1\n",
		"literal.txt":    "cost: ${PRICE}\n",
		"user.yaml": "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: extra\nprovisioning:\n  diskSelector:\n" +
			"    match: disk.transport == 'nvme'\n  minSize: 10GiB\n",
		"patch.yaml": "machine:\n  sysctls:\n    example.org/name: {{ .ClusterConfig.ClusterName | upper }}\n",
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return filepath.Join(dir, "talconfig.yaml")
}

func testSecrets(tb testing.TB) *secrets.Bundle {
	tb.Helper()

	bundle, err := secrets.LoadBundle(filepath.Join("..", "..", "machineconfig", "testdata", "secrets.yaml"))
	if err != nil {
		tb.Fatal(err)
	}

	return bundle
}

// outcome is what people get from a talconfig.yaml, and the machine config of its first node.
func outcome(t *testing.T, path string, compat bool) (lines []string, config []byte) {
	t.Helper()

	fleet, err := talconfig.Load(talconfig.Options{Path: path, Environ: []string{"GREETING=hello"}})
	if err != nil {
		t.Fatal(err)
	}

	files, err := render.Nodes(fleet, render.Options{Secrets: testSecrets(t), Compat: compat})
	if err != nil {
		t.Fatal(err)
	}

	installer, err := fleet.InstallerOf(&fleet.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}

	boot, err := fleet.BootImageOf(&fleet.Nodes[0])
	if err != nil {
		t.Fatal(err)
	}

	cfg, err := configloader.NewFromBytes(files[0].Content)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := cfg.Validate(render.Metal, validation.WithLocal()); err != nil {
		t.Fatalf("the machinery library refuses the machine config: %v", err)
	}

	return []string{"file: " + files[0].Name, "installer: " + installer, "boot: " + boot}, files[0].Content
}

func changeLines(changes []machineconfig.Change) []string {
	var out []string

	for _, c := range changes {
		if len(c.Content) > 0 {
			out = append(out, changeLines(c.Content)...)
		} else {
			out = append(out, fmt.Sprintf("%s: %q -> %q", c.Field(), c.Old, c.New))
		}
	}

	return out
}

// TestKeys renders each key of a talconfig.yaml by itself: what it changes is in the golden file.
func TestKeys(t *testing.T) {
	plain, plainConfig := outcome(t, keyCase{}.write(t), false)

	var got strings.Builder

	for _, c := range keyCases {
		lines, config := outcome(t, c.write(t), false)
		lines = slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(plain, line) })

		difference, err := machineconfig.Diff(plainConfig, config)
		if err != nil {
			t.Fatal(err)
		}

		lines = append(lines, changeLines(difference.Changes)...)

		if len(lines) == 0 && c.name != "noSchematicValidate" {
			t.Errorf("%s changes nothing", c.name)
		}

		fmt.Fprintf(&got, "## %s\n%s\n\n", c.name, strings.Join(lines, "\n"))
	}

	path := filepath.Join("testdata", "keys.txt")

	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if string(want) != got.String() {
		t.Errorf("differs from %s; run with -update and read the difference:\n%s", path, got.String())
	}
}

// TestEveryKeyHasACase compares the keys of the cases with those of the types.
func TestEveryKeyHasACase(t *testing.T) {
	used := map[string]bool{}

	for _, c := range append(slices.Clone(keyCases), refusedCases...) {
		var node yaml.Node

		raw, err := os.ReadFile(c.write(t))
		if err != nil {
			t.Fatal(err)
		}

		if err := yaml.Unmarshal(raw, &node); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}

		collect(node.Content[0], "", used)
	}

	for _, key := range keysOf(reflect.TypeFor[talconfig.Config](), "") {
		// A group has the keys of a node, and both schematics have the same keys.
		isCopy := slices.ContainsFunc([]string{"controlPlane.", "worker.", "nodes.imageSchematic."}, func(prefix string) bool {
			return strings.HasPrefix(key, prefix)
		})

		if !used[key] && !isCopy {
			t.Errorf("no case sets %s", key)
		}
	}
}

func collect(n *yaml.Node, path string, into map[string]bool) {
	into[path] = true

	for i, item := range n.Content {
		switch n.Kind {
		case yaml.SequenceNode:
			collect(item, path, into)
		case yaml.MappingNode:
			if i%2 == 1 {
				collect(item, strings.TrimPrefix(path+"."+n.Content[i-1].Value, "."), into)
			}
		}
	}
}

// keysOf lists the keys of a type and of those below it that are read field by field.
func keysOf(t reflect.Type, path string) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}

	if t.Kind() != reflect.Struct || t.PkgPath() == "net/netip" || strings.HasSuffix(t.PkgPath(), "/cel") ||
		slices.Contains([]string{"InstallDiskSizeMatcher", "Size", "ByteSize", "PortRange", "Prefix"}, t.Name()) {
		return []string{path}
	}

	var out []string

	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("yaml"), ",")

		switch {
		case strings.Contains(options, "inline"):
			out = append(out, keysOf(field.Type, path)...)
		case name != "" && name != "-":
			out = append(out, keysOf(field.Type, strings.TrimPrefix(path+"."+name, "."))...)
		}
	}

	return out
}

// TestRefusedKeys sets what has no form any more: it is refused, where talhelper leaves it out.
func TestRefusedKeys(t *testing.T) {
	for _, c := range refusedCases {
		_, err := talconfig.Load(talconfig.Options{Path: c.write(t)})
		if err == nil || !strings.Contains(err.Error(), c.name) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}
}
