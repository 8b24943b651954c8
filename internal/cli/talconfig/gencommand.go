package talconfig

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	model "github.com/talos-operator/talos-operator/internal/talconfig"
)

// gencommand prints commands of talosctl.
type gencommand struct {
	*environment
	source

	outDir, node string
	extra        []string
	off, all     bool
}

// verb is one command of talosctl.
type verb struct {
	name, short string
	// talosctl is the name of the command there.
	talosctl string
	// onlyFirst is set for what is asked of one control plane.
	onlyFirst bool
	// mustChoose is set for what must not meet all nodes by an oversight.
	mustChoose bool
	// flags of the command for a node.
	flags func(g *gencommand, fleet fleetFile, m *model.Machine) ([]string, error)
}

func noFlags(*gencommand, fleetFile, *model.Machine) ([]string, error) { return nil, nil }

var verbs = []verb{
	{
		name: "apply", short: "Print the commands that apply the machine configs", talosctl: "apply-config",
		flags: func(g *gencommand, fleet fleetFile, m *model.Machine) ([]string, error) {
			name, err := fleet.Filename(m)

			return []string{"--file=" + filepath.Join(g.outDir, name)}, err
		},
	},
	{
		name: "upgrade", short: "Print the commands that upgrade Talos", talosctl: "upgrade",
		flags: func(_ *gencommand, fleet fleetFile, m *model.Machine) ([]string, error) {
			image, err := fleet.InstallerOf(m)

			return []string{"--image=" + image}, err
		},
	},
	{
		name: "upgrade-k8s", short: "Print the command that upgrades Kubernetes", talosctl: "upgrade-k8s", onlyFirst: true,
		flags: func(_ *gencommand, fleet fleetFile, _ *model.Machine) ([]string, error) {
			return []string{"--to=v" + strings.TrimPrefix(fleet.Config.KubernetesVersion, "v")}, nil
		},
	},
	{
		name: "bootstrap", short: "Print the command that bootstraps etcd", talosctl: "bootstrap", onlyFirst: true,
		flags: noFlags,
	},
	{
		name: "kubeconfig", short: "Print the command that gets a kubeconfig", talosctl: "kubeconfig", onlyFirst: true,
		flags: noFlags,
	},
	{
		name: "reset", short: "Print the commands that wipe nodes", talosctl: "reset", mustChoose: true, flags: noFlags,
	},
	{
		name: "health", short: "Print the command that checks the cluster", talosctl: "health", onlyFirst: true,
		flags: noFlags,
	},
}

func newGencommandCommand(env *environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gencommand",
		Short: "Print commands of talosctl for the nodes",
		Long: `Print commands of talosctl for the nodes of a talconfig.yaml, one a line. Nothing is run, and nothing is
checked: the operator upgrades and changes machines one by one, with etcd's quorum kept.`,
	}

	for _, v := range verbs {
		cmd.AddCommand(newVerb(env, v))
	}

	return cmd
}

func newVerb(env *environment, v verb) *cobra.Command {
	g := &gencommand{environment: env}

	cmd := &cobra.Command{
		Use:   v.name,
		Short: v.short,
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return g.run(v) },
	}
	g.addPath(cmd)
	g.addEnv(cmd, "e")
	cmd.Flags().StringVarP(&g.outDir, "out-dir", "o", defaultOutDir, "folder with the generated files")
	cmd.Flags().StringVarP(&g.node, "node", "n", "", "host name or address of one node")
	cmd.Flags().StringArrayVar(&g.extra, "extra-flags", nil, "further flag of the command")

	if v.name == "upgrade" {
		cmd.Flags().BoolVar(&g.off, "offline-mode", false, "has no effect: no image factory is asked in any case")
	}

	if v.mustChoose {
		cmd.Flags().BoolVar(&g.all, "all", false, "all nodes")
	}

	return cmd
}

func (g *gencommand) run(v verb) error {
	if v.mustChoose && (g.node == "") == !g.all {
		return errors.New("name one node with --node, or all of them with --all: the command wipes the disks")
	}

	fleet, err := g.load(g.source, false)
	if err != nil {
		return err
	}

	nodes, err := selectNodes(fleet, g.node)
	if err != nil {
		return err
	}

	if v.onlyFirst {
		first := slices.IndexFunc(nodes, func(m *model.Machine) bool { return m.ControlPlane })
		if first < 0 {
			return fmt.Errorf("node %s is not a control plane: talosctl %s is asked of one", g.node, v.talosctl)
		}

		nodes = nodes[first : first+1]
	}

	lines := make([]string, 0, len(nodes))

	for _, m := range nodes {
		own, err := v.flags(g, fleet, m)
		if err != nil {
			return err
		}

		// A node with several addresses is one node.
		address := m.Addresses()[0]
		if slices.Contains(m.Addresses(), g.node) {
			address = g.node
		}

		words := []string{"talosctl", v.talosctl, "--talosconfig=" + filepath.Join(g.outDir, talosconfigName)}
		words = append(append(words, "--nodes="+address), own...)
		words = append(words, g.extra...)

		for i, word := range words {
			words[i] = quote(word)
		}

		lines = append(lines, strings.Join(words, " "))
	}

	// A node that fails ends the list: the next one may be the one that etcd needs.
	fmt.Fprintln(g.Out, strings.Join(lines, " &&\n"))

	return nil
}

// plain are the characters that a shell leaves alone.
const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:=@%+,"

// quote keeps a shell from reading a word as more than that.
func quote(word string) string {
	if strings.Trim(word, plain) == "" {
		return word
	}

	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
