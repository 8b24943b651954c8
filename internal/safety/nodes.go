package safety

import (
	"slices"
	"strings"
)

// ClusterNode is what a cluster's Kubernetes says of one of its Node objects.
type ClusterNode struct {
	// Name, UID and Version identify the object as it was read.
	Name, UID, Version string
	// SystemUUID is that of the machine whose kubelet registered the node, Addresses are its own.
	SystemUUID string
	Addresses  []string
	// Ready: its kubelet says so. Silent: nobody hears of its kubelet any more, so nobody knows.
	Ready, Silent bool
	// Talos: the kubelet ran on Talos. The operator has no machines with another system.
	Talos bool
	// Kept: a person wants it to stay.
	Kept bool
}

// ClusterMachine is a machine of a cluster as far as its Node object is concerned.
type ClusterMachine struct {
	// Names that its Node may have: those of the machine and of its host.
	Names []string
	// UUID of the hardware, and Addresses.
	UUID      string
	Addresses []string
	// Well: it is listed, it is not about to go, and it is as it should be. Machines that are only remembered from
	// earlier are not Well, and may not be there at all.
	Well, Remembered bool
}

// NodeSightings are the moments, in Unix seconds, at which Nodes that belong to no machine were first seen, by UID.
type NodeSightings map[string]int64

// StaleNode finds Node objects that belong to no machine of the cluster, and whose kubelets are silent. It returns what
// has been seen until now, to be kept for the next look, and the one Node that may be removed; nil when there is none.
//
// It decides on full evidence only: every machine is well and has a Node of its own that is ready. Then no silent Node
// can be that of a machine on its way back. A Node that joined from elsewhere stays as long as it is heard of, and for
// ever when it does not run Talos.
func StaleNode(machines []ClusterMachine, nodes []ClusterNode, seen NodeSightings, now int64,
) (NodeSightings, *ClusterNode) {
	next := NodeSightings{}

	own, complete := ownNodes(machines, nodes)
	if !complete {
		return next, nil
	}

	var ripe *ClusterNode

	for i := range nodes {
		n := &nodes[i]
		if !n.Silent || n.Ready || !n.Talos || n.Kept || n.UID == "" || claimed(machines, own, *n) {
			continue
		}

		first, known := seen[n.UID]
		if !known {
			first = now
		}

		// What a clock saw that was ahead counts from now, and not for as long as it was ahead.
		next[n.UID] = min(first, now)

		if now-first >= SecondLook && (ripe == nil || n.Name < ripe.Name) {
			ripe = n
		}
	}

	return next, ripe
}

// ownNodes finds the Node of every machine that is listed, by index. It is not complete when a machine is not well, or
// has no Node that is ready.
func ownNodes(machines []ClusterMachine, nodes []ClusterNode) (own []int, complete bool) {
	own = make([]int, len(machines))

	for i, m := range machines {
		own[i] = slices.IndexFunc(nodes, func(n ClusterNode) bool { return n.Ready && m.named(n) && !m.contradicts(n) })

		if m.Remembered {
			continue
		}

		if own[i] < 0 {
			own[i] = slices.IndexFunc(nodes, func(n ClusterNode) bool { return n.Ready && m.resembles(n) })
		}

		if !m.Well || own[i] < 0 {
			return nil, false
		}
	}

	return own, len(machines) > 0
}

// claimed: the Node may be that of a machine. A machine that has a Node of its own needs no other one with its hardware
// or its address, but a name is nobody else's.
func claimed(machines []ClusterMachine, own []int, n ClusterNode) bool {
	for i, m := range machines {
		if m.named(n) || own[i] < 0 && m.resembles(n) {
			return true
		}
	}

	return false
}

func (m ClusterMachine) named(n ClusterNode) bool { return slices.Contains(m.Names, n.Name) }

// contradicts: the Node was registered by other hardware.
func (m ClusterMachine) contradicts(n ClusterNode) bool {
	return m.UUID != "" && n.SystemUUID != "" && !strings.EqualFold(m.UUID, n.SystemUUID)
}

// resembles: the Node has the machine's hardware, or one of its addresses.
func (m ClusterMachine) resembles(n ClusterNode) bool {
	return m.UUID != "" && strings.EqualFold(m.UUID, n.SystemUUID) ||
		slices.ContainsFunc(m.Addresses, func(a string) bool { return slices.Contains(n.Addresses, a) })
}
