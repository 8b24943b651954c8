package render_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"

	"github.com/talos-operator/talos-operator/internal/talconfig"
	"github.com/talos-operator/talos-operator/internal/talconfig/render"
)

// TestSharingLosesNothing renders each case beside a plain node. What both share is made once, and neither may get a
// setting of the other.
func TestSharingLosesNothing(t *testing.T) {
	const second = "  - hostname: cp-2\n    ipAddress: 10.0.0.12\n    controlPlane: true\n    installDisk: /dev/sda\n"

	for _, c := range keyCases {
		path := c.write(t)

		alone := renderAll(t, path)

		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.WriteFile(path, append(text, second...), 0o600); err != nil {
			t.Fatal(err)
		}

		both := renderAll(t, path)

		if string(both[0].Content) != string(alone[0].Content) {
			t.Errorf("%s: the node is another one beside a plain node", c.name)
		}

		// The same file in which the case changes nothing of its node.
		plain := renderAll(t, keyCase{root: c.root}.write(t))
		want := strings.ReplaceAll(string(plain[0].Content), "cp-1", "cp-2")

		if string(both[1].Content) != want {
			t.Errorf("%s: the plain node is another one beside the node", c.name)
		}
	}
}

func renderAll(t *testing.T, path string) []render.File {
	t.Helper()

	fleet, err := talconfig.Load(talconfig.Options{Path: path, Environ: []string{"GREETING=hello"}})
	if err != nil {
		t.Fatal(err)
	}

	files, err := render.Nodes(fleet, render.Options{Secrets: testSecrets(t)})
	if err != nil {
		t.Fatal(err)
	}

	return files
}

// TestManyLinks: of selectors that differ in one address only the first is parsed. Each node gets what it gets where it
// is the only one, byte by byte, and a selector of another form is still judged.
func TestManyLinks(t *testing.T) {
	selectors := []string{
		`hardwareAddr: "00:1a:2b:3c:4d:01"`, `hardwareAddr: "00:1a:2b:3c:4d:02"`, `hardwareAddr: "00:1a:*"`,
		`permanentAddr: "00:1a:2b:3c:4d:03"`, `permanentAddr: "00:1a:2b:3c:4d:04"`, `busPath: "0000:03:00.0"`,
		`busPath: "0000:04:*"`, `driver: igc`, `driver: "a\"b\\c"`, `driver: " igb "`, `pciID: "8086:*", physical: true`,
		`hardwareAddr: "00:1a:2b:3c:4d:05", driver: igc, busPath: "0000:00:1f.6", pciID: "8086:15bc", physical: true`,
		`hardwareAddr: "00:1a:2b:3c:4d:06", driver: igc, busPath: "0000:00:1f.6", pciID: "8086:15bc", physical: true`,
	}

	node := func(i int) string {
		return fmt.Sprintf("  - hostname: cp-%d\n    ipAddress: 10.0.0.%d\n    controlPlane: true\n    installDisk: /dev/sda\n"+
			"    networkInterfaces: [{deviceSelector: {%s}, addresses: [10.0.0.%[2]d/24]}]\n", i, 20+i, selectors[i])
	}

	write := func(nodes string) string {
		path := filepath.Join(t.TempDir(), "talconfig.yaml")
		if err := os.WriteFile(path, []byte(plainRoot+"nodes:\n"+nodes), 0o600); err != nil {
			t.Fatal(err)
		}

		return path
	}

	var all strings.Builder
	for i := range selectors {
		all.WriteString(node(i))
	}

	for i, file := range renderAll(t, write(all.String())) {
		if alone := renderAll(t, write(node(i)))[0]; string(file.Content) != string(alone.Content) {
			t.Errorf("%s: got\n%s\nand alone\n%s", selectors[i], file.Content, alone.Content)
		}
	}
}

