package node

import "net/url"

// Endpoint returns the cluster endpoint of a node that its config makes a control-plane node, nil for every other one.
// The lab listens there where nothing else does.
func (n *Node) Endpoint() *url.URL {
	s := n.current()
	if s == nil || !s.machineType().IsControlPlane() {
		return nil
	}

	return s.config().Cluster().Endpoint()
}

// Powered reports whether the machine is on.
func (n *Node) Powered() bool { return n.current() != nil }

// Switched counts how often the power of the machine came or went.
func (n *Node) Switched() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()

	return n.switched
}

// Hardware is the size of a machine.
type Hardware struct {
	CPUs, MemoryMiB int
	Disks           []Disk
}

// Hardware returns the size of the machine.
func (n *Node) Hardware() Hardware {
	n.mu.Lock()
	defer n.mu.Unlock()

	return Hardware{CPUs: n.opts.CPUs, MemoryMiB: n.opts.MemoryMiB, Disks: append([]Disk(nil), n.hw.Disks...)}
}
