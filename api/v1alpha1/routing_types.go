package v1alpha1

// CloudVIP assigns a virtual IP by the API of a cloud, because packets to it would not reach the machine otherwise.
type CloudVIP struct {
	// apiTokenFrom names the token for the API, with the permission to change the address.
	// +required
	APITokenFrom SecretKeyReference `json:"apiTokenFrom,omitzero"`
}

// RoutingRule chooses the routing table for packets.
type RoutingRule struct {
	// priority of the rule: rules with lower numbers are asked first. 32500 and 32501 belong to KubeSpan.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=32765
	Priority int32 `json:"priority,omitempty"`
	// source is the network that packets come from, in CIDR notation. Default: any.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Source string `json:"source,omitempty"`
	// destination is the network that packets go to, in CIDR notation. Default: any.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Destination string `json:"destination,omitempty"`
	// inputInterface is the name of the interface on which packets arrive. Default: any.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	InputInterface string `json:"inputInterface,omitempty"`
	// outputInterface is the name of the interface that a program of the machine sends packets over. Default: any.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	OutputInterface string `json:"outputInterface,omitempty"`
	// firewallMark of the packets. Default: any.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	FirewallMark int64 `json:"firewallMark,omitempty"`
	// firewallMask are the bits of the mark that count. Default: all.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	FirewallMask int64 `json:"firewallMask,omitempty"`
	// table in which the route is looked up, by its number: 254 is the main one. Only with the action unicast, which
	// needs it.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Table int32 `json:"table,omitempty"`
	// action is what happens to the packets: unicast (default) looks a route up in the table, blackhole drops them,
	// unreachable and prohibit drop them and tell the sender.
	// +optional
	// +kubebuilder:validation:Enum=unicast;blackhole;unreachable;prohibit
	Action string `json:"action,omitempty"`
}

// BlackholeRoute drops packets to a network for which there is no better route.
type BlackholeRoute struct {
	// network is the destination, in CIDR notation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Network string `json:"network,omitempty"`
	// metric of the route. Default: 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Metric int32 `json:"metric,omitempty"`
}
