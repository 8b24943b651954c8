package v1alpha1

// KubeSpan connects all machines of a cluster by WireGuard, across networks and NAT. The machines find each other by
// discovery, and reach each other on the UDP port 51820.
type KubeSpan struct {
	// enabled turns KubeSpan on. Default: false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// advertiseKubernetesNetworks sends the traffic between pods through KubeSpan, too, without the CNI encapsulating it.
	// Default: false.
	// +optional
	AdvertiseKubernetesNetworks *bool `json:"advertiseKubernetesNetworks,omitempty"`
	// allowDownPeerBypass sends traffic to a peer that is not up without KubeSpan, not encrypted. Without it, such a peer
	// is unreachable. Default: false.
	// +optional
	AllowDownPeerBypass *bool `json:"allowDownPeerBypass,omitempty"`
	// harvestExtraEndpoints publishes the addresses at which peers see each other, for peers behind NAT. Not for more
	// than 50 machines. Default: false.
	// +optional
	HarvestExtraEndpoints *bool `json:"harvestExtraEndpoints,omitempty"`
	// mtu of the KubeSpan interface, in bytes. Default: 1420.
	// +optional
	// +kubebuilder:validation:Minimum=1280
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
	// filters determine what a machine tells its peers.
	// +optional
	Filters *KubeSpanFilters `json:"filters,omitempty"`
}

// KubeSpanFilters determine what a machine tells its peers.
type KubeSpanFilters struct {
	// endpoints are the networks whose addresses are published as endpoints, in CIDR notation; those after ! are not. The
	// last one that contains an address counts. Default: all addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Endpoints []string `json:"endpoints,omitempty"`
	// excludeAdvertisedNetworks are the networks, in CIDR notation, that a machine does not offer its peers through KubeSpan:
	// they have to reach them another way. Talos 1.12 and later. Default: none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	ExcludeAdvertisedNetworks []string `json:"excludeAdvertisedNetworks,omitempty"`
}

// Discovery determines how the machines of a cluster find each other.
type Discovery struct {
	// enabled turns discovery on. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// registries are the places where machines publish themselves.
	// +optional
	Registries *DiscoveryRegistries `json:"registries,omitempty"`
}

// DiscoveryRegistries are the places where machines publish themselves.
type DiscoveryRegistries struct {
	// service is the discovery service, outside of the cluster. What it stores is encrypted by the machines.
	// +optional
	Service *DiscoveryService `json:"service,omitempty"`
	// kubernetes is the Kubernetes API of the cluster, by annotations of Nodes. It does not work with Kubernetes 1.32 and
	// later.
	// +optional
	Kubernetes *DiscoveryKubernetes `json:"kubernetes,omitempty"`
}

// DiscoveryService is the discovery service.
type DiscoveryService struct {
	// enabled turns the registry on. Default: true.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
	// endpoint is the URL of the service, with http or https, and without a path. Default: https://discovery.talos.dev/.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Endpoint string `json:"endpoint,omitempty"`
}

// DiscoveryKubernetes is the Kubernetes API as a registry.
type DiscoveryKubernetes struct {
	// enabled turns the registry on. Default: false.
	// +optional
	Enabled *bool `json:"enabled,omitempty"`
}
