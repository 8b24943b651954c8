package evidence

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/text"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Life looks for signs of life of a machine that counts as dead according to its status. The status is as old as the
// last run of the operator, and a working node may be unreachable for the operator only.
type Life struct {
	// Source connects to the machine.
	Source Source
	// Nodes returns the Nodes of the machine's cluster. The machines of one pass share it, as with NodesOnce.
	Nodes func(context.Context) ([]safety.ClusterNode, error)
}

// NodesOnce returns a function that lists the Nodes of a cluster the first time that it is called, and returns the same
// to all callers: it is made for one pass, because what it returns does not change. It is safe for concurrent use.
func NodesOnce(
	cluster func(context.Context) (*workload.Cluster, error),
) func(context.Context) ([]safety.ClusterNode, error) {
	var (
		once  sync.Once
		nodes []safety.ClusterNode
		err   error
	)

	return func(ctx context.Context) ([]safety.ClusterNode, error) {
		once.Do(func() {
			var c *workload.Cluster
			if c, err = cluster(ctx); err == nil {
				nodes, err = c.Nodes(ctx)
			}
		})

		return nodes, err
	}
}

// Sign returns the sign of life, as part of a sentence; empty if there is none. An error means that the state is
// unknown.
func (l Life) Sign(ctx context.Context, m *v1alpha1.TalosMachine) (string, error) {
	if address := Address(m); address != "" {
		probe, err := l.Source.Nodes.Probe(ctx, address, &l.Source.Credentials)

		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err == nil && probe.State != talos.StateUnreachable:
			return "the Talos API is reachable at " + address, nil
		}
	}

	// A machine that never joined Kubernetes has no Node there.
	name := cmp.Or(m.Status.NodeName, m.Status.Hostname)
	if name == "" {
		return "", nil
	}

	nodes, err := l.Nodes(ctx)
	if err != nil {
		return "", err
	}

	return readyNode(nodes, workload.NodeRef{Name: name, UUID: m.Status.UUID, BootID: m.Status.BootID}), nil
}

// readyNode returns the sign of life that a Node is of the machine; empty if there is none. The name may be an earlier
// one, as that in a status is, so a ready Node with the UUID or the boot ID of the machine counts whatever its name is:
// if two boards have the same UUID, a dead one counts as alive, and a user has to decide. A boot ID that several Nodes
// have is that of the host of containers. It is pure.
func readyNode(nodes []safety.ClusterNode, ref workload.NodeRef) string {
	booted := 0

	for _, n := range nodes {
		if same(n.BootID, ref.BootID) {
			booted++
		}
	}

	for _, n := range nodes {
		is := same(n.SystemUUID, ref.UUID) || booted == 1 && same(n.BootID, ref.BootID)

		switch {
		case !n.Ready:
		case n.Name == ref.Name && (is || same(n.BootID, ref.BootID) || n.SystemUUID == "" || ref.UUID == ""):
			return "its Node is Ready"
		case is:
			return fmt.Sprintf("the Node %s, which has its system UUID or its boot ID, is Ready", text.Name(n.Name))
		}
	}

	return ""
}

// same reports whether two properties are known and equal.
func same(a, b string) bool { return a != "" && strings.EqualFold(a, b) }