// TestPatches of documents that a node has for itself, beside those of the main document.
func TestPatches(t *testing.T) {
	files := renderAll(t, keyCase{root: `patches:
  - |-
    apiVersion: v1alpha1
    kind: LinkConfig
    name: eth0
    mtu: 9000
    ---
    apiVersion: v1alpha1
    kind: HostnameConfig
    hostname: other
  - |-
    - op: replace
      path: /machine/install/wipe
      value: true
`, node: "networkInterfaces: [{interface: eth0, addresses: [10.0.0.11/24]}]\n"}.write(t))

	got := string(files[0].Content)
	for _, want := range []string{"hostname: other\n", "mtu: 9000\n", "  - address: 10.0.0.11/24\n", "    wipe: true\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}

	if _, err := configloader.NewFromBytes(files[0].Content); err != nil {
		t.Error(err)
	}
}

// TestEndpointOfOneNode: a patch of one node leaves the endpoint of the others alone, whichever is rendered first.
func TestEndpointOfOneNode(t *testing.T) {
	text := plainRoot + "nodes:\n" + plainNode + "    installDisk: /dev/sda\n" +
		"    patches: [\"cluster: {controlPlane: {endpoint: https://10.0.0.9:6443}}\"]\n"

	for i := 2; i < 6; i++ {
		text += fmt.Sprintf("  - {hostname: cp-%d, ipAddress: 10.0.0.1%[1]d, controlPlane: true, installDisk: /dev/sda, "+
			"nodeLabels: {example.org/n: \"%[1]d\"}}\n", i)
	}

	path := filepath.Join(t.TempDir(), "talconfig.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	for i, file := range renderAll(t, path) {
		if patched := strings.Contains(string(file.Content), "endpoint: https://10.0.0.9:6443"); patched != (i == 0) {
			t.Errorf("%s: the endpoint is patched: %t", file.Hostname, patched)
		}
	}
}

// TestErrorsNameThePatch and quote nothing of it.
func TestErrorsNameThePatch(t *testing.T) {
	for _, tt := range []struct{ root, node, want string }{
		{root: "patches: [\"machine: {tokn: hunter2hunter2}\"]\n", want: "nodes[0] (cp-1): patches[0]: unknown fields machine.tokn"},
		{root: "controlPlane: {patches: [\"- {op: remove, path: /machine/hunter2}\"]}\n", want: "controlPlane.patches[0]: does not apply"},
		{node: "patches: [\"machine: {install: {disk: [hunter2hunter2]}}\"]\n", want: "nodes[0].patches[0]: "},
		{node: "patches: [\"hunter2hunter2\"]\n", want: "nodes[0].patches[0]: "},
		{
			node: "patches: [\"cluster: {token: hunter2hunter2}\"]\n",
			want: "nodes[0].patches[0]: changes cluster.token, which is part of the PKI",
		},
		{
			root: "patches: [\"[{op: replace, path: /machine/ca/crt, value: aHVudGVyMmh1bnRlcjI=}]\"]\n",
			want: "patches[0]: changes machine.ca.crt",
		},
		{root: "controlPlane: {patches: [\"cluster: {etcd: {ca: {$$patch: delete}}}\"]}\n", want: "changes cluster.etcd.ca"},
		{node: "extraManifests: [talconfig.yaml]\n", want: "nodes[0].extraManifests[0]: "},
		{node: "nodeLabels: {a: \"{{ .Hunter2 }}\"}\n", want: "nodes[0].nodeLabels.a: the template names a field"},
		{node: "nodeLabels: {a: \"{{ env \\\"HOME\\\" }}\"}\n", want: "uses a function that is not known"},
		{
			node: "volumes: [{name: EPHEMERAL, provisioning: {minSize: 1GiB}}, {name: OTHER, provisioning: {minSize: 1GiB}}]\n",
			want: "nodes[0] (cp-1): ",
		},
	} {
		fleet, err := talconfig.Load(talconfig.Options{Path: keyCase{root: tt.root, node: tt.node}.write(t)})
		if err != nil {
			t.Fatal(err)
		}

		_, err = render.Nodes(fleet, render.Options{Secrets: testSecrets(t)})
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "hunter2hunter2") {
			t.Errorf("%s%s: got %v, want %q", tt.root, tt.node, err, tt.want)
		}
	}
}
