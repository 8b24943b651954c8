package talconfig_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/talconfig"
)

const config = `clusterName: prod
endpoint: https://10.0.0.10:6443
kubernetesVersion: v1.36.2
patches:
  - |-
    machine: {sysctls: {a: all}, env: {TOKEN: hunter2hunter2}}
controlPlane:
  patches: ["machine: {sysctls: {a: group}}"]
nodes:
  - hostname: cp-1
    ipAddress: 10.0.0.11,fd00::11
    controlPlane: true
    installDisk: /dev/sda
    patches: ["machine: {sysctls: {a: node}}"]
  - hostname: w-1
    ipAddress: 10.0.0.12
    installDisk: /dev/sda
    talosImageURL: registry.example.org/installer
`

// folder is where a person works.
type folder struct {
	t   *testing.T
	dir string
}

func newFolder(t *testing.T) folder {
	t.Helper()

	f := folder{t: t, dir: t.TempDir()}
	f.write("talconfig.yaml", config)

	pki, err := os.ReadFile(filepath.Join("..", "..", "machineconfig", "testdata", "secrets.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	f.write("talsecret.yaml", string(pki))

	return f
}

func (f folder) path(name string) string { return filepath.Join(f.dir, name) }

func (f folder) write(name, content string) {
	f.t.Helper()

	if err := os.WriteFile(f.path(name), []byte(content), 0o600); err != nil {
		f.t.Fatal(err)
	}
}

func (f folder) read(name string) string {
	f.t.Helper()

	raw, err := os.ReadFile(f.path(name))
	if err != nil {
		f.t.Fatal(err)
	}

	return string(raw)
}

// run runs a command; "FOLDER" in its words is the folder.
func (f folder) run(words ...string) (out, errOut string, err error) {
	f.t.Helper()

	var stdout, stderr bytes.Buffer

	cmd := talconfig.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &stdout, ErrOut: &stderr})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true

	args := make([]string, len(words))
	for i, word := range words {
		args[i] = strings.ReplaceAll(word, "FOLDER", f.dir)
	}

	cmd.SetArgs(args)
	err = cmd.ExecuteContext(f.t.Context())

	for _, text := range []string{stderr.String(), errorText(err)} {
		if strings.Contains(text, "hunter2") {
			f.t.Errorf("%v: %q has a secret", words, text)
		}
	}

	return stdout.String(), stderr.String(), err
}

func errorText(err error) string {
	if err == nil {
		return ""
	}

	return err.Error()
}

var generate = []string{"genconfig", "-c", "FOLDER/talconfig.yaml", "-o", "FOLDER/clusterconfig"}

func (f folder) mustRun(words ...string) string {
	f.t.Helper()

	out, _, err := f.run(words...)
	if err != nil {
		f.t.Fatalf("%v: %v", words, err)
	}

	return out
}

