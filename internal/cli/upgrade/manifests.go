package upgrade

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/access"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

type manifestsDiffer struct{ *session.Session }

func newUpgradeManifestsCommand(streams genericiooptions.IOStreams) *cobra.Command {
	d := &manifestsDiffer{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "manifests CLUSTER",
		Short: "Compare a cluster to the bootstrap manifests of Talos, without changing anything",
		Long: `Compare a cluster to the bootstrap manifests of Talos, such as those of kube-proxy, CoreDNS and flannel, and
print what upgrade.manifests: Apply would change, as a unified diff. Nothing is changed. The manifests are those that a
control-plane machine serves for its configuration; the API server of the cluster says by dry runs what they result in.
Fields that others than Talos own stay as they are; the standard error names them, and an image among them counts as a
difference. Values of Secrets are masked.

The command reads the PKI of the cluster, and connects to its nodes and its API server.

Exit codes: 0 nothing differs, 1 something differs or is refused, 2 that could not be found out.`,
		Example:           `  talos-operator upgrade manifests prod -n clusters`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: d.CompleteCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := d.run(cmd.Context(), args[0])
			if exit := (*exit.Error)(nil); err == nil || errors.As(err, &exit) {
				return err
			}

			return &exit.Error{Code: exit.Trouble, Err: err}
		},
	}

	return d.Attach(cmd)
}

func (d *manifestsDiffer) run(ctx context.Context, name string) error {
	plane, err := d.Open()
	if err != nil {
		return err
	}

	c, err := session.FindCluster(ctx, plane, name)
	if err != nil {
		return err
	}

	state, err := access.LoadState(ctx, plane, c)
	if err != nil {
		return err
	}

	all, err := servedBy(ctx, c, state)
	if err != nil {
		return err
	}

	version := c.ControlPlane.Status.ObservedKubeVersion

	want, problem := manifests.Merge(all, version)
	if problem != "" {
		return fmt.Errorf("reading the bootstrap manifests of Kubernetes %s: %s", version, problem)
	}

	clients := &workload.Clients{Clock: clock.RealClock{}}

	cluster, err := clients.Cluster(ctx, state.Bundle, evidence.Addresses(controlPlaneMachines(c)))
	if err != nil {
		return err
	}

	return d.compare(ctx, cluster, want)
}

// manifestCluster is a cluster that is compared to bootstrap manifests, and changed only with write.
type manifestCluster interface {
	Manifests(ctx context.Context, want manifests.Wanted, write bool) (manifests.Outcome, error)
}

var _ manifestCluster = (*workload.Cluster)(nil)

// compare prints what differs, and writes nothing: the command promises that.
func (d *manifestsDiffer) compare(ctx context.Context, cluster manifestCluster, want manifests.Wanted) error {
	found, err := cluster.Manifests(ctx, want, false)
	if err != nil {
		return err
	}

	return d.print(found)
}

// print prints what was found: differences, and beside them what is refused and what stays.
func (d *manifestsDiffer) print(found manifests.Outcome) error {
	for _, difference := range found.Differences {
		text, err := difference.Diff()
		if err != nil {
			return err
		}

		fmt.Fprint(d.Out, text)
	}

	for _, r := range found.Refused {
		fmt.Fprintf(d.ErrOut, "%s is refused: %s\n", r.Key, r.Shown())
	}

	for _, l := range found.Left {
		fmt.Fprintf(d.ErrOut, "%s: the field %s is left to its manager %s\n", l.Key, l.Path, l.Manager)
	}

	for _, k := range found.Kept {
		fmt.Fprintf(d.ErrOut, "%s is no longer among the manifests, and is not deleted: %s\n", k.Key, k.Reason)
	}

	for _, key := range found.Withheld {
		fmt.Fprintf(d.ErrOut, "%s is not deleted without evidence that no control-plane machine has it among its "+
			"manifests: %s\n", key, found.Uncertain)
	}

	if found.Count() > 0 {
		return &exit.Error{Code: exit.Differs}
	}

	return nil
}

// servedBy returns what each control-plane machine says about its manifests.
func servedBy(ctx context.Context, c *session.Cluster, state *clusterstate.State) ([]manifests.Served, error) {
	access, err := state.Bundle.TalosCredentials(clock.RealClock{}.Now(), access.TTL)
	if err != nil {
		return nil, err
	}

	nodes := talos.NewPool()
	defer nodes.Close()

	var all []manifests.Served

	for _, m := range controlPlaneMachines(c) {
		address := evidence.Address(&m)
		if address == "" {
			all = append(all, manifests.Served{Machine: m.Name, Problem: "it has no address"})

			continue
		}

		node, err := nodes.Node(ctx, talos.NodeRef{
			Key: m.Namespace + "/" + m.Name, Address: address,
			Credentials: talos.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key},
		})

		var served manifests.Served
		if err == nil {
			served, err = node.Manifests(ctx)
		}

		if err != nil {
			served = manifests.Served{Problem: cmp.Or(failure.Message(err), err.Error())}
		}

		served.Machine = m.Name
		all = append(all, served)
	}

	return all, nil
}

func controlPlaneMachines(c *session.Cluster) []v1alpha1.TalosMachine {
	return session.Keep(c.Nodes, func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.WorkerRef == nil && m.DeletionTimestamp.IsZero()
	})
}
