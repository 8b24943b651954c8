package node

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/lab/node/configuration"
)

// raiseFirewall has the machine API accept connections as a config says; all of them without one.
func (n *Node) raiseFirewall(cfg config.Provider) {
	if cfg == nil {
		n.api.SetFirewall(func(netip.Addr) bool { return true })

		return
	}

	n.api.SetFirewall(n.firewall(cfg, constants.ApidPort))
}

// firewall tells from which addresses a config lets connections to a port in. A machine reaches itself in any case.
func (n *Node) firewall(cfg config.Provider, port uint16) func(netip.Addr) bool {
	own := n.Address()

	return func(from netip.Addr) bool {
		return from.String() == own || configuration.Accepts(cfg, port, from)
	}
}

// accepts reports whether the firewall of the machine lets another one connect to a port. Calls between machines that
// do not pass a socket are decided by it, and those of processes, whose sockets do not have the address of their
// machine.
func (s *session) accepts(port uint16, from *session) bool {
	cfg, ok := s.complete()
	addr, err := netip.ParseAddr(from.n.Address())

	return !ok || err != nil || s.n.firewall(cfg, port)(addr)
}

// acceptsEtcd reports whether the firewall of the machine lets a member of etcd on another one join through it.
func (s *session) acceptsEtcd(from *session) bool {
	return s.accepts(constants.EtcdClientPort, from) && s.accepts(constants.EtcdPeerPort, from)
}

// acceptsAPI reports whether the firewall of the machine lets an address connect to its API server.
func (s *session) acceptsAPI(from netip.Addr) bool {
	cfg, ok := s.complete()

	return !ok || s.n.firewall(cfg, apiServerPort)(from)
}