func TestGenconfig(t *testing.T) {
	f := newFolder(t)

	if out := f.mustRun(generate...); !strings.Contains(out, "Wrote 4 files") {
		t.Errorf("got %s", out)
	}

	for _, name := range []string{"prod-cp-1.yaml", "prod-w-1.yaml", "talosconfig", ".gitignore"} {
		info, err := os.Stat(f.path("clusterconfig/" + name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}

	if got := f.read("clusterconfig/.gitignore"); got != "prod-cp-1.yaml\nprod-w-1.yaml\ntalosconfig\n" {
		t.Errorf("the .gitignore is %q", got)
	}

	if got := f.read("clusterconfig/prod-cp-1.yaml"); !strings.Contains(got, "\n    a: node\n") {
		t.Errorf("the patch of the node does not win:\n%s", got)
	}

	// A second time nothing changes, also not the certificate.
	before := f.read("clusterconfig/talosconfig")
	if out := f.mustRun(generate...); !strings.Contains(out, "Wrote 0 files") || f.read("clusterconfig/talosconfig") != before {
		t.Errorf("got %s", out)
	}

	f.mustRun(append(generate, "--compat")...)

	if got := f.read("clusterconfig/prod-cp-1.yaml"); !strings.Contains(got, "\n    a: all\n") {
		t.Errorf("with --compat, the patch of all nodes does not win:\n%s", got)
	}
}

func TestDryRun(t *testing.T) {
	f := newFolder(t)
	dry := append(generate, "--dry-run")

	out, _, err := f.run(dry...)
	if exit.CodeOf(err) != 2 || !strings.Contains(out, "prod-cp-1.yaml (new)") {
		t.Errorf("got %s, %v", out, err)
	}

	if _, err := os.Stat(f.path("clusterconfig")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run wrote: %v", err)
	}

	f.mustRun(generate...)

	if out, _, err := f.run(dry...); err != nil || !strings.Contains(out, "0 files would change") {
		t.Errorf("got %s, %v", out, err)
	}

	f.write("talconfig.yaml", strings.NewReplacer("a: node", "a: other", "hunter2hunter2", "hunter2hunter3").Replace(config))

	out, _, err = f.run(dry...)
	if exit.CodeOf(err) != 2 || !strings.Contains(out, "-machine.sysctls.a: node\n+machine.sysctls.a: other") ||
		!strings.Contains(out, "machine.env.TOKEN: <redacted>") || strings.Contains(out, "hunter2") {
		t.Errorf("got %s, %v", out, err)
	}
}

// TestPKI: the PKI of a cluster is never made, exchanged or overwritten by an oversight.
func TestPKI(t *testing.T) {
	f := newFolder(t)
	f.mustRun(generate...)

	config := f.read("clusterconfig/prod-cp-1.yaml")

	f.mustRun("gensecret", "-o", "FOLDER/other.yaml", "--talos-version", "v1.6.0", "--force")

	_, _, err := f.run(append(generate, "-s", "FOLDER/other.yaml")...)
	if err == nil || !strings.Contains(err.Error(), "is of another PKI") || f.read("clusterconfig/prod-cp-1.yaml") != config {
		t.Errorf("another PKI: %v", err)
	}

	_, _, err = f.run(append(generate, "-s", "FOLDER/mistyped.yaml")...)
	if err == nil || !strings.Contains(err.Error(), "mistyped.yaml") {
		t.Errorf("a mistyped file: %v", err)
	}

	f.mustRun(append(generate, "-s", "FOLDER/other.yaml", "--force")...)

	if f.read("clusterconfig/prod-cp-1.yaml") == config {
		t.Error("--force did not write the other PKI")
	}

	f.write("talsecret.sops.yaml", f.read("talsecret.yaml"))

	if _, _, err := f.run(generate...); err == nil || !strings.Contains(err.Error(), "both") {
		t.Errorf("two files: %v", err)
	}

	for _, name := range []string{"talsecret.yaml", "talsecret.sops.yaml"} {
		if err := os.Remove(f.path(name)); err != nil {
			t.Fatal(err)
		}
	}

	if _, _, err := f.run(generate...); err == nil || !strings.Contains(err.Error(), "talconfig gensecret") {
		t.Errorf("no file: %v", err)
	}
}

func TestGensecret(t *testing.T) {
	f := newFolder(t)
	before := f.read("talsecret.yaml")
	words := []string{"gensecret", "-o", "FOLDER/talsecret.yaml", "--talos-version", "v1.6.0"}

	if _, _, err := f.run(words...); err == nil || !strings.Contains(err.Error(), "exists") || f.read("talsecret.yaml") != before {
		t.Errorf("a PKI that exists: %v", err)
	}

	// Another file beside it would make two of them.
	if _, _, err := f.run("gensecret", "-o", "FOLDER/talsecret.sops.yaml", "--talos-version", "v1.6.0"); err == nil {
		t.Error("a second PKI was written beside the first")
	}

	f.mustRun(append(words, "--force")...)

	if f.read("talsecret.yaml.old") != before || f.read("talsecret.yaml") == before {
		t.Error("--force lost the PKI that existed")
	}

	// What was kept is not overwritten either.
	if _, _, err := f.run(append(words, "--force")...); err == nil || f.read("talsecret.yaml.old") != before {
		t.Errorf("the kept PKI: %v", err)
	}

	out := f.mustRun("gensecret", "-o", "-", "--talos-version", "v1.6.0")
	if !strings.Contains(out, "bootstraptoken:") {
		t.Errorf("got %s", out)
	}
}

// TestGensecretRedirected: what the shell redirects into a file is the PKI, and only that. A pipe gets it on request.
func TestGensecretRedirected(t *testing.T) {
	f := newFolder(t)
	f.write("new.yaml", "")

	if err := os.Chmod(f.path("new.yaml"), 0o644); err != nil {
		t.Fatal(err)
	}

	run := func(out *os.File, words ...string) error {
		cmd := talconfig.NewCommand(genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: &bytes.Buffer{}})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"gensecret", "--talos-version", "v1.6.0"}, words...))

		return cmd.ExecuteContext(t.Context())
	}

	t.Chdir(t.TempDir()) // where no PKI is

	file, err := os.OpenFile(f.path("new.yaml"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}

	if err := errors.Join(run(file), file.Close()); err != nil {
		t.Fatal(err)
	}

	info, err := os.Stat(f.path("new.yaml"))
	if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(f.read("new.yaml"), "cluster:") {
		t.Errorf("mode %v, %v: %.20s", info.Mode(), err, f.read("new.yaml"))
	}

	t.Chdir(f.dir) // where talsecret.yaml is
	f.write("talsecret.sops.yaml", "")

	if file, err = os.OpenFile("talsecret.sops.yaml", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}

	err = errors.Join(run(file), file.Close())
	if err == nil || !strings.Contains(err.Error(), "talsecret.yaml exists") || f.read("talsecret.sops.yaml") != "" {
		t.Errorf("beside a PKI: %v", err)
	}

	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	if err := run(writer); err == nil || !strings.Contains(err.Error(), "--output -") {
		t.Errorf("into a pipe: %v", err)
	}

	if err := errors.Join(run(writer, "--output", "-"), writer.Close()); err != nil {
		t.Fatal(err)
	}

	if raw, err := io.ReadAll(reader); err != nil || !bytes.HasPrefix(raw, []byte("cluster:")) {
		t.Errorf("into a pipe on request: %.20s, %v", raw, err)
	}
}

