package cosi

import (
	"net/netip"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/cluster"
	"github.com/siderolabs/talos/pkg/machinery/resources/etcd"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
)

// Member is one node as discovery shows it to the others of its cluster.
type Member struct {
	Nodename        string
	NodeID          string
	Addresses       []netip.Addr
	MachineType     machine.Type
	OperatingSystem string // Talos (v1.13.9)
	APIServerPort   int    // of a control-plane node
}

// SetMembers shows the nodes of the cluster that this node knows of, itself included, as affiliates and as members.
func (s *Store) SetMembers(members ...Member) {
	affiliates := make([]resource.Resource, 0, len(members))
	named := make([]resource.Resource, 0, len(members))

	for _, m := range members {
		var controlPlane *cluster.ControlPlane
		if m.MachineType.IsControlPlane() {
			controlPlane = &cluster.ControlPlane{APIServerPort: m.APIServerPort}
		}

		a := cluster.NewAffiliate(cluster.NamespaceName, m.NodeID)
		*a.TypedSpec() = cluster.AffiliateSpec{
			NodeID: m.NodeID, Addresses: m.Addresses, Hostname: m.Nodename, Nodename: m.Nodename,
			OperatingSystem: m.OperatingSystem, MachineType: m.MachineType, ControlPlane: controlPlane,
		}
		affiliates = append(affiliates, a)

		n := cluster.NewMember(cluster.NamespaceName, m.Nodename)
		*n.TypedSpec() = cluster.MemberSpec{
			NodeID: m.NodeID, Addresses: m.Addresses, Hostname: m.Nodename,
			OperatingSystem: m.OperatingSystem, MachineType: m.MachineType, ControlPlane: controlPlane,
		}
		named = append(named, n)
	}

	s.Replace(cluster.AffiliateType, affiliates...)
	s.Replace(cluster.MemberType, named...)

	s.mu.Lock()
	s.live.members = members
	s.mu.Unlock()

	s.derive()
}

// SetNodeID says who the node is in discovery.
func (s *Store) SetNodeID(id string) {
	r := cluster.NewIdentity(cluster.NamespaceName, cluster.LocalIdentity)
	r.TypedSpec().NodeID = id
	s.Set(r)
}

// SetClusterInfo says which cluster the node belongs to; empty when to none.
func (s *Store) SetClusterInfo(id, name string) {
	if id == "" && name == "" {
		s.Replace(cluster.InfoType)

		return
	}

	r := cluster.NewInfo()
	r.TypedSpec().ClusterID = id
	r.TypedSpec().ClusterName = name
	s.Set(r)
}

// SetEtcdMember shows the ID of the local etcd member; zero when there is none.
func (s *Store) SetEtcdMember(id uint64) {
	if id == 0 {
		s.Replace(etcd.MemberType)

		return
	}

	r := etcd.NewMember(etcd.NamespaceName, etcd.LocalMemberID)
	r.TypedSpec().MemberID = etcd.FormatMemberID(id)
	s.Set(r)
}

// SetEtcdSpec shows how etcd is run.
func (s *Store) SetEtcdSpec(spec etcd.SpecSpec) {
	r := etcd.NewSpec(etcd.NamespaceName, etcd.SpecID)
	*r.TypedSpec() = spec
	s.Set(r)
}

// SetNodename shows the name of the Kubernetes node; empty when there is none.
func (s *Store) SetNodename(name string) {
	if name == "" {
		s.Replace(k8s.NodenameType)

		return
	}

	r := k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)
	r.TypedSpec().Nodename = name
	r.TypedSpec().HostnameVersion = "1"
	s.Set(r)
}

// SetNodeStatus shows what the Kubernetes API says about the node; an empty name removes it.
func (s *Store) SetNodeStatus(spec k8s.NodeStatusSpec) {
	if spec.Nodename == "" {
		s.Replace(k8s.NodeStatusType)

		return
	}

	r := k8s.NewNodeStatus(k8s.NamespaceName, spec.Nodename)
	*r.TypedSpec() = spec
	s.Replace(k8s.NodeStatusType, r)
}

// SetStaticPods shows the rendered static pods by name, as pod manifests.
func (s *Store) SetStaticPods(pods map[string]map[string]any) {
	all := make([]resource.Resource, 0, len(pods))

	for id, pod := range pods {
		r := k8s.NewStaticPod(k8s.NamespaceName, id)
		r.TypedSpec().Pod = pod
		all = append(all, r)
	}

	s.Replace(k8s.StaticPodType, all...)
}

// SetStaticPodStatuses shows the state of the static pods that the kubelet runs, by namespace/name.
func (s *Store) SetStaticPodStatuses(statuses map[string]map[string]any) {
	all := make([]resource.Resource, 0, len(statuses))

	for id, status := range statuses {
		r := k8s.NewStaticPodStatus(k8s.NamespaceName, id)
		r.TypedSpec().PodStatus = status
		all = append(all, r)
	}

	s.Replace(k8s.StaticPodStatusType, all...)
}
