// Package access gives access to a cluster without the operator: it exports the credentials and machine configs of
// one, and connects commands to its nodes.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/patchsource"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// Names of the files, as in talosctl.
const (
	FileTalosconfig = "talosconfig"
	FileKubeconfig  = "kubeconfig"
	fileSecrets     = "secrets.yaml"
)

// Sources of a machine configuration.
const (
	sourceNode     = "node"
	sourceRendered = "rendered"
)

// TTL is the validity of the credentials that the command itself uses.
const TTL = time.Hour

// exportResult is what -o prints. It contains no secrets.
type exportResult struct {
	Cluster        string                  `json:"cluster"`
	Directory      string                  `json:"directory"`
	DeletionPolicy v1alpha1.DeletionPolicy `json:"deletionPolicy"`
	Files          []output.File           `json:"files"`
}

type exporter struct {
	*session.Session

	dir    string
	force  bool
	output output.Format
}

// NewExportCommand returns the command `export`.
func NewExportCommand(streams genericiooptions.IOStreams) *cobra.Command {
	e := &exporter{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "export CLUSTER",
		Short: "Write everything that is needed to run a cluster without the operator",
		Long: `Write everything that is needed to run a cluster without the operator, in the files that talosctl uses:
talosconfig, kubeconfig, secrets.yaml (as of talosctl gen secrets), and the machine config of every machine below
controlplane/ and worker/. A config is the one that the node has now; that of an unreachable node is
rendered from the spec, with a warning. Nothing is changed, neither here nor on a node.

The files hold root credentials. They are readable by their owner only.`,
		Example: `  talos-operator export prod -n clusters --dir prod-export
  talosctl --talosconfig prod-export/talosconfig version`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: e.CompleteCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&e.dir, "dir", "", "folder to write to (default: the name of the cluster)")
	cmd.Flags().BoolVar(&e.force, "force", false, "overwrite files that exist")
	output.AddFlag(cmd, &e.output)

	return e.Attach(cmd)
}

func (e *exporter) run(ctx context.Context, name string) error {
	if err := e.output.Validate(); err != nil {
		return err
	}

	p, err := e.Open()
	if err != nil {
		return err
	}

	c, err := session.FindCluster(ctx, p, name)
	if err != nil {
		return err
	}

	files, err := collectExport(ctx, p, c)
	if err != nil {
		return err
	}

	dir := cmp.Or(e.dir, name)
	if err := output.WriteFiles(dir, files, e.force); err != nil {
		return err
	}

	for _, f := range files {
		if f.Warning != "" {
			fmt.Fprintln(e.ErrOut, "Warning:", f.Warning)
		}
	}

	result := exportResult{
		Cluster: c.Name(), Directory: dir, Files: files,
		DeletionPolicy: cmp.Or(c.ControlPlane.Spec.DeletionPolicy, v1alpha1.DeletionPreserve),
	}

	return e.output.Print(e.Out, result, result.text)
}

func (r exportResult) text(w io.Writer) {
	fmt.Fprintf(w, "Wrote %d files of cluster %s to %s. They hold root credentials.\n",
		len(r.Files), r.Cluster, r.Directory)

	if r.DeletionPolicy == v1alpha1.DeletionReset {
		fmt.Fprintln(w, "deletionPolicy is Reset: deleting the objects wipes the nodes. "+
			"Set it to Preserve to leave them running.")
	}
}

// collectExport creates all files in memory, so that either all or none are written.
func collectExport(ctx context.Context, p *session.Plane, c *session.Cluster) ([]output.File, error) {
	state, err := LoadState(ctx, p, c)
	if err != nil {
		return nil, err
	}

	files, err := credentialFiles(c, state, clock.RealClock{}.Now())
	if err != nil {
		return nil, err
	}

	x, err := NewNodes(p, c, state)
	if err != nil {
		return nil, err
	}
	defer x.Close()

	configs, err := x.all(ctx)

	return append(files, configs...), err
}

// LoadState reads the state of a cluster, with its PKI.
func LoadState(ctx context.Context, p *session.Plane, c *session.Cluster) (*clusterstate.State, error) {
	store := &clusterstate.Store{Client: p, Reader: p, Clock: clock.RealClock{}}
	key := types.NamespacedName{Namespace: c.ControlPlane.Namespace, Name: c.ControlPlane.Name}

	held, err := store.Load(ctx, key)
	if errors.Is(err, clusterstate.ErrNotFound) {
		return nil, fmt.Errorf("cluster %s has no Secret %s: it has no PKI yet, or has lost it",
			c.Name(), clusterstate.SecretName(key.Name))
	}

	if err != nil {
		return nil, err
	}

	return held.State, held.State.CheckCluster(c.Name())
}

// credentialFiles returns new credentials from the PKI, which are valid for a year from now on.
func credentialFiles(c *session.Cluster, state *clusterstate.State, now time.Time) ([]output.File, error) {
	var endpoints, nodes []string

	for i := range c.Nodes {
		address := evidence.Address(&c.Nodes[i])
		if address == "" {
			continue
		}

		nodes = append(nodes, address)

		if c.Nodes[i].Spec.Role == v1alpha1.RoleControlPlane {
			endpoints = append(endpoints, address)
		}
	}

	talosconfig, err := state.Bundle.Talosconfig(
		clusterstate.TalosconfigParams{ClusterName: c.Name(), Endpoints: endpoints, Nodes: nodes}, now)
	if err != nil {
		return nil, err
	}

	kubeconfig, err := state.Bundle.Kubeconfig(
		clusterstate.KubeconfigParams{ClusterName: c.Name(), Server: c.ControlPlane.Spec.Endpoint}, now)
	if err != nil {
		return nil, err
	}

	bundle, err := state.Bundle.Marshal()
	if err != nil {
		return nil, err
	}

	return []output.File{
		{Path: FileTalosconfig, Content: talosconfig},
		{Path: FileKubeconfig, Content: kubeconfig},
		{Path: fileSecrets, Content: bundle},
	}, nil
}

