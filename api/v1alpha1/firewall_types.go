package v1alpha1

// IngressFirewall determines which packets from the network a machine accepts. Talos always accepts those of the machine
// itself, of KubeSpan and of SideroLink; with block also those of connections that exist, of pods and services among each
// other, and a limited number of ICMP packets.
type IngressFirewall struct {
	// defaultAction is what happens to packets for which there is no rule: accept (default) or block.
	// +optional
	DefaultAction FirewallAction `json:"defaultAction,omitempty"`
	// rules by name. With block, a port that is named in rules is open to the networks of each of them. With accept, it is
	// open only to those that all of them have in ingress.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Rules []FirewallRule `json:"rules,omitempty"`
}

// FirewallAction is what happens to packets.
// +kubebuilder:validation:Enum=accept;block
type FirewallAction string

// Actions of a firewall.
const (
	// FirewallAccept accepts packets. It is the default.
	FirewallAccept FirewallAction = "accept"
	// FirewallBlock drops packets.
	FirewallBlock FirewallAction = "block"
)

// FirewallRule accepts packets for ports of a machine.
type FirewallRule struct {
	// name of the rule. A rule of a machine replaces the one with the same name of its group.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name,omitempty"`
	// protocol of the packets: tcp or udp.
	// +required
	// +kubebuilder:validation:Enum=tcp;udp
	Protocol string `json:"protocol,omitempty"`
	// ports of the machine: numbers, such as "10250", and ranges, such as "2379-2380", that do not overlap.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=11
	// +kubebuilder:validation:items:Pattern=`^[0-9]{1,5}(-[0-9]{1,5})?$`
	Ports []string `json:"ports,omitempty"`
	// ingress are the networks from which packets are accepted.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Ingress []FirewallSource `json:"ingress,omitempty"`
}

// FirewallSource is a network from which packets are accepted.
type FirewallSource struct {
	// subnet in CIDR notation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Subnet string `json:"subnet,omitempty"`
	// except is a part of the subnet from which packets are not accepted, in CIDR notation. It counts for the whole rule.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Except string `json:"except,omitempty"`
}
