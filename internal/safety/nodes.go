package safety

import (
	"slices"
	"strings"
)

// ClusterNode is one Node object of a cluster, as read from its Kubernetes API.
type ClusterNode struct {
	// Name, UID and Version identify the object as it was read.
	Name, UID, Version string
	// SystemUUID is the UUID of the machine whose kubelet registered the Node, and BootID that of its boot. Addresses are
	// those of the Node.
	SystemUUID, BootID string
	Addresses          []string
	// Ready: the kubelet reports that it is ready. Silent: the kubelet has stopped reporting, so the state is unknown.
	Ready, Silent bool
	// Talos: the kubelet ran on Talos. The operator has no machines with another operating system.
	Talos bool
	// Kept: a user keeps the Node.
	Kept bool
}

// ClusterMachine is the part of a cluster's machine that matters for Node objects.
type ClusterMachine struct {
	// Names that its Node may have: the name of the machine and its hostname.
	Names []string
	// UUID of the hardware, and the addresses of the machine.
	UUID      string
	Addresses []string
	// Well: the machine is listed, is not about to be removed, and is healthy. Machines that are only recorded from
	// earlier are not Well, and may not exist any more.
	Well, Remembered bool
}

// NodeSightings are the times, in Unix seconds, at which orphaned Nodes were first observed, by UID.
type NodeSightings map[string]int64

// StaleNode finds Node objects that are orphaned and whose kubelets have stopped reporting. It returns the sightings so
// far, which the caller keeps for the next reconciliation, and the one Node that may be removed; nil if there is none.
//
// It decides only on complete evidence: every machine is healthy and has a ready Node of its own. Then no silent Node
// can belong to a machine that is coming back. A Node that joined from elsewhere is kept while its kubelet reports, and
// is kept forever if it does not run Talos.
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

		// A sighting by a clock that was ahead counts from now on, so that a wrong clock does not delay the removal.
		next[n.UID] = min(first, now)

		if now-first >= SecondLook && (ripe == nil || n.Name < ripe.Name) {
			ripe = n
		}
	}

	return next, ripe
}

// ownNodes finds the Node of every listed machine, by index. The result is incomplete if a machine is unhealthy, or has
// no ready Node.
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

// claimed reports whether the Node may belong to a machine. A machine that has a Node of its own needs no second one
// with its hardware or its address, but a name belongs to one machine only.
func claimed(machines []ClusterMachine, own []int, n ClusterNode) bool {
	for i, m := range machines {
		if m.named(n) || own[i] < 0 && m.resembles(n) {
			return true
		}
	}

	return false
}

func (m ClusterMachine) named(n ClusterNode) bool { return slices.Contains(m.Names, n.Name) }

// contradicts reports whether the Node was registered by other hardware.
func (m ClusterMachine) contradicts(n ClusterNode) bool {
	return m.UUID != "" && n.SystemUUID != "" && !strings.EqualFold(m.UUID, n.SystemUUID)
}

// resembles reports whether the Node has the machine's hardware, or one of its addresses.
func (m ClusterMachine) resembles(n ClusterNode) bool {
	return m.UUID != "" && strings.EqualFold(m.UUID, n.SystemUUID) ||
		slices.ContainsFunc(m.Addresses, func(a string) bool { return slices.Contains(n.Addresses, a) })
}
