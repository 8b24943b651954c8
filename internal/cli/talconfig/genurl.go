package talconfig

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
	model "github.com/talos-operator/talos-operator/internal/talconfig"
)

// genurl prints the URLs of images: of the nodes of a talconfig.yaml, or of the flags.
type genurl struct {
	*environment
	source

	node, version, customization string
	image                        model.Image
	extensions, kernelArgs       []string
	off, isBoot                  bool
}

func newGenurlCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "genurl",
		Short: "Print the URLs of installer and boot images",
		Long: `Print the URLs of installer and boot images, of each node of a talconfig.yaml or of the flags. The ID of a
schematic is computed: no image factory is asked. A factory serves an image only once it knows the schematic.`,
	}
	cmd.AddCommand(newGenurlKind(env, false), newGenurlKind(env, true))

	return cmd
}

func newGenurlKind(env *environment, isBoot bool) *cobra.Command {
	g := &genurl{environment: env, isBoot: isBoot}

	cmd := &cobra.Command{
		Use:   "installer",
		Short: "Print the installer image of each node, or of the flags",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return g.run(cmd) },
	}

	flags := cmd.Flags()
	g.addPath(cmd)
	g.addEnv(cmd, "")
	flags.StringVarP(&g.node, "node", "n", "", "host name or address of one node")
	flags.StringVarP(&g.image.Factory.RegistryURL, "registry-url", "r", model.DefaultRegistry, "host of the image factory")
	flags.StringVarP(&g.version, "version", "v", model.DefaultTalosVersion, "Talos version")
	flags.StringSliceVarP(&g.extensions, "extension", "e", nil, "official extension, such as siderolabs/iscsi-tools")
	flags.StringArrayVarP(&g.kernelArgs, "kernel-arg", "k", nil, "kernel argument")
	flags.StringVarP(&g.image.Spec.Mode, "talos-mode", "m", "metal", "platform of the machine")
	flags.BoolVar(&g.image.Spec.Secureboot, "secure-boot", false, "image for Secure Boot")
	flags.BoolVar(&g.off, "offline-mode", false, "has no effect: no image factory is asked in any case")
	flags.StringVar(&g.customization, "customization-file", "", "file with a schematic, or with its customization")

	if isBoot {
		cmd.Use, cmd.Short = "image", "Print the boot image of each node, or of the flags"

		flags.StringVarP(&g.image.Spec.Arch, "arch", "a", "amd64", "architecture: amd64 or arm64")
		flags.StringVar(&g.image.Spec.BootMethod, "boot-method", model.BootISO, "iso, disk-image or pxe")
		flags.StringVar(&g.image.Spec.ImageSuffix, "suffix", "", "end of the file name of a disk image (default: raw.zst)")
		flags.BoolVar(&g.image.Spec.UseUKI, "use-uki", false, "unified kernel image instead of an ISO, for Secure Boot")
	}

	return cmd
}

// imageFlags are those that describe an image by themselves.
var imageFlags = []string{
	"registry-url", "version", "extension", "kernel-arg", "talos-mode", "secure-boot", "customization-file", "arch",
	"boot-method", "suffix", "use-uki",
}

func (g *genurl) run(cmd *cobra.Command) error {
	describes := slices.ContainsFunc(imageFlags, cmd.Flags().Changed)

	switch {
	case describes && (cmd.Flags().Changed("node") || cmd.Flags().Changed("config-file")):
		return errors.New("--node and --config-file take everything from the talconfig.yaml: leave out the other flags")
	case describes || !exists(g.path) && g.node == "":
		return g.ofFlags()
	}

	fleet, err := g.load(g.source, false)
	if err != nil {
		return err
	}

	nodes, err := selectNodes(fleet, g.node)
	if err != nil {
		return err
	}

	for _, m := range nodes {
		url, err := fleet.InstallerOf(m)
		if g.isBoot {
			url, err = fleet.BootImageOf(m)
		}

		if err != nil {
			return err
		}

		if g.node != "" {
			fmt.Fprintln(g.Out, url)
		} else {
			fmt.Fprintf(g.Out, "%s: %s\n", m.Hostname, url)
		}
	}

	return nil
}

func (g *genurl) ofFlags() error {
	schematic := &imagefactory.Schematic{}

	if g.customization != "" {
		raw, err := readSmall(g.customization)
		if err != nil {
			return fmt.Errorf("reading --customization-file: %w", err)
		}

		if schematic, err = model.ReadSchematic(g.customization, raw); err != nil {
			return err
		}
	}

	custom := &schematic.Customization
	custom.SystemExtensions.OfficialExtensions = append(custom.SystemExtensions.OfficialExtensions, g.extensions...)
	custom.ExtraKernelArgs = append(custom.ExtraKernelArgs, g.kernelArgs...)

	g.image.Version = cmp.Or(g.version, model.DefaultTalosVersion)
	if err := g.image.Check(schematic); err != nil {
		return fmt.Errorf("there is no such image: %w", err)
	}

	id, err := schematic.ID()
	if err != nil {
		return err
	}

	g.image.ID = id

	url, err := g.image.Installer()
	if g.isBoot {
		url, err = g.image.Boot()
	}

	if err != nil {
		return err
	}

	fmt.Fprintln(g.Out, url)

	return nil
}

// selectNodes returns all nodes, or the one with a host name or address.
func selectNodes(fleet fleetFile, name string) ([]*model.Machine, error) {
	var out []*model.Machine

	for i := range fleet.Nodes {
		m := &fleet.Nodes[i]
		if name == "" || isNamed(m, name) {
			out = append(out, m)
		}
	}

	if len(out) == 0 {
		return nil, fmt.Errorf("no node of the talconfig.yaml has the host name or address %s", name)
	}

	return out, nil
}
