package evidence

import (
	"cmp"
	"context"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Life looks for signs of life of a machine that counts as dead according to its status. The status is as old as the
// last run of the operator, and a working node may be unreachable for the operator only.
type Life struct {
	// Source connects to the machine.
	Source Source
	// Cluster returns the Kubernetes API of the machine's cluster.
	Cluster func(context.Context) (*workload.Cluster, error)
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

	cluster, err := l.Cluster(ctx)
	if err != nil {
		return "", err
	}

	ready, err := cluster.Ready(ctx, workload.NodeRef{Name: name, UUID: m.Status.UUID})
	if err == nil && !ready && m.Status.NodeName == "" {
		// The hostname was a guess, so the Node may have any name.
		name, err = cluster.ReadyWith(ctx, m.Status.UUID)
		ready = name != ""
	}

	if err != nil || !ready {
		return "", err
	}

	return "its Node is Ready", nil
}
