package apid

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
)

// Network is what stands between the nodes of a lab. It is shared by them and can be cut in several places at
// once. All methods may be called concurrently; the zero value is a network without cuts.
type Network struct {
	mu    sync.Mutex
	state atomic.Pointer[networkState] // nil while there is no cut
}

type networkState struct {
	cuts    []cut
	changed chan struct{} // closed when another state replaces this one
}

type cut struct {
	name string
	a, b []netip.Prefix
}

// Partition drops all traffic between two sets of addresses until Heal is called with the same name. Clients outside of
// the lab come from 127.0.0.1.
func (n *Network) Partition(name string, a, b []netip.Prefix) {
	n.replace(func(cuts []cut) []cut {
		cuts = slices.DeleteFunc(cuts, func(c cut) bool { return c.name == name })

		return append(cuts, cut{name: name, a: slices.Clone(a), b: slices.Clone(b)})
	})
}

// Heal ends a partition.
func (n *Network) Heal(name string) {
	n.replace(func(cuts []cut) []cut {
		return slices.DeleteFunc(cuts, func(c cut) bool { return c.name == name })
	})
}

func (n *Network) replace(change func([]cut) []cut) {
	n.mu.Lock()
	defer n.mu.Unlock()

	old := n.state.Load()

	var cuts []cut
	if old != nil {
		cuts = slices.Clone(old.cuts)
	}

	if cuts = change(cuts); len(cuts) > 0 {
		n.state.Store(&networkState{cuts: cuts, changed: make(chan struct{})})
	} else {
		n.state.Store(nil)
	}

	if old != nil {
		close(old.changed)
	}
}

// silent returns a channel to wait for if no byte passes between two addresses now.
func (n *Network) silent(one, other netip.Addr) <-chan struct{} {
	if n == nil {
		return nil
	}

	state := n.state.Load()
	if state == nil {
		return nil
	}

	for _, c := range state.cuts {
		if contains(c.a, one) && contains(c.b, other) || contains(c.a, other) && contains(c.b, one) {
			return state.changed
		}
	}

	return nil
}

// path is the network as one node sees it.
type path struct {
	self    netip.Addr
	faults  *Faults
	network *Network // may be nil
}

func (p *path) dial(ctx context.Context, network, address string, onClose func(*conn)) (*conn, error) {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, fmt.Errorf("dialing %q: %w", address, err)
	}

	if err := p.await(target.Addr(), ctx.Done()); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: net.TCPAddrFromAddrPort(target), Err: ctx.Err()}
	}

	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: p.self.AsSlice()}}

	raw, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}

	return newConn(raw, p, onClose), nil
}

func (p *path) silent(peer netip.Addr) <-chan struct{} {
	if until := p.faults.silent(p.self, peer); until != nil {
		return until
	}

	return p.network.silent(p.self, peer)
}

// await waits until data can pass between the node and a peer.
func (p *path) await(peer netip.Addr, done <-chan struct{}) error {
	for {
		until := p.silent(peer)
		if until == nil {
			return nil
		}

		select {
		case <-until:
		case <-done:
			return net.ErrClosed
		}
	}
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Hosts makes prefixes of single addresses.
func Hosts(addrs ...netip.Addr) []netip.Prefix {
	out := make([]netip.Prefix, 0, len(addrs))
	for _, addr := range addrs {
		out = append(out, netip.PrefixFrom(addr, addr.BitLen()))
	}

	return out
}

// addrOf returns the IP address of a TCP peer.
func addrOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}

	return tcp.AddrPort().Addr().Unmap()
}
