package machineconfig

import (
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/generate/secrets"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// Role is the part a machine plays, in the words of Talos.
type Role string

// Roles.
const (
	// ControlPlane runs etcd and the Kubernetes control plane.
	ControlPlane Role = "controlplane"
	// Worker runs workloads only.
	Worker Role = "worker"
)

// Defaults that a render fills in for empty fields.
const (
	// DefaultDNSDomain is the DNS domain inside a cluster.
	DefaultDNSDomain = "cluster.local"
	// DefaultPodSubnet is the IPv4 network of pods.
	DefaultPodSubnet = "10.244.0.0/16"
	// DefaultServiceSubnet is the IPv4 network of services.
	DefaultServiceSubnet = "10.96.0.0/12"
	// DefaultInstallerRepository is the installer image without its tag.
	DefaultInstallerRepository = "ghcr.io/siderolabs/installer"
	// DefaultKubeletRepository is the kubelet image without its tag.
	DefaultKubeletRepository = "ghcr.io/siderolabs/kubelet"
)

// Input is everything that decides the machine config of one node. Same input, same bytes.
type Input struct {
	// ClusterName is the name of the Talos cluster.
	ClusterName string
	// Endpoint is the URL of the Kubernetes API: https, a host and a port.
	Endpoint string
	// TalosVersion is the version to install, for example v1.13.9.
	TalosVersion string
	// Contract is the version contract to generate for, for example v1.12. Empty means that of TalosVersion. A cluster
	// keeps the contract it was created with over OS upgrades, so that an upgrade does not also rewrite its config.
	Contract string
	// KubernetesVersion, for example v1.36.2.
	KubernetesVersion string
	// Secrets is the PKI of the cluster. Rendering only reads it.
	Secrets *secrets.Bundle
	// Role of the machine.
	Role Role
	// CertSANs are further names in the certificates of the Talos and Kubernetes APIs.
	CertSANs []string

	// Network inside the cluster.
	Network ClusterNetwork
	// AllowSchedulingOnControlPlanes lets workloads run on control-plane nodes.
	AllowSchedulingOnControlPlanes bool

	// Install says how Talos is installed.
	Install Install

	// Hashes remembers what was hashed before. Nil remembers nothing.
	Hashes *Hashes
	// Kubelet changes the kubelet.
	Kubelet Kubelet
	// Registries configure where images are pulled. Nil leaves it to Talos.
	Registries *v1alpha1.Registries
	// NodeLabels, NodeAnnotations and NodeTaints of the Kubernetes Node.
	NodeLabels      map[string]string
	NodeAnnotations map[string]string
	NodeTaints      []Taint
	// ExtensionServices configure services of extensions.
	ExtensionServices []v1alpha1.ExtensionService
	// StaticPods are Pods of v1 that the kubelet runs by itself.
	StaticPods []runtime.RawExtension
	// Kernel are modules, and files below /proc/sys and /sys.
	Kernel kernel.Settings
	// System are the settings of Talos itself.
	System v1alpha1.SystemOptions
	// Volumes are those of Talos. Nil leaves them to Talos.
	Volumes *v1alpha1.Volumes
	// Machine is the network of this one machine. An empty host name leaves it to Talos.
	Machine v1alpha1.MachineNetwork
	// KubeSpan and Discovery are how the machines of the cluster find and reach each other.
	KubeSpan  *v1alpha1.KubeSpan
	Discovery *v1alpha1.Discovery
	// KubePrism is the load balancer for the Kubernetes API on each machine.
	KubePrism *v1alpha1.KubePrism
	// KubePrismFixed refuses patches of KubePrism: the manifests of the cluster have its address. It is false for an
	// imported cluster, where a patch may be what keeps it.
	KubePrismFixed bool
	// Firewall of the machine; nil if the fields say nothing about one. Neighbours are checked against it.
	Firewall   *v1alpha1.IngressFirewall
	Neighbours netconfig.Neighbours
	// Live is the config that the machine runs; nil if none is known. What its firewall closes is not refused again.
	Live []byte
	// Values are those of the fields that name keys of Secrets. They never show in errors or differences.
	Values keyref.Values

	// Patches change the generated config, in the order cluster, group, machine, adopted.
	Patches Patches
}

// ClusterNetwork is the network inside a cluster.
type ClusterNetwork struct {
	// PodSubnets and ServiceSubnets: one, or two for dual stack with the primary family first. Default: IPv4.
	PodSubnets     []string
	ServiceSubnets []string
	// DNSDomain of the cluster. Default: cluster.local.
	DNSDomain string
	// CNI of the cluster. Default: flannel.
	CNI CNI
}

// CNI is how the pod network comes to be.
type CNI struct {
	// Name is flannel, custom or none. Empty means flannel.
	Name string
	// URLs of the manifests of a custom CNI.
	URLs []string
}

// Install says how Talos is installed.
type Install struct {
	// Disk is a device path. It wins over Selector; controllers fill it in with what ChooseDisk returned.
	Disk string
	// Selector lets the node choose.
	Selector DiskSelector
	// Image is the installer image with tag or digest. Default: that of Factory.
	Image string
	// Factory is the image of an image factory to install. Default: DefaultInstallImage of the Talos version.
	Factory *imagefactory.Image
	// Refused is why there is no such image; nil if nothing is known against it.
	Refused *InputError
	// Wipe allows an installation over something else.
	Wipe bool
	// Bootloader: nil means yes.
	Bootloader *bool
	// ExtraKernelArgs are added to the kernel command line.
	ExtraKernelArgs []string
}

// Kubelet changes the kubelet.
type Kubelet struct {
	// Image with or without tag. Default: ghcr.io/siderolabs/kubelet. The tag is the Kubernetes version.
	Image string
	// ExtraArgs without leading dashes.
	ExtraArgs map[string]string
}

// Taint of a Kubernetes Node.
type Taint struct {
	Key    string
	Value  string
	Effect string
}

// Patches change a generated config. Each is a strategic merge patch (also multi-document and with "$patch: delete")
// or an RFC 6902 patch as JSON or YAML: a list of operations on the main document, or target (apiVersion, kind and name
// of another document) and operations.
type Patches struct {
	Cluster []string
	Group   []string
	Machine []string
	// ClusterFrom, GroupFrom and MachineFrom were read from other objects. They follow the others of their level.
	ClusterFrom []Sourced
	GroupFrom   []Sourced
	MachineFrom []Sourced
	// Adopted keep what was changed outside of the operator. They follow all others.
	Adopted []string
}

// Sourced is a patch that was read from another object.
type Sourced struct {
	// Source is how errors call it, for example: Secret registry, key patch.yaml.
	Source string
	// Secret hides its content: errors do not quote it, and Rendered.Hidden has the fields that it sets.
	Secret bool
	// Text of the patch.
	Text string
}

// level is one step of the order in which patches are applied.
type level struct {
	name   string
	inline []string
	from   []Sourced
}

func (p Patches) levels() []level {
	return []level{
		{"cluster", p.Cluster, p.ClusterFrom},
		{"group", p.Group, p.GroupFrom},
		{"machine", p.Machine, p.MachineFrom},
		{"adopted", p.Adopted, nil},
	}
}

// any tells whether there are patches.
func (p Patches) any() bool {
	return slices.ContainsFunc(p.levels(), func(l level) bool { return len(l.inline)+len(l.from) > 0 })
}

// Rendered is a finished machine config.
type Rendered struct {
	// Bytes is the config as the node gets it. It holds private keys.
	Bytes []byte
	// Hash identifies its meaning: comments, key order and document order do not count.
	Hash string
	// Warnings of the machinery library and of the render, sorted. They hold no secrets.
	Warnings []string
	// Hidden are the fields that Secrets set, sorted, for Difference.Hide.
	Hidden []string
	// ShutOut is what the firewall closes to machines that need it, each with port and machines, as far as the live
	// firewall closes it, too.
	ShutOut []string
}

// DefaultInstallImage is the installer image of a Talos version.
func DefaultInstallImage(talosVersion string) string {
	return DefaultInstallerRepository + ":" + normalizeVersion(talosVersion)
}
