package node

import (
	"sync"

	"github.com/talos-operator/talos-operator/lab/cosi"
)

// NetworkFaults are what is wrong with the network of a machine, as the machine itself reports it. It can be reached
// all the same.
type NetworkFaults struct {
	cosi.NetworkFaults

	// NoTunnels: no peer of KubeSpan can be reached. NoMembers: discovery reports only the machine itself.
	NoTunnels, NoMembers bool
}

// any reports whether the resources show a fault.
func (f NetworkFaults) any() bool { return len(f.Links) > 0 || f.NoResolvers || f.SilentResolvers }

// networkFaults are the faults of a machine over all of its boots.
type networkFaults struct {
	mu  sync.Mutex
	now NetworkFaults
}

// NetworkFaults returns what is wrong with the network of the machine.
func (n *Node) NetworkFaults() NetworkFaults {
	n.broken.mu.Lock()
	defer n.broken.mu.Unlock()

	return n.broken.now
}

// BreakNetwork has the machine report faults of its network from now on, in place of those before. The zero value ends
// all of them.
func (n *Node) BreakNetwork(faults NetworkFaults) {
	n.broken.mu.Lock()
	n.broken.now = faults
	n.broken.mu.Unlock()

	if s := n.current(); s != nil {
		s.store.SetNetworkFaults(faults.NetworkFaults)
		s.showMembers()
		s.wake() // who shows them at the same time may not have seen the faults
	}
}
