package node

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node/discovery"
)

// virtualIPs are the owners of the virtual IPs of a lab. Real nodes elect them by etcd.
type virtualIPs struct {
	mu     sync.Mutex
	owners map[virtualIP]*session
}

// virtualIP is one of a cluster.
type virtualIP struct {
	cluster discovery.Key
	address netip.Addr
}

// claim makes a boot the owner of each address that no other one has which still competes for it, and returns those
// that it owns.
func (v *virtualIPs) claim(cluster discovery.Key, s *session) []netip.Addr {
	v.mu.Lock()
	defer v.mu.Unlock()

	var held []netip.Addr

	for _, address := range s.virtualIPs() {
		at := virtualIP{cluster, address}

		if owner := v.owners[at]; owner == nil || owner != s && !slices.Contains(owner.virtualIPs(), address) {
			v.owners[at] = s
		}

		if v.owners[at] == s {
			held = append(held, address)
		}
	}

	return held
}

// virtualIPs are those that the node competes for: while its etcd works, and it is on the network.
func (s *session) virtualIPs() []netip.Addr {
	cfg, ok := s.complete()
	if !ok || s.ctx.Err() != nil || s.n.isolated() || !s.serviceUp(svcEtcd) {
		return nil
	}

	return cosi.VirtualIPs(cfg)
}

// compete shows the virtual IPs that the node has.
func (s *session) compete() {
	if key, ok := s.clusterKey(); ok {
		s.store.SetVirtualIPs(s.n.opts.Cluster.virtual.claim(key, s)...)
	}
}

// competes reports whether the config has virtual IPs, whose owners may change with the health of etcd.
func (s *session) competes() bool {
	cfg, ok := s.complete()

	return ok && len(cosi.VirtualIPs(cfg)) > 0
}
