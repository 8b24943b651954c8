package desired_test

import (
	"strings"
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

const version = "v1.13.9"

func sources(cluster *v1alpha1.ImageOptions, group, machine *v1alpha1.InstallOptions) desired.Sources {
	cp, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{}
	cp.Spec.TalosVersion, cp.Spec.ClusterImage, cp.Spec.Install, m.Spec.Install = version, cluster, group, machine

	return desired.Sources{ControlPlane: cp, Machine: m}
}

func image(o v1alpha1.ImageOptions) *v1alpha1.InstallOptions {
	return &v1alpha1.InstallOptions{ImageOptions: o}
}

// TestImage: which installer a machine gets from the options of its cluster, its group and itself.
func TestImage(t *testing.T) {
	yes, no := true, false
	id := strings.Repeat("0a", 32)
	gvisor := &v1alpha1.Schematic{Extensions: []string{"siderolabs/gvisor", "siderolabs/amd-ucode"}}
	known := &v1alpha1.Schematic{ID: id}
	own := &v1alpha1.ImageFactory{Address: "https://factory.example", Registry: "mirror.example/talos"}

	for name, c := range map[string]struct {
		cluster        *v1alpha1.ImageOptions
		group, machine *v1alpha1.InstallOptions
		want           string
	}{
		"nothing":       {nil, nil, nil, ""},
		"an image":      {nil, &v1alpha1.InstallOptions{Image: "mine/installer:v1.13.9"}, nil, ""},
		"of a cluster":  {&v1alpha1.ImageOptions{Schematic: known}, nil, nil, "factory.talos.dev/metal-installer/" + id + ":v1.13.9"},
		"of a group":    {nil, image(v1alpha1.ImageOptions{Schematic: known}), nil, "factory.talos.dev/metal-installer/" + id + ":v1.13.9"},
		"of a machine":  {&v1alpha1.ImageOptions{Schematic: gvisor}, nil, image(v1alpha1.ImageOptions{Schematic: known}), id},
		"inline":        {nil, image(v1alpha1.ImageOptions{Schematic: gvisor}), nil, "/metal-installer/a993cf18"},
		"a factory":     {&v1alpha1.ImageOptions{Factory: own}, image(v1alpha1.ImageOptions{Schematic: known}), nil, "mirror.example/talos/metal-installer/" + id},
		"a platform":    {nil, image(v1alpha1.ImageOptions{Platform: "nocloud"}), nil, "/nocloud-installer/376567988ad3"},
		"Secure Boot":   {nil, image(v1alpha1.ImageOptions{SecureBoot: &yes}), nil, "/metal-installer-secureboot/376567988ad3"},
		"without":       {&v1alpha1.ImageOptions{SecureBoot: &yes}, nil, image(v1alpha1.ImageOptions{SecureBoot: &no}), ""},
		"by two levels": {&v1alpha1.ImageOptions{SecureBoot: &yes}, image(v1alpha1.ImageOptions{Schematic: known}), nil, "/metal-installer-secureboot/" + id},
		"an image in place of a schematic": {
			nil, image(v1alpha1.ImageOptions{Schematic: known}), &v1alpha1.InstallOptions{Image: "mine/installer:v1.13.9"}, "",
		},
		"a schematic in place of an image": {
			nil, &v1alpha1.InstallOptions{Image: "mine/installer:v1.13.9"}, image(v1alpha1.ImageOptions{Schematic: known}), id,
		},
	} {
		got := ""

		if image := sources(c.cluster, c.group, c.machine).Image(); image != nil {
			resolved, err := image.Resolve()
			if err != nil {
				t.Fatal(err)
			}

			got = resolved.Installer()
		}

		if !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// TestSchematicOfSpec: each field of a schematic gets to the factory's.
func TestSchematicOfSpec(t *testing.T) {
	o := image(v1alpha1.ImageOptions{Schematic: &v1alpha1.Schematic{
		Extensions: []string{"siderolabs/gvisor"}, ExtraKernelArgs: []string{"noapic"},
		Overlay: &v1alpha1.SchematicOverlay{
			Image: "siderolabs/sbc-raspberrypi", Name: "rpi_5", Options: map[string]string{"configTxtAppend": "a=b"},
		},
		Meta: []v1alpha1.SchematicMeta{{Key: 10, Value: "foo"}}, Bootloader: "sd-boot",
		SecureBootCertificates: v1alpha1.WellKnownCertificates,
	}})

	text, err := sources(nil, o, nil).Image().Schematic.Text()
	if err != nil {
		t.Fatal(err)
	}

	want := `overlay:
    image: siderolabs/sbc-raspberrypi
    name: rpi_5
    options:
        configTxtAppend: a=b
customization:
    extraKernelArgs:
        - noapic
    meta:
        - key: 10
          value: foo
    systemExtensions:
        officialExtensions:
            - siderolabs/gvisor
    bootloader: sd-boot
    secureboot:
        includeWellKnownCertificates: true
`
	if string(text) != want {
		t.Errorf("got\n%s", text)
	}
}

// TestCheckImage: what no factory builds is refused where the options of several levels come together, too, with the
// level that sets the field.
func TestCheckImage(t *testing.T) {
	yes := true
	pi := &v1alpha1.Schematic{Overlay: &v1alpha1.SchematicOverlay{Image: "siderolabs/sbc-raspberrypi", Name: "rpi_generic"}}
	stock := &v1alpha1.InstallOptions{Image: "ghcr.io/siderolabs/installer:v1.13.9"}
	secure := v1alpha1.ImageOptions{SecureBoot: &yes}

	for name, c := range map[string]struct {
		cluster        *v1alpha1.ImageOptions
		group, machine *v1alpha1.InstallOptions
		field          string
	}{
		"nothing": {nil, nil, nil, ""},
		"a board": {nil, image(v1alpha1.ImageOptions{Schematic: pi}), nil, ""},
		"a board on nocloud": {
			&v1alpha1.ImageOptions{Platform: "nocloud"}, image(v1alpha1.ImageOptions{Schematic: pi}), nil,
			"TalosControlPlane c: spec.install.schematic.overlay",
		},
		"of one machine": {
			&v1alpha1.ImageOptions{Platform: "nocloud"}, nil, image(v1alpha1.ImageOptions{Schematic: pi}),
			"machine m: install.schematic.overlay",
		},
		"no platform": {&v1alpha1.ImageOptions{Platform: "vsphere"}, nil, nil, "TalosControlPlane c: spec.clusterImage.platform"},
		"not signed":  {&secure, stock, nil, "TalosControlPlane c: spec.install.image"},
		"nor that of one machine": {
			&secure, image(v1alpha1.ImageOptions{Schematic: &v1alpha1.Schematic{ID: strings.Repeat("0a", 32)}}), stock,
			"machine m: install.image",
		},
		"who knows": {&secure, &v1alpha1.InstallOptions{Image: "mine/installer:v1.13.9"}, nil, ""},
	} {
		from := sources(c.cluster, c.group, c.machine)
		from.ControlPlane.Name, from.Machine.Name, from.State = "c", "m", &clusterstate.State{Bundle: &clusterstate.Bundle{}}

		got := ""
		if refused := desired.Input(from).Install.Refused; refused != nil {
			got = refused.Field
		}

		if got != c.field {
			t.Errorf("%s: got %q, want %q", name, got, c.field)
		}
	}
}
