package talos

import (
	"context"
	"slices"
	"strings"

	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"

	"github.com/talos-operator/talos-operator/internal/text"
)

// ClusterMember is a node of the cluster as discovery announces it to the others.
type ClusterMember struct {
	// Name is the hostname of the node.
	Name string
	// Addresses that the node announces.
	Addresses []string
	// ControlPlane nodes run etcd.
	ControlPlane bool
}

// ClusterMembers lists the nodes of the cluster that this node knows from discovery, sorted by name; empty if
// discovery is disabled, and nil if the node does not report them.
func (n *Node) ClusterMembers(ctx context.Context) ([]ClusterMember, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	list, err := safe.ReaderListAll[*cluster.Member](ctx, n.c.COSI)
	if err != nil {
		if isAbsent(err) {
			return nil, nil
		}

		return nil, classify("the members of its cluster", n.name(), err)
	}

	out := make([]ClusterMember, 0, list.Len())

	for m := range list.All() {
		spec := m.TypedSpec()
		member := ClusterMember{Name: text.Name(spec.Hostname), ControlPlane: spec.MachineType.IsControlPlane()}

		for _, a := range spec.Addresses {
			member.Addresses = append(member.Addresses, addressText(a))
		}

		out = append(out, member)
	}

	slices.SortFunc(out, func(a, b ClusterMember) int { return strings.Compare(a.Name, b.Name) })

	return out, nil
}
