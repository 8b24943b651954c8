package cli

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
	fileTalosconfig = "talosconfig"
	fileKubeconfig  = "kubeconfig"
	fileSecrets     = "secrets.yaml"
)

// Sources of a machine configuration.
const (
	sourceNode     = "node"
	sourceRendered = "rendered"
)

// accessTTL is the validity of the credentials that the command itself uses.
const accessTTL = time.Hour

// exportedFile describes one file.
type exportedFile struct {
	Path string `json:"path"`
	// Machine that the configuration belongs to.
	Machine string `json:"machine,omitempty"`
	// Source is node for the live configuration of the node, rendered for one that was rendered from the spec.
	Source string `json:"source,omitempty"`

	content []byte
	warning string
}

// exportResult is what -o prints. It contains no secrets.
type exportResult struct {
	Cluster        string                  `json:"cluster"`
	Directory      string                  `json:"directory"`
	DeletionPolicy v1alpha1.DeletionPolicy `json:"deletionPolicy"`
	Files          []exportedFile          `json:"files"`
}

type exporter struct {
	*session

	dir    string
	force  bool
	output output
}

func newExportCommand(streams genericiooptions.IOStreams) *cobra.Command {
	e := &exporter{session: newSession(streams)}

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
		ValidArgsFunction: e.completeCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return e.run(cmd.Context(), args[0]) },
	}
	cmd.Flags().StringVar(&e.dir, "dir", "", "folder to write to (default: the name of the cluster)")
	cmd.Flags().BoolVar(&e.force, "force", false, "overwrite files that exist")
	addOutput(cmd, &e.output)

	return e.attach(cmd)
}

func (e *exporter) run(ctx context.Context, name string) error {
	if err := e.output.validate(); err != nil {
		return err
	}

	p, err := e.open()
	if err != nil {
		return err
	}

	c, err := findCluster(ctx, p, name)
	if err != nil {
		return err
	}

	files, err := collectExport(ctx, p, c)
	if err != nil {
		return err
	}

	dir := cmp.Or(e.dir, name)
	if err := writeFiles(dir, files, e.force); err != nil {
		return err
	}

	for _, f := range files {
		if f.warning != "" {
			fmt.Fprintln(e.ErrOut, "Warning:", f.warning)
		}
	}

	result := exportResult{
		Cluster: c.name(), Directory: dir, Files: files,
		DeletionPolicy: cmp.Or(c.controlPlane.Spec.DeletionPolicy, v1alpha1.DeletionPreserve),
	}

	return e.output.print(e.Out, result, result.text)
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
func collectExport(ctx context.Context, p *plane, c *cluster) ([]exportedFile, error) {
	state, err := loadState(ctx, p, c)
	if err != nil {
		return nil, err
	}

	now := clock.RealClock{}.Now()

	files, err := credentialFiles(c, state, now)
	if err != nil {
		return nil, err
	}

	access, err := state.Bundle.TalosCredentials(now, accessTTL)
	if err != nil {
		return nil, err
	}

	x := configExport{
		cluster: c, state: state, nodes: talos.NewPool(), configs: &configstore.Store{Client: p, Reader: p}, reader: p,
		creds: talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key},
	}
	defer x.nodes.Close()

	configs, err := x.all(ctx)

	return append(files, configs...), err
}

func loadState(ctx context.Context, p *plane, c *cluster) (*clusterstate.State, error) {
	store := &clusterstate.Store{Client: p, Reader: p, Clock: clock.RealClock{}}
	key := types.NamespacedName{Namespace: c.controlPlane.Namespace, Name: c.controlPlane.Name}

	held, err := store.Load(ctx, key)
	if errors.Is(err, clusterstate.ErrNotFound) {
		return nil, fmt.Errorf("cluster %s has no Secret %s: it has no PKI yet, or has lost it",
			c.name(), clusterstate.SecretName(key.Name))
	}

	if err != nil {
		return nil, err
	}

	return held.State, held.State.CheckCluster(c.name())
}

