package talconfig_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/internal/talconfig"
)

const minimal = `clusterName: prod
endpoint: https://10.0.0.10:6443
kubernetesVersion: v1.36.2
nodes:
  - hostname: cp-1
    ipAddress: 10.0.0.11
    controlPlane: true
    installDisk: /dev/sda
`

// folder writes files, of which the talconfig.yaml is minimal unless it is given, and returns the path of that.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()

	dir := t.TempDir()

	if _, ok := files["talconfig.yaml"]; !ok {
		files["talconfig.yaml"] = minimal
	}

	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return filepath.Join(dir, "talconfig.yaml")
}

func load(t *testing.T, text string) (*talconfig.Fleet, error) {
	t.Helper()

	return talconfig.Load(talconfig.Options{
		Path: folder(t, map[string]string{"talconfig.yaml": text}), Environ: []string{"DISK=/dev/vda", "EMPTY="},
	})
}

func TestProblems(t *testing.T) {
	for _, tt := range []struct{ name, old, new, want string }{
		{"typo", "ipAddress", "ipAdress", "talconfig.yaml:6: nodes[0].ipAdress: unknown key; did you mean ipAddress?"},
		{"renamed", "nodes:", "imageFactory: {ImageURLTmpl: a}\nnodes:", "imageFactory.ImageURLTmpl: unknown key; use ISOURLTmpl"},
		{"key of a node", "nodes:", "nameservers: []\nnodes:", "nameservers: unknown key; it belongs to a node"},
		{"key of the root", "installDisk:", "clusterPodNets: []\n    installDisk:", "it belongs to the top of the file"},
		{"twice", "nodes:", "endpoint: https://a:1\nnodes:", "endpoint: occurs twice"},
		{"kind", "/dev/sda", "[/dev/sda]", "nodes[0].installDisk: has to be a text, and is a list"},
		{"bool", "controlPlane: true", "controlPlane: maybe", "nodes[0].controlPlane: has to be true or false"},
		{"patch", "nodes:", "patches:\n  - machine: {}\nnodes:", `patches[0]: has to be a text, and is a mapping; put "|-" before it`},
		{"empty item", "nodes:", "patches:\n  -\nnodes:", "patches[0]: is empty"},
		{"size", "installDisk: /dev/sda", "installDiskSelector: {size: big}", "nodes[0].installDiskSelector.size: has to be a size"},
		{"word", "nodes:", "controlPlane: {ingressFirewall: {defaultAction: deny}}\nnodes:", "has to be one of accept, block"},
		{"syntax", "endpoint", "\tendpoint", "the file is not valid YAML near line"},
		{"endpoint", "https://10.0.0.10:6443", "10.0.0.10", "endpoint: has to be a URL with https, a host and a port"},
		{"no versions", "kubernetesVersion: v1.36.2\n", "", "kubernetesVersion: is missing"},
		{"versions that do not fit", "v1.36.2", "v1.25.0", "kubernetesVersion: does not fit talosVersion"},
		{"short version", "v1.36.2", "1.36", "kubernetesVersion: has to be a version with three numbers"},
		{"newer Talos", "nodes:", "talosVersion: v1.14.0\nnodes:", "talosVersion: is newer than"},
		{"hostname", "cp-1", "CP_1", `nodes[0].hostname: "CP_1" is not a host name`},
		{"address", "10.0.0.11", "10.0.0.11/24", "nodes[0].ipAddress"},
		{"no disk", "    installDisk: /dev/sda\n", "", "nodes[0]: has neither installDisk nor installDiskSelector"},
		{"no control plane", "controlPlane: true", "controlPlane: false", "nodes: none has controlPlane: true"},
		{"network", "nodes:", "clusterPodNets: [10.0.0.0]\nnodes:", "clusterPodNets[0]"},
		{"CNI", "nodes:", "cniConfig: {name: cilium}\nnodes:", `cniConfig.name: "cilium" is not one of flannel, custom, none`},
		{"extension", "nodes:", "worker: {schematic: {customization: {systemExtensions: {officialExtensions: [gvisor]}}}}\nnodes:", "did you mean siderolabs/gvisor?"},
		{"tag", "nodes:", "worker: {talosImageURL: \"a/b:v1\"}\nnodes:", "worker.talosImageURL: has a tag"},
		{"file", "nodes:", "patches: [\"@missing.yaml\"]\nnodes:", "patches[0]: reading the file that it names"},
		{"file name", "installDisk:", "filenameTmpl: ../{{.Hostname}}\n    installDisk:", "nodes[0].filenameTmpl: names"},
		{"template", "installDisk:", "filenameTmpl: \"{{.Host}}\"\n    installDisk:", "nodes[0].filenameTmpl: the template names a field"},
		{"variable", "/dev/sda", "${MISSING}", "nodes[0].installDisk: variable MISSING is not set"},
		{"empty variable", "/dev/sda", "${EMPTY}", "nodes[0].installDisk: variable EMPTY is not set, or empty"},
		{"label", "nodes:", "worker: {nodeLabels: {a: \"b c\"}}\nnodes:", "worker.nodeLabels.a: is not a valid label"},
		{"taint", "nodes:", "worker: {nodeTaints: {a: Never}}\nnodes:", "worker.nodeTaints"},
		{"file op", "nodes:", "worker: {machineFiles: [{path: /a, op: write}]}\nnodes:", `worker.machineFiles[0].op: "write" is not one of`},
		{"boot method", "nodes:", "worker: {machineSpec: {bootMethod: usb}}\nnodes:", "worker.machineSpec.bootMethod"},
		{"firewall without action", "nodes:", "worker: {ingressFirewall: {rules: []}}\nnodes:", "worker.ingressFirewall.defaultAction: is missing"},
		{"URL", "nodes:", "worker: {extraManifests: [\"https://a\"]}\nnodes:", "worker.extraManifests[0]: is a URL"},
		{"more than one document", "nodes:", "---\nnodes:", "more than one YAML document"},
	} {
		_, err := load(t, strings.Replace(minimal, tt.old, tt.new, 1))

		var problems talconfig.Problems
		if !errors.As(err, &problems) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestDevices(t *testing.T) {
	for _, tt := range []struct{ device, want string }{
		{"{dhcp: true}", "has neither interface nor deviceSelector"},
		{"{bond: {interfaces: [eth0], mode: 802.3ad}, deviceSelector: {driver: igc}}", ".interface: is missing"},
		{"{interface: eth0, addresses: [10.0.0.300/24]}", ".addresses[0]"},
		{"{interface: eth0, routes: [{network: 0.0.0.0/0}]}", ".routes[0].gateway: is missing"},
		{"{interface: eth0, vip: {ip: 10.0.0.11}}", "vip.ip: is the address of cp-1 itself"},
		{"{interface: eth0, vlans: [{vlanId: 5000}]}", "vlans[0].vlanId: has to be between 1 and 4094"},
		{"{interface: eth0, vlans: [{vlanId: 5, addresses: [a]}]}", "vlans[0].addresses[0]"},
		{"{interface: bond0, bond: {interfaces: [eth0], mode: activebackup}}", `bond.mode: "activebackup" is not known; known are`},
		{"{interface: bond0, bond: {mode: 802.3ad}}", "bond: has no members"},
		{"{interface: bond0, bond: {interfaces: [eth0], mode: active-backup, arpIPTarget: [a]}}", "bond.arpIPTarget[0]"},
		{"{interface: wg0, wireguard: {privateKey: a, peers: [{publicKey: b, endpoint: host:1}]}}", "peers[0].endpoint"},
		{"{interface: wg0, wireguard: {privateKey: a, peers: [{publicKey: b, allowedIPs: [c]}]}}", "peers[0].allowedIPs[0]"},
		{"{interface: averyverylongname0}", "longer than 15 characters"},
		{"{deviceSelector: {}}", "selects every link"},
		{"{interface: eth0, dummy: true, bridge: {interfaces: []}}", "is of more than one kind"},
	} {
		_, err := load(t, minimal+"    networkInterfaces: ["+tt.device+"]\n")
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.device, err, tt.want)
		}
	}
}

