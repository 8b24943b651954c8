package lab

import (
	"cmp"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/lab/node"
)

// watchInterval is the pause between two checks of the machines: what a load balancer's health check needs, too.
const watchInterval = 200 * time.Millisecond

// Subscribe calls a function with the name of a machine that was powered on or off, for whatever reason. The function
// must not block.
func (l *Lab) Subscribe(fn func(name string)) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.watchers = append(l.watchers, fn)
}

// watch follows the machines until the lab is closed.
func (l *Lab) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()

	for {
		select {
		case <-l.done:
			return
		case <-tick.C:
		}

		machines := l.list()
		l.balancer.update(endpoints(machines))
		l.announce(machines)
	}
}

// announce tells subscribers which machines were switched on or off.
func (l *Lab) announce(machines []*machine) {
	l.mu.Lock()

	var changed []string

	for _, m := range machines {
		// Power that came and went between two checks counts, too, and so does a machine that is found for the first time.
		if switched := m.node.Switched(); switched != m.switched || !m.seen {
			m.switched, m.seen = switched, true
			changed = append(changed, m.Name)
		}
	}

	watchers := slices.Clone(l.watchers)
	l.mu.Unlock()

	for _, name := range changed {
		for _, fn := range watchers {
			fn(name)
		}
	}
}

// endpoints returns the addresses that load balancers have to serve, and the nodes behind each: cluster endpoints that
// are loopback addresses of no machine. Of two clusters that claim one endpoint the one whose node has the lowest
// address gets it.
func endpoints(machines []*machine) map[netip.AddrPort][]*node.Node {
	own := map[netip.Addr]bool{}
	for _, m := range machines {
		own[m.addr()] = true
	}

	served := map[netip.AddrPort][]*node.Node{}
	owner := map[netip.AddrPort]string{}

	for _, m := range machines {
		addr, ok := endpoint(m.node)
		if !ok || own[addr.Addr()] {
			continue
		}

		id := m.node.Status().ClusterID
		if owner[addr] = cmp.Or(owner[addr], id); owner[addr] == id {
			served[addr] = append(served[addr], m.node)
		}
	}

	return served
}

// endpoint returns the endpoint that a node's config names, when it is a loopback address.
func endpoint(n *node.Node) (netip.AddrPort, bool) {
	u := n.Endpoint()
	if u == nil {
		return netip.AddrPort{}, false
	}

	addr, err := netip.ParseAddrPort(net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "443")))

	return addr, err == nil && addr.Addr().IsLoopback()
}
