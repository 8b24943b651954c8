// Package machine contains the commands about one machine: its configuration, its network, its images.
package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/patchsource"
)

// NewConfigCommand groups the commands about the configuration of one machine.
func NewConfigCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Show the machine config that the spec results in, and which part of the spec sets a field",
		Long: `Show the machine config that the spec results in, and which part of the spec sets a field. Nothing is
changed. The commands read the PKI of the cluster, and the ConfigMaps and Secrets that patches come from. Values that
may be secret are replaced by <redacted> unless --show-secrets is set.`,
	}
	cmd.AddCommand(newConfigRenderCommand(streams), newConfigDiffCommand(streams), newConfigExplainCommand(streams))

	return cmd
}

// configShower is a command about the configuration of one machine.
type configShower struct {
	*session.Session

	output  output.Format
	secrets bool
}

func (s *configShower) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.ValidArgsFunction = s.CompleteObjects(&v1alpha1.TalosMachineList{})
	cmd.Flags().BoolVar(&s.secrets, "show-secrets", false, "print secrets as they are")
	output.AddFlag(cmd, &s.output)

	return s.Attach(cmd)
}

// machineConfig is what decides the configuration of one machine.
type machineConfig struct {
	plane   *session.Plane
	cluster *session.Cluster
	sources desired.Sources
	// errOut gets what is odd about the configuration.
	errOut io.Writer
	// hidden are fields that patches from Secrets set in earlier configurations.
	hidden []string
}

func (s *configShower) load(ctx context.Context, name string) (*machineConfig, error) {
	if err := s.output.Validate(); err != nil {
		return nil, err
	}

	p, m, err := s.FindMachine(ctx, name)
	if err != nil {
		return nil, err
	}

	c, err := session.FindCluster(ctx, p, m.Spec.ControlPlaneRef.Name)
	if err != nil {
		return nil, err
	}

	out := &machineConfig{plane: p, cluster: c, errOut: s.ErrOut, sources: desired.Sources{
		ControlPlane: c.ControlPlane, Machine: m, Disk: m.Status.InstallDisk, Machines: c.Nodes,
	}}

	if ref := m.Spec.WorkerRef; ref != nil {
		if out.sources.Worker = c.Worker(ref.Name); out.sources.Worker == nil {
			return nil, fmt.Errorf("machine %s belongs to TalosWorker %s, which does not exist", name, ref.Name)
		}
	}

	return out, out.read(ctx, s.secrets)
}

// read reads what is not in the objects themselves. Where secrets are shown, errors may quote patches, too.
func (c *machineConfig) read(ctx context.Context, secrets bool) error {
	var err error
	if c.sources.State, err = access.LoadState(ctx, c.plane, c.cluster); err != nil {
		return err
	}

	m := c.sources.Machine

	stored, err := (&configstore.Store{Client: c.plane, Reader: c.plane}).Load(ctx, m)
	if err != nil {
		return err
	}

	c.hidden = stored.Hidden
	if len(m.Status.AdoptedFields) > 0 {
		c.sources.Adopted = stored.Adopted
	}

	from, err := patchsource.For(ctx, c.plane, c.sources.ControlPlane, c.sources.Worker, m)
	if err != nil {
		return err
	}

	c.sources.From = from.Patches

	for _, patches := range [][]machineconfig.Sourced{from.Cluster, from.Group, from.Machine} {
		for i := range patches {
			patches[i].Secret = patches[i].Secret && !secrets
		}
	}

	return nil
}

// render returns the desired configuration, as the operator renders it, and the fields in it that are hidden. It prints
// warnings about what is odd.
func (c *machineConfig) render() (config []byte, hidden []string, err error) {
	rendered, err := machineconfig.Render(desired.Input(c.sources))
	if err != nil {
		return nil, nil, fmt.Errorf("rendering the config of %s: %w", c.sources.Machine.Name, err)
	}

	for _, warning := range rendered.Warnings {
		fmt.Fprintln(c.errOut, "Warning: "+warning)
	}

	config, err = machineconfig.SetVersion(rendered.Bytes, c.sources.ControlPlane.Spec.KubernetesVersion,
		c.sources.Machine.Status.AdoptedFields)

	return config, slices.Concat(rendered.Hidden, c.hidden), err
}