func TestNodesMustDiffer(t *testing.T) {
	_, err := load(t, minimal+strings.TrimPrefix(minimal[strings.Index(minimal, "  - hostname"):], ""))
	if err == nil {
		t.Fatal("two nodes with one name, address and file were accepted")
	}

	for _, want := range []string{
		`nodes[1].hostname: "cp-1" is also that of nodes[0].hostname`, "nodes[1].ipAddress", "nodes[1].filenameTmpl",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestNoValueOfASecretIsQuoted(t *testing.T) {
	for _, text := range []string{
		strings.Replace(minimal, "controlPlane: true", "controlPlane: hunter2hunter2", 1),
		strings.Replace(minimal, "nodes:", "patches: hunter2hunter2\nnodes:", 1),
		strings.Replace(minimal, "endpoint:", "\tendpoint: hunter2hunter2 'a\nendpoint:", 1),
		minimal + "    networkInterfaces: [{interface: wg0, wireguard: {listenPort: hunter2hunter2}}]\n",
	} {
		if _, err := load(t, text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("got %v", err)
		}
	}
}

func TestAnchorsAndMergeKeys(t *testing.T) {
	fleet, err := load(t, `x-common: &common
  installDisk: &disk /dev/sdb
  nodeLabels: {a: b}
clusterName: &name prod
endpoint: https://10.0.0.10:6443
kubernetesVersion: v1.36.2
controlPlane:
  nodeLabels: {cluster: *name}
nodes:
  - <<: *common
    hostname: cp-1
    ipAddress: 10.0.0.11, fd00::11
    controlPlane: true
    nodeLabels: {own: c}
  - hostname: w-1
    ipAddress: 10.0.0.12
    installDisk: *disk
`)
	if err != nil {
		t.Fatal(err)
	}

	first := &fleet.Nodes[0]
	if first.InstallDisk != "/dev/sdb" || first.NodeLabels["own"] != "c" || first.NodeLabels["a"] != "" ||
		fleet.Nodes[1].InstallDisk != "/dev/sdb" || strings.Join(first.Addresses(), "|") != "10.0.0.11|fd00::11" {
		t.Errorf("got %+v", fleet.Nodes)
	}

	if _, err := load(t, "a: &a [*a, *a]\n"); err == nil {
		t.Error("an alias to itself was accepted")
	}
}

// TestGroups: what a node sets wins, also false and an empty list, and what adds up does so.
func TestGroups(t *testing.T) {
	fleet, err := load(t, strings.Replace(minimal, "nodes:", `controlPlane:
  disableSearchDomain: true
  nameservers: [10.0.0.2]
  patches: ["machine: {sysctls: {a: b}}"]
  certSANs: [group.example.org]
nodes:`, 1)+`    disableSearchDomain: false
    nameservers: []
    patches: ["machine: {sysctls: {c: d}}"]
    certSANs: [node.example.org]
`)
	if err != nil {
		t.Fatal(err)
	}

	m := fleet.Nodes[0]
	if *m.DisableSearchDomain || len(m.Nameservers) != 0 || len(m.GroupPatches) != 1 || len(m.NodePatches) != 1 ||
		strings.Join(m.CertSANs, " ") != "node.example.org group.example.org" {
		t.Errorf("got %+v", m)
	}
}

func TestVariables(t *testing.T) {
	text := strings.NewReplacer("/dev/sda", "${DISK}", "prod", "${NAME:-dev}", "controlPlane: true", "controlPlane: ${IS}",
		"v1.36.2", "${VERSION}").Replace(minimal) + "    nameservers: ${SERVERS}\n    nodeLabels: {price: 5$$}\n" +
		"    machineFiles: [{path: /a, op: create, content: \"@script.sh\"}]\n"
	text = strings.Replace(text, "5$$", "a$$$$b", 1)
	text = strings.Replace(text, "    nodeLabels: {price: a$$$$b}\n", "    nodeAnnotations: {price: a$$b}\n", 1)

	path := folder(t, map[string]string{
		"talconfig.yaml": text,
		"talenv.yaml":    "DISK: /dev/sdb\nIS: true\nSERVERS: \"[10.0.0.2, 10.0.0.3]\"\nVERSION: v1.35.0\nINJECTED: \"a\\nb: c\"\n",
		"script.sh":      "#!/bin/sh\n# ${INJECTED}\necho $1\n",
	})

	fleet, err := talconfig.Load(talconfig.Options{Path: path, Environ: []string{"DISK=/dev/vda"}})
	if err != nil {
		t.Fatal(err)
	}

	m := fleet.Nodes[0]
	got := fmt.Sprintln(fleet.Config.ClusterName, fleet.Config.KubernetesVersion, m.InstallDisk, m.ControlPlane,
		m.Nameservers, m.NodeAnnotations)

	if want := "dev v1.35.0 /dev/sdb true [10.0.0.2 10.0.0.3] map[price:a$b]\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	if want := "#!/bin/sh\n# a\nb: c\necho $1\n"; m.MachineFiles[0].Content != want {
		t.Errorf("the file is %q, want %q", m.MachineFiles[0].Content, want)
	}
}

func TestVersionsAreTexts(t *testing.T) {
	fleet, err := load(t, strings.Replace(minimal, "nodes:", "talosVersion: 1.10\nnodes:", 1))
	if err == nil || !strings.Contains(err.Error(), "kubernetesVersion") {
		t.Fatalf("1.10 was read as another version: %v, %+v", err, fleet)
	}
}

func TestVariableFileMustExist(t *testing.T) {
	_, err := talconfig.Load(talconfig.Options{
		Path: folder(t, map[string]string{}), EnvFiles: []string{filepath.Join(t.TempDir(), "missing.yaml")},
	})
	if err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("got %v", err)
	}

	_, err = talconfig.Load(talconfig.Options{Path: folder(t, map[string]string{"talenv.yaml": "A: [b]\n"})})
	if err == nil || !strings.Contains(err.Error(), "talenv.yaml:1: A: has to be one value") {
		t.Errorf("got %v", err)
	}
}
