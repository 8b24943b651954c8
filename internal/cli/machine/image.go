package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/talconfig"
)

// longestSchematic limits a file with a schematic, in bytes.
const longestSchematic = 1 << 20

// NewImageCommand returns the command `image`.
func NewImageCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Print where images of Talos are",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newImageURLCommand(streams))

	return cmd
}

type imageTeller struct {
	*session.Session

	output output.Format
	file   string
	image  imagefactory.Image
}

// imageURLs is what -o prints.
type imageURLs struct {
	Machine    string `json:"machine,omitempty"`
	Version    string `json:"version"`
	Platform   string `json:"platform"`
	Arch       string `json:"arch"`
	SecureBoot bool   `json:"secureBoot"`
	// Schematic is its ID, SchematicText what a factory takes; empty where only the ID is known.
	Schematic     string `json:"schematic"`
	SchematicText string `json:"schematicText,omitempty"`
	Installer     string `json:"installer"`
	ISO           string `json:"iso,omitempty"`
	Disk          string `json:"disk,omitempty"`
	PXE           string `json:"pxe,omitempty"`
}

func newImageURLCommand(streams genericiooptions.IOStreams) *cobra.Command {
	t := &imageTeller{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "url [MACHINE]",
		Short: "Print the addresses of the images for a machine, or for a schematic",
		Long: `Print the addresses of ISO, disk image, network boot and installer for a machine as its spec describes it, or
for a schematic in a file. The ID of the schematic is computed, and no image factory is asked. A factory serves the
images once it knows the schematic: send it the field schematicText of -o json.`,
		Example: `  talos-operator image url prod-cp-0 -n clusters
  talos-operator image url --schematic schematic.yaml --version v1.13.9 --platform nocloud --arch arm64
  talos-operator image url prod-cp-0 -n clusters -o yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return t.run(cmd, args) },
	}

	flags := cmd.Flags()
	flags.StringVar(&t.file, "schematic", "", "file with a schematic, or with its customization")
	flags.StringVar(&t.image.Version, "version", "", "version of Talos (default: that of the cluster of the machine)")
	flags.StringVar(&t.image.Platform, "platform", "", "platform (default: that of the machine, or metal)")
	flags.StringVar(&t.image.Arch, "arch", imagefactory.DefaultArch, "amd64 or arm64")
	flags.BoolVar(&t.image.SecureBoot, "secure-boot", false, "images for Secure Boot")
	flags.StringVar(&t.image.Address, "factory", "", "URL of the image factory (default: https://factory.talos.dev)")
	flags.StringVar(&t.image.Registry, "registry", "", "registry of the installers (default: the host of the factory)")
	output.AddFlag(cmd, &t.output)

	return t.Attach(cmd)
}

func (t *imageTeller) run(cmd *cobra.Command, args []string) error {
	if err := t.output.Validate(); err != nil {
		return err
	}

	var (
		result imageURLs
		err    error
	)

	switch {
	case t.image.Arch != "amd64" && t.image.Arch != "arm64":
		return fmt.Errorf("unknown architecture %q: use amd64 or arm64", t.image.Arch)
	case len(args) == 1:
		for _, flag := range []string{"schematic", "version", "platform", "secure-boot", "factory", "registry"} {
			if cmd.Flags().Changed(flag) {
				return fmt.Errorf("the spec of %s says what its image is: leave --%s out, or the machine", args[0], flag)
			}
		}

		result, err = t.ofMachine(cmd.Context(), args[0])
	case t.file == "" || t.image.Version == "":
		return errors.New("name a machine, or a file with --schematic and a version of Talos with --version")
	default:
		result, err = t.ofFile()
	}

	if err != nil {
		return err
	}

	return t.output.Print(t.Out, result, result.text)
}

// ofFile reads the schematic.
func (t *imageTeller) ofFile() (imageURLs, error) {
	file, err := os.Open(t.file)
	if err != nil {
		return imageURLs{}, fmt.Errorf("reading --schematic: %w", err)
	}
	defer file.Close()

	raw, err := io.ReadAll(io.LimitReader(file, longestSchematic))
	if err != nil {
		return imageURLs{}, fmt.Errorf("reading --schematic: %w", err)
	}

	if t.image.Schematic, err = talconfig.ReadSchematic(t.file, raw); err != nil {
		return imageURLs{}, err
	}

	return urlsOf(t.image, "")
}

// ofMachine reads the spec of a machine, of its group and of its control plane.
func (t *imageTeller) ofMachine(ctx context.Context, name string) (imageURLs, error) {
	p, m, err := t.FindMachine(ctx, name)
	if err != nil {
		return imageURLs{}, err
	}

	from := desired.Sources{Machine: m, ControlPlane: &v1alpha1.TalosControlPlane{}}

	key := client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.ControlPlaneRef.Name}
	if err := p.Get(ctx, key, from.ControlPlane); err != nil {
		return imageURLs{}, fmt.Errorf("reading TalosControlPlane %s: %w", key.Name, err)
	}

	if ref := m.Spec.WorkerRef; ref != nil {
		from.Worker = &v1alpha1.TalosWorker{}

		key.Name = ref.Name
		if err := p.Get(ctx, key, from.Worker); err != nil {
			return imageURLs{}, fmt.Errorf("reading TalosWorker %s: %w", key.Name, err)
		}
	}

	image, installer := from.Image(), from.Install().Image

	if image == nil {
		var named bool

		version := from.ControlPlane.Spec.TalosVersion
		image = &imagefactory.Image{}

		if *image, named = imagefactory.Parse(installer); installer == "" {
			installer = machineconfig.DefaultInstallImage(version)
		} else if !named {
			return imageURLs{}, fmt.Errorf("%s is installed with %s, which names no schematic: nothing is known of its other "+
				"images", m.Name, installer)
		}

		image.Version = version
		if f := from.Install().Factory; f != nil {
			image.Address = f.Address
		}
	}

	image.Arch = t.image.Arch

	out, err := urlsOf(*image, installer)
	out.Machine = m.Name

	return out, err
}

// urlsOf makes the addresses of an image. installer replaces that of the factory.
func urlsOf(image imagefactory.Image, installer string) (imageURLs, error) {
	if problems := image.Check(); len(problems) > 0 {
		return imageURLs{}, fmt.Errorf("%s: %s; %s", problems[0].Field, problems[0].Text, problems[0].Remedy)
	}

	text, err := schematicText(image)
	if err != nil {
		return imageURLs{}, err
	}

	if image, err = image.Resolve(); err != nil {
		return imageURLs{}, err
	}

	if installer == "" {
		installer = image.Installer()
	}

	out := imageURLs{
		Version: image.Version, Platform: image.Platform, Arch: image.Arch, SecureBoot: image.SecureBoot,
		Schematic: image.ID, SchematicText: text, Installer: installer,
	}

	methods := imagefactory.BootsFrom(image.Platform)
	if slices.Contains(methods, talconfig.BootISO) {
		out.ISO = image.ISO()
	}

	if slices.Contains(methods, talconfig.BootDisk) {
		out.Disk = image.Disk(imagefactory.DiskSuffix(image.Platform, image.Version))
	}

	if slices.Contains(methods, talconfig.BootPXE) {
		out.PXE = image.PXE()
	}

	return out, nil
}

func schematicText(image imagefactory.Image) (string, error) {
	if image.ID != "" {
		return "", nil
	}

	schematic := image.Schematic
	if schematic == nil {
		schematic = &imagefactory.Schematic{}
	}

	text, err := schematic.Text()

	return string(text), err
}

func (u imageURLs) text(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer table.Flush() //nolint:errcheck // output to a terminal, as of Fprintf

	machine := u.Platform + ", " + u.Arch
	if u.SecureBoot {
		machine += ", Secure Boot"
	}

	fmt.Fprintf(table, "Talos\t%s (%s)\n", u.Version, machine)

	for _, line := range [][2]string{
		{"Schematic", u.Schematic}, {"Installer", u.Installer}, {"ISO", u.ISO}, {"Disk image", u.Disk}, {"PXE script", u.PXE},
	} {
		if line[1] != "" {
			fmt.Fprintln(table, strings.Join(line[:], "\t"))
		}
	}
}
