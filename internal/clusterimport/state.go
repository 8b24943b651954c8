package clusterimport

import (
	"slices"
	"strings"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// Node is a control-plane node that answered as a member of the cluster, with a voting etcd member that all agree on.
type Node struct {
	// Name of its machine.
	Name string
	// Address that it answered at.
	Address string
	// Disk that it was installed to.
	Disk string
	// UUID of the hardware.
	UUID string
	// MemberID of its etcd member.
	MemberID uint64
	// Config is its live config.
	Config []byte
}

// NewState is the state of a cluster that runs already: its control-plane machines count as configured, and its etcd as
// established, so that no bootstrap is ever tried. Nodes may not be empty.
func NewState(b *clusterstate.Bundle, made clusterstate.BundleConfig, owner string, nodes []Node, now time.Time,
) *clusterstate.State {
	now = now.UTC().Truncate(time.Second)

	first := slices.MinFunc(nodes, func(a, b Node) int { return strings.Compare(a.Name, b.Name) })

	st := clusterstate.NewState(b, made, owner)
	st.Config = first.Config
	st.Runtime.ImportedAt = &now
	st.Runtime.Bootstrap = &clusterstate.Bootstrap{
		Machine: first.Name, Address: first.Address, IntentAt: now, EstablishedAt: &now, MemberID: first.MemberID,
	}
	st.Runtime.Machines = map[string]clusterstate.Machine{}

	for _, n := range nodes {
		st.Runtime.Machines[n.Name] = clusterstate.Machine{
			Address: n.Address, UUID: n.UUID, Role: string(v1alpha1.RoleControlPlane), ConfiguredAt: &now,
			Imported: true,
		}
	}

	return st
}
