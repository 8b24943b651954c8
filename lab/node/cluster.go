package node

import (
	"net/netip"
	"slices"
	"time"

	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node/discovery"
)

// certificateRetry is how often a worker asks again for its certificate.
const certificateRetry = time.Second

// watchCluster keeps what the node knows of the other nodes up to date.
func (s *session) watchCluster() {
	ticker := time.NewTicker(certificateRetry)
	defer ticker.Stop()

	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.awake:
			s.showMembers()
			s.compete()
		case <-ticker.C:
			if !s.waitsForCertificate() {
				continue
			}
		}

		if s.waitsForCertificate() && s.obtainCertificate() {
			s.certified()
		}

		s.modelNode()
	}
}

// waitsForCertificate reports whether the node has a config but no certificate of its cluster. While it takes its first
// config it does not: that hands the API over by itself, and leaves the streams of maintenance mode their time.
func (s *session) waitsForCertificate() bool {
	select {
	case <-s.configured:
		return !s.hasCertificate()
	default:
		return false
	}
}

// obtainCertificate gets the node a certificate unless it has one, and reports whether it got it now. The boot and the
// watcher ask for one at the same time: the second one would replace what the first one shows already.
func (s *session) obtainCertificate() bool {
	s.obtaining.Lock()
	defer s.obtaining.Unlock()

	return !s.hasCertificate() && s.refreshIdentity() && s.hasCertificate()
}

// certified opens the machine API with the certificate that has arrived.
func (s *session) certified() {
	if s.n.api.Serving() {
		s.n.api.Reload()

		return
	}

	if !s.apidDue.Load() {
		return // the boot has not come that far: it has no network, or no config yet
	}

	if err := s.serveAPID(); err != nil {
		s.logf("%v", err)
	}
}

// showMembers shows the nodes of the cluster, and the peers of KubeSpan, in the resources.
func (s *session) showMembers() {
	cfg, ok := s.complete()
	if _, inCluster := s.clusterKey(); !ok || !inCluster || s.n.isolated() {
		return
	}

	var (
		members []cosi.Member
		peers   []cosi.Peer
	)

	faults := s.n.NetworkFaults()

	for _, a := range s.affiliates() {
		addr, err := netip.ParseAddr(a.Address)
		if err != nil || faults.NoMembers && a.Node != s.n {
			continue
		}

		members = append(members, cosi.Member{
			Nodename: a.Hostname, NodeID: a.ID, Addresses: []netip.Addr{addr}, MachineType: a.MachineType,
			OperatingSystem: "Talos (" + a.Version + ")", APIServerPort: apiServerPort,
		})

		if a.KubeSpan && a.Node != s.n && kubeSpans(cfg) {
			peers = append(peers, cosi.Peer{
				ID: a.ID, Nodename: a.Hostname, Address: addr, Others: []netip.Addr{publicAddress},
				Up: a.Node.Reachable() && !faults.NoTunnels, Handshake: time.Now(),
			})
		}
	}

	if !cfg.Cluster().Discovery().Enabled() {
		members = nil
	}

	s.store.SetMembers(members...)
	s.store.SetPeers(peers...)
}

// publicAddress is one that the discovery service sees nodes at: they share it, behind a router.
var publicAddress = netip.AddrFrom4([4]byte{192, 0, 2, 1})

// apiServerPort is where API servers of emulated clusters listen.
const apiServerPort = 6443

// modelNode stands in for the kubelet of a modelled node: its Kubernetes node is ready while a control plane is.
func (s *session) modelNode() {
	if !s.n.opts.modelsKubernetes() || s.n.isolated() || !s.serviceUp(svcKubelet) {
		return
	}

	if _, ok := s.clusterKey(); !ok {
		return
	}

	serves := func(node *session) bool { return node.ownAPIServer(s.ctx) == nil && node.accepts(apiServerPort, s) }
	if serves(s) || slices.ContainsFunc(s.others(), serves) {
		s.setNodeReady(true)
	}
}

// affiliates are the nodes of the cluster that discovery knows of, this one included; none without a cluster.
func (s *session) affiliates() []discovery.Affiliate[*Node] {
	key, ok := s.clusterKey()
	if !ok {
		return nil
	}

	return s.n.opts.Cluster.nodes.Affiliates(key)
}

// others are the boots of the other control-plane nodes of the cluster that are on the network.
func (s *session) others() []*session {
	key, ok := s.clusterKey()
	if !ok {
		return nil
	}

	var list []*session

	for _, n := range s.n.opts.Cluster.nodes.ControlPlanes(key, s.n) {
		if other := n.current(); other != nil {
			list = append(list, other)
		}
	}

	return list
}

// notifyCluster wakes the nodes of the cluster, because this one has changed.
func (s *session) notifyCluster() {
	if key, ok := s.clusterKey(); ok {
		s.n.opts.Cluster.nodes.Notify(key)
	}
}
