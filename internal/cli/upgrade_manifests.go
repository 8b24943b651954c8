package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Exit codes of a comparison, as diff has them.
const (
	codeDiffers = 1
	codeTrouble = 2
)

type manifestsDiffer struct{ *session }

func newUpgradeManifestsCommand(streams genericiooptions.IOStreams) *cobra.Command {
	d := &manifestsDiffer{session: newSession(streams)}

	cmd := &cobra.Command{
		Use:   "manifests CLUSTER",
		Short: "Compare a cluster to the bootstrap manifests of Talos, without changing anything",
		Long: `Compare a cluster to the bootstrap manifests of Talos, such as those of kube-proxy, CoreDNS and flannel, and
print what upgrade.manifests: Apply would change, as a unified diff. Nothing is changed. The manifests are those that a
control-plane machine serves for its configuration; the API server of the cluster says by dry runs what they result in.
Fields that others than Talos own stay as they are, and do not appear. Values of Secrets are masked.

The command reads the PKI of the cluster, and connects to its nodes and its API server.

Exit codes: 0 nothing differs, 1 something differs or is refused, 2 that could not be found out.`,
		Example:           `  talos-operator upgrade manifests prod -n clusters`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: d.completeCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := d.run(cmd.Context(), args[0])
			if exit := (*ExitError)(nil); err == nil || errors.As(err, &exit) {
				return err
			}

			return &ExitError{Code: codeTrouble, Err: err}
		},
	}

	return d.attach(cmd)
}

func (d *manifestsDiffer) run(ctx context.Context, name string) error {
	plane, err := d.open()
	if err != nil {
		return err
	}

	c, err := findCluster(ctx, plane, name)
	if err != nil {
		return err
	}

	state, err := loadState(ctx, plane, c)
	if err != nil {
		return err
	}

	served, err := servedBy(ctx, c, state)
	if err != nil {
		return err
	}

	objects, err := served.Objects()
	if err != nil {
		return err
	}

	clients := &workload.Clients{Clock: clock.RealClock{}}

	cluster, err := clients.Cluster(ctx, state.Bundle, evidence.Addresses(controlPlaneMachines(c)))
	if err != nil {
		return err
	}

	found, err := cluster.Manifests(ctx, objects, false)
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

	for _, key := range found.Kept {
		fmt.Fprintf(d.ErrOut, "%s is no longer among the manifests, and is not deleted\n", key)
	}

	if found.Count() > 0 {
		return &ExitError{Code: codeDiffers}
	}

	return nil
}

// servedBy returns the manifests of the first control-plane machine that serves those of the version that runs.
func servedBy(ctx context.Context, c *cluster, state *clusterstate.State) (manifests.Served, error) {
	access, err := state.Bundle.TalosCredentials(clock.RealClock{}.Now(), accessTTL)
	if err != nil {
		return manifests.Served{}, err
	}

	nodes := talos.NewPool()
	defer nodes.Close()

	version := c.controlPlane.Status.ObservedKubeVersion
	problem := "no control-plane machine has an address"

	for _, m := range controlPlaneMachines(c) {
		address := evidence.Address(&m)
		if address == "" {
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
			problem = m.Name + ": " + cmp.Or(failure.Message(err), err.Error())

			continue
		}

		served.Machine = m.Name
		if problem = served.Refuse(version); problem == "" {
			return served, nil
		}
	}

	return manifests.Served{}, fmt.Errorf("reading the bootstrap manifests of Kubernetes %s: %s", version, problem)
}

func controlPlaneMachines(c *cluster) []v1alpha1.TalosMachine {
	return keep(c.nodes, func(m *v1alpha1.TalosMachine) bool {
		return m.Spec.WorkerRef == nil && m.DeletionTimestamp.IsZero()
	})
}
