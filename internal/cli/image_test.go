package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// iscsi is the ID that the image factory gives a schematic with the extension siderolabs/iscsi-tools.
const iscsi = "c9078f9419961640c712a8bf2bb9174933dfcf1da383fd8ea2b7dc21493f8bac"

type imageAnswer struct {
	Machine, Version, Platform, Arch, Schematic, SchematicText, Installer, ISO, Disk, PXE string
	SecureBoot                                                                            bool
}

// TestImageOfFile: the addresses of a schematic, without a cluster.
func TestImageOfFile(t *testing.T) {
	s := &shell{t: t}
	t.Setenv("KUBECONFIG", "/nonexistent")

	file := filepath.Join(t.TempDir(), "schematic.yaml")
	if err := os.WriteFile(file, []byte("systemExtensions: {officialExtensions: [siderolabs/iscsi-tools]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	out, _, failed := s.run("image", "url", "--schematic", file, "--version", talosV, "--platform", "nocloud", "--arch", "arm64",
		"--secure-boot")
	want := `Talos       v1.13.9 (nocloud, arm64, Secure Boot)
Schematic   ` + iscsi + `
Installer   factory.talos.dev/nocloud-installer-secureboot/` + iscsi + `:v1.13.9
ISO         https://factory.talos.dev/image/` + iscsi + `/v1.13.9/nocloud-arm64-secureboot.iso
Disk image  https://factory.talos.dev/image/` + iscsi + `/v1.13.9/nocloud-arm64-secureboot.raw.xz
PXE script  https://factory.talos.dev/pxe/` + iscsi + `/v1.13.9/nocloud-arm64-secureboot
`

	if failed != "" || out != want {
		t.Errorf("%s\ngot\n%s", failed, out)
	}

	for format, decode := range map[string]func([]byte, any) error{
		"json": json.Unmarshal,
		"yaml": func(data []byte, into any) error { return yaml.Unmarshal(data, into) },
	} {
		out, _, failed := s.run("image", "url", "--schematic", file, "--version", talosV, "--platform", "oracle", "-o", format)

		var got imageAnswer
		if err := decode([]byte(out), &got); err != nil {
			t.Fatal(err, failed)
		}

		// What has no ISO is not given one.
		if got.Schematic != iscsi || !strings.Contains(got.SchematicText, "siderolabs/iscsi-tools") || got.ISO != "" ||
			!strings.HasSuffix(got.Disk, "/oracle-amd64.qcow2") {
			t.Errorf("%s: %+v", format, got)
		}
	}

	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":          {nil, "name a machine"},
		"no version":       {[]string{"--schematic", file}, "--version"},
		"no such platform": {[]string{"--schematic", file, "--version", talosV, "--platform", "vsphere"}, "use one of metal"},
		"no such machine":  {[]string{"--schematic", file, "--version", talosV, "--arch", "mips"}, "use amd64 or arm64"},
		"both":             {[]string{"cp-0", "--platform", "aws"}, "leave --platform out"},
		"no file":          {[]string{"--schematic", file + "x", "--version", talosV}, "reading --schematic"},
	} {
		if _, _, failed := s.run(append([]string{"image", "url"}, c.args...)...); !strings.Contains(failed, c.want) {
			t.Errorf("%s: %s", name, failed)
		}
	}
}

// TestImageOfMachine: the addresses follow from the spec of a machine, of its group and of its cluster.
func TestImageOfMachine(t *testing.T) {
	s := newShellOf(t, "view")
	sample := s.sample("images")
	cp, w := sample.cp, sample.worker

	save := func(o client.Object) {
		if err := s.client.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	ask := func(machine string) (got imageAnswer) {
		out, _, failed := s.run("image", "url", machine, "-o", "json")
		if failed != "" {
			t.Error(failed)
		}

		if err := json.Unmarshal([]byte(out), &got); err != nil {
			t.Error(err)
		}

		return got
	}

	if got := ask("images-cp"); got.Installer != "ghcr.io/siderolabs/installer:v1.13.9" || !strings.Contains(got.ISO, "/376567988ad3") {
		t.Errorf("%+v", got)
	}

	cp.Spec.ClusterImage = &v1alpha1.ImageOptions{Schematic: &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}}}
	w.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{
		SecureBoot: new(true), Factory: &v1alpha1.ImageFactory{Address: "https://factory.example", Registry: "mirror.example/talos"},
	}}

	save(cp)
	save(w)

	got := ask("images-w-0")
	if got.Machine != "images-w-0" || got.Installer != "mirror.example/talos/metal-installer-secureboot/"+iscsi+":v1.13.9" ||
		got.ISO != "https://factory.example/image/"+iscsi+"/v1.13.9/metal-amd64-secureboot.iso" || !got.SecureBoot {
		t.Errorf("%+v", got)
	}

	w.Spec.Install = &v1alpha1.InstallOptions{Image: "mirror.example/aws-installer/" + iscsi + ":v1.13.9"}
	save(w)

	if got := ask("images-w-0"); got.Platform != "aws" || got.Installer != w.Spec.Install.Image || got.Schematic != iscsi {
		t.Errorf("%+v", got)
	}

	w.Spec.Install.Image = "mirror.example/mine:v1.13.9"
	save(w)

	if _, _, failed := s.run("image", "url", "images-w-0"); !strings.Contains(failed, "names no schematic") {
		t.Error(failed)
	}
}
