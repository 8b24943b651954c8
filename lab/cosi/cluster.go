package cosi

import (
	"maps"
	"net/netip"
	"slices"

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
	show(s, cluster.AffiliateType, slices.All(members), func(_ int, m Member) resource.Resource {
		return withSpec(cluster.NewAffiliate(cluster.NamespaceName, m.NodeID), cluster.AffiliateSpec{
			NodeID: m.NodeID, Addresses: m.Addresses, Hostname: m.Nodename, Nodename: m.Nodename,
			OperatingSystem: m.OperatingSystem, MachineType: m.MachineType, ControlPlane: m.controlPlane(),
		})
	})
	show(s, cluster.MemberType, slices.All(members), func(_ int, m Member) resource.Resource {
		return withSpec(cluster.NewMember(cluster.NamespaceName, m.Nodename), cluster.MemberSpec{
			NodeID: m.NodeID, Addresses: m.Addresses, Hostname: m.Nodename,
			OperatingSystem: m.OperatingSystem, MachineType: m.MachineType, ControlPlane: m.controlPlane(),
		})
	})

	s.mu.Lock()
	s.live.members = members
	s.mu.Unlock()

	s.derive()
}

func (m Member) controlPlane() *cluster.ControlPlane {
	if !m.MachineType.IsControlPlane() {
		return nil
	}

	return &cluster.ControlPlane{APIServerPort: m.APIServerPort}
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

// SetNodeStatus shows what the Kubernetes API says about the node.
func (s *Store) SetNodeStatus(spec k8s.NodeStatusSpec) {
	s.Replace(k8s.NodeStatusType, withSpec(k8s.NewNodeStatus(k8s.NamespaceName, spec.Nodename), spec))
}

// SetStaticPods shows the rendered static pods by name, as pod manifests.
func (s *Store) SetStaticPods(pods map[string]map[string]any) {
	show(s, k8s.StaticPodType, maps.All(pods), func(id string, pod map[string]any) resource.Resource {
		return withSpec(k8s.NewStaticPod(k8s.NamespaceName, id), k8s.StaticPodSpec{Pod: pod})
	})
}

// SetStaticPodStatuses shows the state of the static pods that the kubelet runs, by namespace/name.
func (s *Store) SetStaticPodStatuses(statuses map[string]map[string]any) {
	show(s, k8s.StaticPodStatusType, maps.All(statuses), func(id string, status map[string]any) resource.Resource {
		return withSpec(k8s.NewStaticPodStatus(k8s.NamespaceName, id), k8s.StaticPodStatusSpec{PodStatus: status})
	})
}
