package relocate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/output"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/shard"
)

type shardLister struct {
	*session.Session

	operator string
	all      bool
	output   output.Format
}

// shardOverview is what -o prints.
type shardOverview struct {
	Shards   []shardLine      `json:"shards"`
	Clusters []shardedCluster `json:"clusters"`
}

// shardLine is one shard.
type shardLine struct {
	Shard int `json:"shard"`
	// Holder is the replica that works on its clusters; empty for none, and if the Leases cannot be read.
	Holder string `json:"holder,omitempty"`
	// Held is absent if the Leases cannot be read.
	Held *bool `json:"held,omitempty"`
	// Clusters of it, among those that are listed.
	Clusters int `json:"clusters"`
}

// shardedCluster is one cluster.
type shardedCluster struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Kind      string `json:"kind"`
	// Shard is empty for a cluster that has none yet.
	Shard string `json:"shard"`
	// MovingTo is the shard that a move is under way to.
	MovingTo string `json:"movingTo,omitempty"`
}

func newShardListCommand(streams genericiooptions.IOStreams) *cobra.Command {
	l := &shardLister{Session: session.New(streams)}

	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the shards with their holders, and the clusters with their shards",
		Long: `List the shards with the replica that holds each, and the clusters of a namespace, or of all with -A, with
their shards. Who holds a shard is in the Leases of the operator, which the user must be permitted to read; without
that, the rest is listed.`,
		Example: `  talos-operator shard list -n clusters
  talos-operator shard list -A -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return l.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&l.all, "all-namespaces", "A", false, "list the clusters of all namespaces")
	operatorNamespace(cmd, &l.operator)
	output.AddFlag(cmd, &l.output)

	return l.Attach(cmd)
}

func (l *shardLister) run(ctx context.Context) error {
	if err := l.output.Validate(); err != nil {
		return err
	}

	p, err := l.Open()
	if err != nil {
		return err
	}

	in := p.Namespace
	if l.all {
		in = metav1.NamespaceAll
	}

	result := &shardOverview{Shards: []shardLine{}, Clusters: []shardedCluster{}}
	if result.Clusters, err = shardedClusters(ctx, p, in); err != nil {
		return err
	}

	holders, err := shardHolders(ctx, p, l.operator, time.Now())
	if err != nil {
		fmt.Fprintf(l.ErrOut, "The holders of the shards are unknown: %v\n", err)
	}

	result.count(holders)

	return l.output.Print(l.Out, result, result.text)
}

// shardedClusters returns the clusters of a namespace, sorted: KubernetesClusters, and TalosControlPlanes without one.
func shardedClusters(ctx context.Context, p *session.Plane, namespace string) ([]shardedCluster, error) {
	tops, planes := &vitistackv1alpha1.KubernetesClusterList{}, &v1alpha1.TalosControlPlaneList{}

	for _, list := range []client.ObjectList{tops, planes} {
		if err := p.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, session.Explain("listing the clusters", err)
		}
	}

	out := []shardedCluster{}
	add := func(o client.Object) {
		out = append(out, shardedCluster{
			Namespace: o.GetNamespace(), Name: o.GetName(), Kind: shard.Kind(o), Shard: o.GetLabels()[shard.Label],
			MovingTo: pause.MoveOf(o).To,
		})
	}

	for i := range tops.Items {
		add(&tops.Items[i])
	}

	for i := range planes.Items {
		if owner := metav1.GetControllerOf(&planes.Items[i]); owner == nil || owner.Kind != session.KindCluster.Kind {
			add(&planes.Items[i])
		}
	}

	slices.SortFunc(out, func(a, b shardedCluster) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})

	return out, nil
}

// count adds the shards that have a Lease or a cluster. holders is nil if it is not known who holds them.
func (r *shardOverview) count(holders map[int]string) {
	clusters := map[int]int{}
	for n := range holders {
		clusters[n] = 0
	}

	for _, c := range r.Clusters {
		if n, ok := shard.Number(c.Shard); ok {
			clusters[n]++
		}
	}

	for _, n := range slices.Sorted(maps.Keys(clusters)) {
		line := shardLine{Shard: n, Holder: holders[n], Clusters: clusters[n]}
		if holders != nil {
			held := line.Holder != ""
			line.Held = &held
		}

		r.Shards = append(r.Shards, line)
	}
}

func (r *shardOverview) text(w io.Writer) {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	defer table.Flush() //nolint:errcheck // output to a terminal, as of Fprintf

	fmt.Fprintln(table, "SHARD\tCLUSTERS\tHOLDER")

	for _, s := range r.Shards {
		holder := s.Holder

		switch {
		case s.Held == nil:
			holder = "unknown"
		case !*s.Held:
			holder = "none, by the clock of this computer"
		}

		fmt.Fprintf(table, "%d\t%d\t%s\n", s.Shard, s.Clusters, holder)
	}

	fmt.Fprintln(table, "\nNAMESPACE\tCLUSTER\tSHARD")

	for _, c := range r.Clusters {
		at := cmp.Or(c.Shard, "none")
		if c.MovingTo != "" {
			at += ", moving to " + c.MovingTo
		}

		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Namespace, c.Name, at)
	}
}