// TestGensecretFromConfig takes the PKI of a machine config: it renders the same machine config.
func TestGensecretFromConfig(t *testing.T) {
	f := newFolder(t)
	f.mustRun(generate...)
	f.mustRun("gensecret", "-f", "FOLDER/clusterconfig/prod-cp-1.yaml", "-o", "FOLDER/again.yaml", "--force")

	if out := f.mustRun(append(generate, "-s", "FOLDER/again.yaml")...); !strings.Contains(out, "Wrote 0 files") {
		t.Errorf("got %s", out)
	}
}

func TestValidate(t *testing.T) {
	f := newFolder(t)

	if out := f.mustRun("validate", "talconfig", "FOLDER/talconfig.yaml"); !strings.Contains(out, "is valid: cluster prod, 2 nodes") {
		t.Errorf("got %s", out)
	}

	f.mustRun(generate...)
	f.mustRun("validate", "nodeconfig", "FOLDER/clusterconfig/prod-cp-1.yaml", "FOLDER/clusterconfig/prod-w-1.yaml")

	// A patch that does not fit is found, too.
	f.write("talconfig.yaml", strings.Replace(config, "a: node", "a: [node]", 1))

	_, errOut, err := f.run("validate", "talconfig", "FOLDER/talconfig.yaml")
	if err == nil || !strings.Contains(errOut, "nodes[0] (cp-1): nodes[0].patches[0]: ") {
		t.Errorf("got %s, %v", errOut, err)
	}

	f.write("talconfig.yaml", strings.Replace(config, "ipAddress: 10.0.0.12", "ipAdress: hunter2hunter2", 1))

	_, errOut, err = f.run("validate", "talconfig", "FOLDER/talconfig.yaml")
	if err == nil || !strings.Contains(errOut, "talconfig.yaml:16: nodes[1].ipAdress: unknown key; did you mean ipAddress?") {
		t.Errorf("got %s, %v", errOut, err)
	}

	f.write("bad.yaml", "version: v1alpha1\nmachine: {tokn: hunter2hunter2}\n")

	if _, errOut, err := f.run("validate", "nodeconfig", "FOLDER/bad.yaml"); err == nil || !strings.Contains(errOut, "machine.tokn") {
		t.Errorf("got %s, %v", errOut, err)
	}
}