// live reads the configuration from the node.
func (c *machineConfig) live(ctx context.Context) ([]byte, error) {
	x, err := access.NewNodes(c.plane, c.cluster, c.sources.State)
	if err != nil {
		return nil, err
	}
	defer x.Close()

	live, err := x.Live(ctx, c.sources.Machine)
	if err != nil {
		return nil, fmt.Errorf("reading the live config of %s: %w", c.sources.Machine.Name, err)
	}

	return live, nil
}

func newConfigRenderCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &configShower{Session: session.New(streams)}

	return s.command(&cobra.Command{
		Use:   "render MACHINE",
		Short: "Print the machine config that the spec results in",
		Long: `Print the machine config that the spec results in: the typed fields, with all patches, and with what was
adopted from the machine. Of the versions it has those of the spec, which an upgrade brings to the machine.

With --show-secrets the output holds the private keys of the cluster, and errors quote patches from Secrets.`,
		Example: `  talos-operator config render prod-w-0 -n clusters
  talos-operator config render prod-w-0 -o json | jq '.[].kind'`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.render(cmd.Context(), args[0]) },
	})
}

func (s *configShower) render(ctx context.Context, name string) error {
	c, err := s.load(ctx, name)
	if err != nil {
		return err
	}

	config, hidden, err := c.render()
	if err != nil {
		return err
	}

	if !s.secrets {
		if config, err = machineconfig.Mask(config, hidden); err != nil {
			return err
		}
	}

	if s.output != output.JSON {
		_, err = s.Out.Write(config)

		return err
	}

	documents, err := documentsOf(config)
	if err != nil {
		return err
	}

	return s.output.Print(s.Out, documents, nil)
}

// documentsOf returns the documents of a config for JSON, which has no streams of documents.
func documentsOf(config []byte) ([]json.RawMessage, error) {
	parts, err := machineconfig.Documents(config)
	if err != nil {
		return nil, err
	}

	out := make([]json.RawMessage, 0, len(parts))

	for _, part := range parts {
		data, err := yaml.YAMLToJSON(part)
		if err != nil {
			return nil, errors.New("the config has values that JSON cannot hold")
		}

		out = append(out, data)
	}

	return out, nil
}

func newConfigExplainCommand(streams genericiooptions.IOStreams) *cobra.Command {
	s := &configShower{Session: session.New(streams)}

	return s.command(&cobra.Command{
		Use:   "explain MACHINE",
		Short: "Show which part of the spec sets each field of a machine config",
		Long: `Show which part of the spec sets each field of a machine config, the last one where there are several:

  generated               what follows from the cluster: versions, endpoint, networks, PKI, the name of the machine
  fields of OBJECT        typed fields of a group or machine
  cluster[0], group[1]    an inline patch of that level, counted from 0
  Secret a, key b (group) a patch from a ConfigMap or Secret, with its level
  adopted[0]              what was adopted from the machine

An item of a list counts as set by the part that changed what stands at its place.`,
		Example: `  talos-operator config explain prod-w-0 -n clusters
  talos-operator config explain prod-w-0 | grep machine.kubelet`,
		RunE: func(cmd *cobra.Command, args []string) error { return s.explain(cmd.Context(), args[0]) },
	})
}

// origin is one field in the output of explain.
type origin struct {
	Field string `json:"field"`
	Value string `json:"value"`
	SetBy string `json:"setBy"`
}

func (s *configShower) explain(ctx context.Context, name string) error {
	c, err := s.load(ctx, name)
	if err != nil {
		return err
	}

	found, err := machineconfig.Explain(desired.Layers(c.sources), c.hidden, s.secrets)
	if err != nil {
		return fmt.Errorf("rendering the config of %s: %w", name, err)
	}

	fields := make([]origin, 0, len(found))
	for _, o := range found {
		fields = append(fields, origin{Field: o.Field, Value: o.Value, SetBy: o.Layer})
	}

	return s.output.Print(s.Out, fields, func(w io.Writer) { printOrigins(w, fields) })
}
