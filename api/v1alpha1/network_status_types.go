package v1alpha1

// MachineNetworkStatus is what a node reports about its network. It is read when the machine begins to run, after each
// change of its configuration, and about every ten minutes. While the machine is unreachable, it is as last read.
type MachineNetworkStatus struct {
	// hostnameSource is where Talos has the hostname from: configuration, operator (DHCP), platform, cmdline or default.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	HostnameSource string `json:"hostnameSource,omitempty"`
	// resolvers are the DNS servers that the node uses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	Resolvers []string `json:"resolvers,omitempty"`
	// notReady are the parts of the network that are not up: addresses, connectivity, hostname, files in /etc. Absent if
	// all of them are.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	// +kubebuilder:validation:items:MaxLength=32
	NotReady []string `json:"notReady,omitempty"`
	// links that the configuration has the node bring up, with their states.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Links []MachineLink `json:"links,omitempty"`
	// kubeSpan are the tunnels to other nodes. Absent if the node reports none: KubeSpan is off, or there are no others.
	// +optional
	KubeSpan *KubeSpanStatus `json:"kubeSpan,omitempty"`
	// undiscovered are reachable machines of the cluster that the node does not know from discovery, at most 16. Absent if
	// there are none, or if discovery is off.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	Undiscovered []string `json:"undiscovered,omitempty"`
}

// MachineLink is a link of a machine.
type MachineLink struct {
	// name or alias by which the configuration calls the link.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// state that the kernel reports, such as up and down, or missing. Links without a carrier, such as WireGuard, are
	// unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	State string `json:"state,omitempty"`
}

// KubeSpanStatus describes the tunnels of a node to other nodes.
type KubeSpanStatus struct {
	// up is the number of peers with a tunnel.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Up int32 `json:"up,omitempty"`
	// unknown is the number of peers whose tunnel is not up, and was up less than 275 seconds ago.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Unknown int32 `json:"unknown,omitempty"`
	// down is the number of peers without a tunnel.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Down int32 `json:"down,omitempty"`
	// peers by name, those without a tunnel first; at most 32. Machines that are gone remain for up to half an hour.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Peers []KubeSpanPeer `json:"peers,omitempty"`
}

// KubeSpanPeer is another node in KubeSpan.
type KubeSpanPeer struct {
	// name of the node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// state is up, down or unknown.
	// +optional
	// +kubebuilder:validation:Enum=up;down;unknown
	State string `json:"state,omitempty"`
	// endpoint of the tunnel; empty if it is not up, because Talos then tries one endpoint after the other.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Endpoint string `json:"endpoint,omitempty"`
}