// credentialFiles returns new credentials from the PKI, which are valid for a year from now on.
func credentialFiles(c *cluster, state *clusterstate.State, now time.Time) ([]exportedFile, error) {
	var endpoints, nodes []string

	for i := range c.nodes {
		address := evidence.Address(&c.nodes[i])
		if address == "" {
			continue
		}

		nodes = append(nodes, address)

		if c.nodes[i].Spec.Role == v1alpha1.RoleControlPlane {
			endpoints = append(endpoints, address)
		}
	}

	talosconfig, err := state.Bundle.Talosconfig(
		clusterstate.TalosconfigParams{ClusterName: c.name(), Endpoints: endpoints, Nodes: nodes}, now)
	if err != nil {
		return nil, err
	}

	kubeconfig, err := state.Bundle.Kubeconfig(
		clusterstate.KubeconfigParams{ClusterName: c.name(), Server: c.controlPlane.Spec.Endpoint}, now)
	if err != nil {
		return nil, err
	}

	bundle, err := state.Bundle.Marshal()
	if err != nil {
		return nil, err
	}

	return []exportedFile{
		{Path: fileTalosconfig, content: talosconfig},
		{Path: fileKubeconfig, content: kubeconfig},
		{Path: fileSecrets, content: bundle},
	}, nil
}

// maxAsked is how many nodes are queried concurrently.
const maxAsked = 16

// configExport collects the machine configurations of one cluster.
type configExport struct {
	cluster *cluster
	state   *clusterstate.State
	nodes   *talos.Pool
	creds   talos.Credentials
	configs *configstore.Store
	reader  client.Reader
}

func (x configExport) all(ctx context.Context) ([]exportedFile, error) {
	files := make([]exportedFile, len(x.cluster.nodes))

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxAsked)

	for i := range x.cluster.nodes {
		group.Go(func() (err error) {
			files[i], err = x.one(ctx, &x.cluster.nodes[i])

			return err
		})
	}

	return files, group.Wait()
}

// one prefers the live configuration of the node, which includes changes that were made outside of the operator.
func (x configExport) one(ctx context.Context, m *v1alpha1.TalosMachine) (exportedFile, error) {
	file := exportedFile{
		Path: filepath.Join(string(m.Spec.Role), m.Name+".yaml"), Machine: m.Name, Source: sourceNode,
	}

	live, err := x.live(ctx, m)
	if err == nil {
		file.content = live

		return file, nil
	}

	if ctx.Err() != nil {
		return file, ctx.Err()
	}

	var worker *v1alpha1.TalosWorker
	if ref := m.Spec.WorkerRef; ref != nil {
		if worker = x.cluster.worker(ref.Name); worker == nil {
			return file, fmt.Errorf("machine %s: %w, and TalosWorker %s is gone", m.Name, err, ref.Name)
		}
	}

	stored, serr := x.configs.Load(ctx, m)
	if serr != nil {
		return file, serr
	}

	from, perr := patchsource.For(ctx, x.reader, x.cluster.controlPlane, worker, m)
	if perr != nil {
		return file, fmt.Errorf("machine %s: %w, and the patches of its config cannot be read: %w", m.Name, err, perr)
	}

	rendered, rerr := desired.Render(desired.Sources{
		ControlPlane: x.cluster.controlPlane, Worker: worker, Machine: m, State: x.state, From: from.Patches,
		Adopted: stored.Adopted,
	})
	if rerr != nil {
		return file, fmt.Errorf("machine %s: %w, and its config cannot be rendered: %w", m.Name, err, rerr)
	}

	file.content, file.Source = rendered.Bytes, sourceRendered
	file.warning = fmt.Sprintf("machine %s: %s; its config was rendered from the spec", m.Name, Line(err))

	return file, nil
}

// live reads the configuration from the node, which has to prove that it belongs to this cluster.
func (x configExport) live(ctx context.Context, m *v1alpha1.TalosMachine) ([]byte, error) {
	node, err := x.connect(ctx, m)
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

// connect returns a node of the cluster, which has its PKI.
func (x configExport) connect(ctx context.Context, m *v1alpha1.TalosMachine) (*talos.Node, error) {
	address := evidence.Address(m)
	if address == "" {
		return nil, errors.New("it has no address yet")
	}

	probe, err := x.nodes.Probe(ctx, address, &x.creds)

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

	return x.nodes.Node(ctx, ref)
}
