// Package importer contains the command that takes over a cluster which was made by other means.
package importer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
)

type importer struct {
	*session.Session

	talosconfig, talosContext string
	secrets, config           string
	nodes                     []string
	dryRun                    bool
	wait                      time.Duration
	output                    output.Format
}

// importResult is what -o prints. It contains no secrets.
type importResult struct {
	Cluster           string `json:"cluster"`
	TalosVersion      string `json:"talosVersion"`
	KubernetesVersion string `json:"kubernetesVersion"`
	// Contract is the version contract that the configurations were generated with.
	Contract    string `json:"contract"`
	Endpoint    string `json:"endpoint"`
	Fingerprint string `json:"fingerprint"`
	// Machines that are imported.
	Machines []importedMachine `json:"machines"`
	// Objects that are, or would be, created.
	Objects []string `json:"objects"`
	// ControlPlane and Worker are the objects themselves.
	ControlPlane *v1alpha1.TalosControlPlane `json:"controlPlane"`
	Worker       *v1alpha1.TalosWorker       `json:"worker,omitempty"`
	Warnings     []string                    `json:"warnings,omitempty"`
	// Imported is false after a dry run; Adopted is true once the operator has found every machine in its desired state.
	Imported bool `json:"imported"`
	Adopted  bool `json:"adopted"`
}

// importedMachine is one machine.
type importedMachine struct {
	Name       string        `json:"name"`
	Role       v1alpha1.Role `json:"role"`
	Address    string        `json:"address"`
	Schematic  string        `json:"schematic,omitempty"`
	Extensions []string      `json:"extensions,omitempty"`
	// Differs names the fields that would change. It must be empty for an import.
	Differs []string `json:"differs"`
	// Kept names the fields that are stored in the Secret of the machine, because they may be secret.
	Kept []string `json:"kept,omitempty"`
}

// NewCommand returns the command `import`.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	i := &importer{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "import NAME --talosconfig FILE (--secrets FILE | --controlplane-config FILE)",
		Short: "Take over a running cluster that was made elsewhere, without a change to its nodes",
		Long: `Take over a running cluster that was made elsewhere, without a change to its nodes: with the same PKI, no
reboot and no bootstrap. The nodes are asked what they run, and the objects are written so that they ask for exactly
that. What may hold a secret stays out of them and in a Secret of its machine.

A cluster that cannot be taken over unchanged is refused with the reason, and nothing is created. The objects stay
paused until all of them are there. After a failure or a crash at any point the same command goes on.`,
		Example: `  talos-operator import prod -n clusters --talosconfig talosconfig --secrets secrets.yaml --dry-run
  talos-operator import prod -n clusters --talosconfig talosconfig --controlplane-config controlplane.yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return i.run(cmd.Context(), args[0]) },
	}

	f := cmd.Flags()
	f.StringVar(&i.talosconfig, "talosconfig", "", "talosconfig of the cluster (required)")
	f.StringVar(&i.talosContext, "talos-context", "", "context in the talosconfig (default: its current one)")
	f.StringVar(&i.secrets, "secrets", "", "secrets bundle of the cluster, as of talosctl gen secrets")
	f.StringVar(&i.config, "controlplane-config", "", "machine config of a control-plane node")
	f.StringSliceVar(&i.nodes, "nodes", nil, "addresses of all nodes to take over (default: those that discovery knows, "+
		"else those of the talosconfig)")
	f.BoolVar(&i.dryRun, "dry-run", false, "check everything and show what would be created; create nothing")
	f.DurationVar(&i.wait, "wait", 2*time.Minute, "how long to wait until the operator has taken every machine over; "+
		"0 does not wait")
	output.AddFlag(cmd, &i.output)

	_ = cmd.MarkFlagRequired("talosconfig")
	cmd.MarkFlagsOneRequired("secrets", "controlplane-config")
	cmd.MarkFlagsMutuallyExclusive("secrets", "controlplane-config")

	for _, name := range []string{"talosconfig", "secrets", "controlplane-config"} {
		_ = cmd.MarkFlagFilename(name)
	}

	return i.Attach(cmd)
}

func (i *importer) run(ctx context.Context, name string) error {
	if err := i.output.Validate(); err != nil {
		return err
	}

	material, err := i.material()
	if err != nil {
		return err
	}

	p, err := i.Open()
	if err != nil {
		return err
	}

	t, err := newTakeover(p, name, material)
	if err != nil {
		return err
	}
	defer t.pool.Close()

	if err := t.prepare(ctx, i.nodes); err != nil {
		return fmt.Errorf("the cluster is not imported, and nothing was created: %w", err)
	}

	if !i.dryRun {
		if err := t.create(ctx); err != nil {
			return fmt.Errorf("%w; run the command again to go on", err)
		}

		if err := t.adopted(ctx, i.wait); err != nil {
			return err
		}
	}

	result := t.result(!i.dryRun, !i.dryRun && i.wait > 0)

	for _, w := range result.Warnings {
		fmt.Fprintln(i.ErrOut, "Warning:", w)
	}

	return i.output.Print(i.Out, result, result.text)
}

// material reads the files.
func (i *importer) material() (*clusterimport.Material, error) {
	talosconfig, err := os.ReadFile(i.talosconfig)
	if err != nil {
		return nil, fmt.Errorf("reading --talosconfig: %w", err)
	}

	if i.secrets == "" && i.config == "" {
		return nil, errors.New("name the PKI of the cluster with --secrets or --controlplane-config")
	}

	pki, err := os.ReadFile(i.secrets + i.config)
	if err != nil {
		return nil, fmt.Errorf("reading the PKI of the cluster: %w", err)
	}

	return clusterimport.ReadMaterial(talosconfig, i.talosContext, pki)
}

func (r *importResult) text(w io.Writer) {
	fmt.Fprintf(w, "Cluster %s at %s: Talos %s, Kubernetes %s, configs of %s.\n\n", r.Cluster, r.Endpoint, r.TalosVersion,
		r.KubernetesVersion, r.Contract)

	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(tw, "MACHINE\tROLE\tADDRESS\tCHANGES\tKEPT IN ITS SECRET")

	for _, m := range r.Machines {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", m.Name, m.Role, m.Address, output.OrNone(m.Differs), output.OrNone(m.Kept))
	}

	_ = tw.Flush() // the underlying writer reports its own errors

	verb := "Would create"
	if r.Imported {
		verb = "Created"
	}

	fmt.Fprintf(w, "\n%s %s.\n", verb, strings.Join(r.Objects, ", "))

	switch {
	case r.Adopted:
		fmt.Fprintf(w, "Cluster %s is taken over: its plan is empty, and nothing was changed on its nodes.\n", r.Cluster)
	case r.Imported:
		fmt.Fprintf(w, "The operator adopts the machines as they run; talos-operator plan %s shows when it has.\n",
			r.ControlPlane.Name)
	}
}
