package relocate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/app"
	"github.com/talos-operator/talos-operator/internal/cli/session"
	"github.com/talos-operator/talos-operator/internal/shard"
)

// NewShardCommand returns the command `shard`.
func NewShardCommand(streams genericiooptions.IOStreams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shard",
		Short: "List the shards of the operator, and move a cluster to another one",
	}
	cmd.AddCommand(newShardListCommand(streams), newShardMoveCommand(streams))

	return cmd
}

// operatorNamespace adds the flag that tells where the Leases of the operator are.
func operatorNamespace(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "operator-namespace", "talos-operator-system",
		"namespace that the operator runs in, with the Leases of its shards")
}

// shardHolders returns the replica that holds each shard that has a Lease; empty for one that no replica holds.
func shardHolders(ctx context.Context, p *session.Plane, namespace string, now time.Time) (map[int]string, error) {
	list := &coordinationv1.LeaseList{}
	if err := p.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the Leases of shards in namespace %s: %w", namespace, err)
	}

	ours := func(l coordinationv1.Lease) bool { return strings.HasPrefix(l.Name, app.LeaseName) }
	if !slices.ContainsFunc(list.Items, ours) {
		return nil, fmt.Errorf("namespace %s has no Lease of the operator: name the namespace that the operator runs in "+
			"with --operator-namespace", namespace)
	}

	return shard.Holders(list.Items, app.LeaseName, now), nil
}