func TestGenurl(t *testing.T) {
	f := newFolder(t)
	id := "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"

	for _, tt := range []struct{ words, want string }{
		{"installer -c FOLDER/talconfig.yaml", "cp-1: factory.talos.dev/metal-installer/" + id + ":v1.13.9\n" +
			"w-1: registry.example.org/installer:v1.13.9\n"},
		{"installer -c FOLDER/talconfig.yaml -n fd00::11", "factory.talos.dev/metal-installer/" + id + ":v1.13.9\n"},
		{"image -c FOLDER/talconfig.yaml -n w-1", "https://factory.talos.dev/image/" + id + "/v1.13.9/metal-amd64.iso\n"},
		{"image --boot-method disk-image -a arm64 -r factory.example.org", "https://factory.example.org/image/" + id +
			"/v1.13.9/metal-arm64.raw.zst\n"},
		{"installer -k noapic -k nolapic -v v1.9.0", "factory.talos.dev/installer/" +
			"9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c:v1.9.0\n"},
		{"installer -e siderolabs/gvisor,siderolabs/amd-ucode -v v1.9.0", f.mustRun("genurl", "installer", "-v", "v1.9.0",
			"-e", "siderolabs/gvisor", "-e", "siderolabs/amd-ucode")},
		{"image -m nocloud --boot-method disk-image --suffix qcow2", "https://factory.talos.dev/image/" + id + "/v1.13.9/nocloud-amd64.qcow2\n"},
	} {
		if out := f.mustRun(append([]string{"genurl"}, strings.Fields(tt.words)...)...); out != tt.want {
			t.Errorf("%s: got %s, want %s", tt.words, out, tt.want)
		}
	}

	for words, want := range map[string]string{
		"installer -e iscsi-tools":               "write siderolabs/iscsi-tools",
		"installer -e siderolabs/a,siderolabs/a": "occurs twice",
		"installer -m cloud":                     "Talos has no platform",
		"image -a riscv64":                       "arch: \"riscv64\" is not one of amd64, arm64",
		"image --boot-method usb":                "bootMethod: \"usb\" is not one of iso, disk-image, pxe",
		"image --use-uki":                        "useUKI: needs secureboot",
		"image --suffix qcow2":                   "imageSuffix: is of disk images only",
		"image --secure-boot -v v1.4.0":          "no images for Secure Boot",
	} {
		out, _, err := f.run(append([]string{"genurl"}, strings.Fields(words)...)...)
		if err == nil || out != "" || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", words, out, err)
		}
	}

	if _, _, err := f.run("genurl", "installer", "-c", "FOLDER/talconfig.yaml", "-v", "v1.0.0"); err == nil {
		t.Error("a version beside a talconfig.yaml was ignored")
	}
}

func TestGencommand(t *testing.T) {
	f := newFolder(t)
	common := []string{"-c", "FOLDER/talconfig.yaml", "-o", "out dir"}

	for _, tt := range []struct{ words, want string }{
		{"apply", "talosctl apply-config '--talosconfig=out dir/talosconfig' --nodes=10.0.0.11 '--file=out dir/prod-cp-1.yaml' &&\n" +
			"talosctl apply-config '--talosconfig=out dir/talosconfig' --nodes=10.0.0.12 '--file=out dir/prod-w-1.yaml'\n"},
		{"upgrade -n w-1", "talosctl upgrade '--talosconfig=out dir/talosconfig' --nodes=10.0.0.12 " +
			"--image=registry.example.org/installer:v1.13.9\n"},
		{"upgrade-k8s", "talosctl upgrade-k8s '--talosconfig=out dir/talosconfig' --nodes=10.0.0.11 --to=v1.36.2\n"},
		{"bootstrap -n fd00::11", "talosctl bootstrap '--talosconfig=out dir/talosconfig' --nodes=fd00::11\n"},
		{"kubeconfig --extra-flags=--force", "talosctl kubeconfig '--talosconfig=out dir/talosconfig' --nodes=10.0.0.11 --force\n"},
		{"health", "talosctl health '--talosconfig=out dir/talosconfig' --nodes=10.0.0.11\n"},
		{"reset -n w-1", "talosctl reset '--talosconfig=out dir/talosconfig' --nodes=10.0.0.12\n"},
	} {
		words := append(append([]string{"gencommand"}, strings.Fields(tt.words)...), common...)
		if out := f.mustRun(words...); out != tt.want {
			t.Errorf("%s: got %s, want %s", tt.words, out, tt.want)
		}
	}

	for _, words := range []string{"reset", "bootstrap -n w-1", "apply -n unknown"} {
		if _, _, err := f.run(append(append([]string{"gencommand"}, strings.Fields(words)...), common...)...); err == nil {
			t.Errorf("%s was accepted", words)
		}
	}
}