// MaxAsked is how many nodes are queried concurrently.
const MaxAsked = 16

// nodes are those of one cluster, for the duration of a command.
type nodes struct {
	cluster *session.Cluster
	state   *clusterstate.State
	pool    *talos.Pool
	creds   talos.Credentials
	configs *configstore.Store
	reader  client.Reader
}

// NewNodes returns the nodes of a cluster, with credentials that are made of its state. Close them.
func NewNodes(p *session.Plane, c *session.Cluster, state *clusterstate.State) (*nodes, error) {
	access, err := state.Bundle.TalosCredentials(clock.RealClock{}.Now(), TTL)
	if err != nil {
		return nil, err
	}

	return &nodes{
		cluster: c, state: state, pool: talos.NewPool(), configs: &configstore.Store{Client: p, Reader: p}, reader: p,
		creds: talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key},
	}, nil
}

// Close ends the connections.
func (x *nodes) Close() { x.pool.Close() }

func (x *nodes) all(ctx context.Context) ([]output.File, error) {
	files := make([]output.File, len(x.cluster.Nodes))

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(MaxAsked)

	for i := range x.cluster.Nodes {
		group.Go(func() (err error) {
			files[i], err = x.one(ctx, &x.cluster.Nodes[i])

			return err
		})
	}

	return files, group.Wait()
}

// one prefers the live configuration of the node, which includes changes that were made outside of the operator.
func (x *nodes) one(ctx context.Context, m *v1alpha1.TalosMachine) (output.File, error) {
	file := output.File{
		Path: filepath.Join(string(m.Spec.Role), m.Name+".yaml"), Machine: m.Name, Source: sourceNode,
	}

	live, err := x.Live(ctx, m)
	if err == nil {
		file.Content = live

		return file, nil
	}

	if ctx.Err() != nil {
		return file, ctx.Err()
	}

	var worker *v1alpha1.TalosWorker
	if ref := m.Spec.WorkerRef; ref != nil {
		if worker = x.cluster.Worker(ref.Name); worker == nil {
			return file, fmt.Errorf("machine %s: %w, and TalosWorker %s is gone", m.Name, err, ref.Name)
		}
	}

	stored, serr := x.configs.Load(ctx, m)
	if serr != nil {
		return file, serr
	}

	from, perr := patchsource.For(ctx, x.reader, x.cluster.ControlPlane, worker, m)
	if perr != nil {
		return file, fmt.Errorf("machine %s: %w, and the patches of its config cannot be read: %w", m.Name, err, perr)
	}

	rendered, rerr := desired.Render(desired.Sources{
		ControlPlane: x.cluster.ControlPlane, Worker: worker, Machine: m, State: x.state, From: from.Patches,
		Adopted: stored.Adopted,
	})
	if rerr != nil {
		return file, fmt.Errorf("machine %s: %w, and its config cannot be rendered: %w", m.Name, err, rerr)
	}

	file.Content, file.Source = rendered.Bytes, sourceRendered
	file.Warning = fmt.Sprintf("machine %s: %s; its config was rendered from the spec", m.Name, exit.Line(err))

	return file, nil
}

// Live reads the configuration from the node, which has to prove that it belongs to this cluster.
func (x *nodes) Live(ctx context.Context, m *v1alpha1.TalosMachine) ([]byte, error) {
	node, err := x.Connect(ctx, m)
	if err != nil {
		return nil, err
	}

	config, err := node.MachineConfig(ctx)
	if err != nil {
		return nil, err
	}

	address := evidence.Address(m)

	identity, err := machineconfig.IdentityOf(config)
	if err != nil {
		return nil, fmt.Errorf("the node at %s has a config that cannot be read", address)
	}

	if !identity.SameCluster(x.state.Bundle.Identity()) || string(identity.Role) != string(m.Spec.Role) {
		return nil, fmt.Errorf("the node at %s has the config of another machine", address)
	}

	return config, nil
}

// Connect returns a node of the cluster, which has its PKI.
func (x *nodes) Connect(ctx context.Context, m *v1alpha1.TalosMachine) (*talos.Node, error) {
	address := evidence.Address(m)
	if address == "" {
		return nil, errors.New("it has no address yet")
	}

	probe, err := x.pool.Probe(ctx, address, &x.creds)

	switch probe.State {
	case talos.StateMember:
	case talos.StateMaintenance:
		return nil, errors.New("it is in maintenance mode")
	case talos.StateForeign:
		return nil, fmt.Errorf("the node at %s runs under another CA", address)
	case talos.StateUnreachable:
		return nil, fmt.Errorf("the node at %s is unreachable: %w", address, err)
	}

	ref := talos.NodeRef{Key: m.Namespace + "/" + m.Name, Address: address, Credentials: x.creds}

	return x.pool.Node(ctx, ref)
}
