package v1alpha1

// MachineNetwork is the network configuration of one machine. Clusters that were created with Talos 1.12 or later get
// it as documents, older ones as machine.network. What a generation of Talos cannot express is refused, never dropped.
type MachineNetwork struct {
	// hostname of the machine. Default: the name of the TalosMachine.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Hostname string `json:"hostname,omitempty"`

	SharedNetwork `json:",inline"`

	// kubeSpanEndpoints are further endpoints of this machine that KubeSpan publishes, with their UDP ports, for example
	// those of a NAT in front of it: 192.0.2.1:51820.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	KubeSpanEndpoints []string `json:"kubeSpanEndpoints,omitempty"`
	// routingRules choose the routing table for packets. Talos 1.13 and later.
	// +optional
	// +listType=map
	// +listMapKey=priority
	// +kubebuilder:validation:MaxItems=64
	RoutingRules []RoutingRule `json:"routingRules,omitempty"`
	// blackholeRoutes drop packets to networks. Talos 1.13 and later.
	// +optional
	// +listType=map
	// +listMapKey=network
	// +kubebuilder:validation:MaxItems=64
	BlackholeRoutes []BlackholeRoute `json:"blackholeRoutes,omitempty"`
	// interfaces of the machine, with their addresses. As soon as one is listed for a cluster that was created with Talos
	// 1.12 or later, Talos requests addresses by DHCP only on the interfaces that say so.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
}

// SharedNetwork is the network configuration that machines have in common. A list of a machine replaces that of its
// group, apart from hosts: there the addresses of a machine replace or join those of its group.
type SharedNetwork struct {
	// nameservers are the IP addresses of DNS servers.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Nameservers []string `json:"nameservers,omitempty"`
	// searchDomains are the domains in which short names are looked up.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	SearchDomains []string `json:"searchDomains,omitempty"`
	// disableDefaultSearchDomain keeps the domain of the host name out of the search domains, to which Talos adds it
	// otherwise. Default: false.
	// +optional
	DisableDefaultSearchDomain *bool `json:"disableDefaultSearchDomain,omitempty"`
	// timeServers are NTP servers: IP addresses or host names. Default: those of the cluster's Talos version.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9:]([-A-Za-z0-9.:]*[A-Za-z0-9:])?$`
	TimeServers []string `json:"timeServers,omitempty"`
	// hosts are names that the machine resolves without DNS, as in /etc/hosts.
	// +optional
	// +listType=map
	// +listMapKey=address
	// +kubebuilder:validation:MaxItems=64
	Hosts []StaticHost `json:"hosts,omitempty"`
}

// StaticHost is an IP address and its names.
type StaticHost struct {
	// address is the IP address of the host.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Address string `json:"address,omitempty"`
	// hostnames that resolve to the address.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?$`
	Hostnames []string `json:"hostnames,omitempty"`
}

// NetworkInterface is one interface: an existing one, selected by its name, its hardware address or its properties, or
// one that Talos creates: a bond, a bridge, a dummy or a WireGuard tunnel.
// +kubebuilder:validation:XValidation:rule="[has(self.name), has(self.macAddress), has(self.selector)].filter(x, x).size() == 1",message="set exactly one of name, macAddress and selector"
// +kubebuilder:validation:XValidation:rule="[has(self.bond), has(self.bridge), has(self.wireguard), has(self.dummy) && self.dummy].filter(x, x).size() <= 1",message="set at most one of bond, bridge, dummy and wireguard"
// +kubebuilder:validation:XValidation:rule="!has(self.ignore) || !self.ignore || !(has(self.dhcp) && self.dhcp || has(self.addresses) || has(self.routes) || has(self.vlans) || has(self.vip) || has(self.bond) || has(self.bridge) || has(self.wireguard))",message="an ignored interface must not have any other configuration"
// +kubebuilder:validation:XValidation:rule="has(self.name) || !(has(self.bond) || has(self.bridge) || has(self.wireguard) || has(self.dummy) && self.dummy)",message="name is required for a bond, a bridge, a dummy and a WireGuard tunnel"
type NetworkInterface struct {
	// name of the interface, for example enp1s0, bond0, lo.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	Name string `json:"name,omitempty"`
	// macAddress is the permanent hardware address of the interface.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$`
	MACAddress string `json:"macAddress,omitempty"`
	// selector selects the interface by its properties. It has to match one interface.
	// +optional
	Selector *LinkSelector `json:"selector,omitempty"`
	// ignore leaves the interface alone: Talos neither brings it up nor requests addresses on it. Default: false.
	// +optional
	Ignore *bool `json:"ignore,omitempty"`
	// dhcp requests an address by DHCP. Default: false.
	// +optional
	DHCP *bool `json:"dhcp,omitempty"`
	// dhcpOptions determine how an address is requested. They have no effect without dhcp.
	// +optional
	DHCPOptions *DHCPOptions `json:"dhcpOptions,omitempty"`
	// addresses of the interface, in CIDR notation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Addresses []string `json:"addresses,omitempty"`
	// addressRoutePriority is the metric of the routes that the kernel adds for the addresses: of several interfaces in one
	// network, that with the lowest is taken. Talos 1.12 and later. Default: the value that the kernel sets.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AddressRoutePriority int32 `json:"addressRoutePriority,omitempty"`
	// routes over this interface.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// mtu of the interface, in bytes. Default: the value that the kernel sets.
	// +optional
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
	// vip is an IP address that moves between the control-plane machines that have it on this interface.
	// +optional
	VIP *VirtualIP `json:"vip,omitempty"`
	// bond makes the interface a bond of others.
	// +optional
	Bond *Bond `json:"bond,omitempty"`
	// bridge makes the interface a bridge between others.
	// +optional
	Bridge *Bridge `json:"bridge,omitempty"`
	// dummy makes the interface one without hardware. Default: false.
	// +optional
	Dummy *bool `json:"dummy,omitempty"`
	// hardwareAddress of a bond, a bridge or a dummy, whose names alone select them. Talos 1.12 and later. Default: that of
	// a member, or a random one.
	// +optional
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^([0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}$`
	HardwareAddress string `json:"hardwareAddress,omitempty"`
	// wireguard makes the interface a WireGuard tunnel.
	// +optional
	WireGuard *WireGuard `json:"wireguard,omitempty"`
	// vlans on this interface.
	// +optional
	// +listType=map
	// +listMapKey=id
	// +kubebuilder:validation:MaxItems=32
	VLANs []VLAN `json:"vlans,omitempty"`
}

// LinkSelector selects an interface by properties that all have to match. Values may have the wildcard *, apart from
// physical.
// +kubebuilder:validation:MinProperties=1
type LinkSelector struct {
	// busPath of the device, for example 0000:00:03.0 or 00:03.*.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[-A-Za-z0-9_.:/*]+$`
	BusPath string `json:"busPath,omitempty"`
	// driver of the kernel, for example virtio_net.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[-A-Za-z0-9_.:*]+$`
	Driver string `json:"driver,omitempty"`
	// pciID is vendor and product of a PCI device as the machine reports them, for example 8086:1533 or 1AF4:*.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=9
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f:*]+$`
	PCIID string `json:"pciID,omitempty"`
	// hardwareAddress is the current hardware address. VLANs and bonds inherit that of their parent: prefer
	// permanentAddress.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f:*]+$`
	HardwareAddress string `json:"hardwareAddress,omitempty"`
	// permanentAddress is the hardware address that the device was made with.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=17
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f:*]+$`
	PermanentAddress string `json:"permanentAddress,omitempty"`
	// physical selects physical interfaces only, or virtual ones only.
	// +optional
	Physical *bool `json:"physical,omitempty"`
}

// DHCPOptions determine how an address is requested by DHCP.
type DHCPOptions struct {
	// ipv4 requests an IPv4 address. Default: true.
	// +optional
	IPv4 *bool `json:"ipv4,omitempty"`
	// ipv6 requests an IPv6 address. Default: false.
	// +optional
	IPv6 *bool `json:"ipv6,omitempty"`
	// routeMetric of the routes that the DHCP server sends. Default: 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1
	RouteMetric int32 `json:"routeMetric,omitempty"`
	// ignoreHostname ignores the host name that the DHCP server sends. Talos 1.12 and later. Default: false.
	// +optional
	IgnoreHostname *bool `json:"ignoreHostname,omitempty"`
	// clientIdentifier is what the machine identifies itself with: none, mac (default) or duid. Before Talos 1.12 only
	// mac, and duid for IPv6.
	// +optional
	// +kubebuilder:validation:Enum=none;mac;duid
	ClientIdentifier string `json:"clientIdentifier,omitempty"`
	// duid is the unique identifier of the machine, as hexadecimal bytes with colons in between.
	// +optional
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=389
	// +kubebuilder:validation:Pattern=`^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2})*$`
	DUID string `json:"duid,omitempty"`
}

// Route is one static route: network, gateway, or both are set. The operator checks that: an expression in each of so
// many places would cost more than the API server allows.
type Route struct {
	// network is the destination in CIDR notation. Default: the default route of the gateway's family.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Network string `json:"network,omitempty"`
	// gateway is the IP address of the gateway. Without it, the network is reached on the link itself.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Gateway string `json:"gateway,omitempty"`
	// source is the IP address that packets over this route get, unless a program chooses another one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Source string `json:"source,omitempty"`
	// metric of the route: of several routes to one network, that with the lowest is taken. Default: 1024.
	// +optional
	// +kubebuilder:validation:Minimum=1
	Metric int32 `json:"metric,omitempty"`
	// mtu of packets over this route, in bytes. Default: that of the interface.
	// +optional
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
	// table that has the route, by its number, for routingRules. Talos 1.12 and later. Default: the main one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	Table int32 `json:"table,omitempty"`
}

// VirtualIP is an IP address that one of the control-plane machines has, and that moves to another one when that fails.
// Talos elects its owner by etcd: it needs etcd with quorum.
type VirtualIP struct {
	// address is the shared IP address. It is no address of a machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Address string `json:"address,omitempty"`
	// hcloud assigns the address by the API of Hetzner Cloud. Default: by gratuitous ARP.
	// +optional
	HCloud *CloudVIP `json:"hcloud,omitempty"`
	// equinixMetal assigns the address by the API of Equinix Metal. Only for clusters that were created before Talos 1.12.
	// +optional
	EquinixMetal *CloudVIP `json:"equinixMetal,omitempty"`
}

// VLAN is a virtual network on an interface.
type VLAN struct {
	// id of the VLAN, its tag.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	ID int32 `json:"id,omitempty"`
	// protocol of the tag: 802.1q (default) or 802.1ad. The latter needs Talos 1.12 or later.
	// +optional
	// +kubebuilder:validation:Enum="802.1q";"802.1ad"
	Protocol string `json:"protocol,omitempty"`
	// dhcp requests an address by DHCP. Default: false.
	// +optional
	DHCP *bool `json:"dhcp,omitempty"`
	// dhcpOptions determine how an address is requested. They have no effect without dhcp.
	// +optional
	DHCPOptions *DHCPOptions `json:"dhcpOptions,omitempty"`
	// addresses on the VLAN, in CIDR notation.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	Addresses []string `json:"addresses,omitempty"`
	// addressRoutePriority is the metric of the routes that the kernel adds for the addresses: of several interfaces in one
	// network, that with the lowest is taken. Talos 1.12 and later. Default: the value that the kernel sets.
	// +optional
	// +kubebuilder:validation:Minimum=1
	AddressRoutePriority int32 `json:"addressRoutePriority,omitempty"`
	// routes over the VLAN.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Routes []Route `json:"routes,omitempty"`
	// mtu of the VLAN, in bytes, at most that of its interface. Default: that of its interface.
	// +optional
	// +kubebuilder:validation:Minimum=68
	// +kubebuilder:validation:Maximum=65535
	MTU int32 `json:"mtu,omitempty"`
	// vip is an IP address that moves between the control-plane machines that have it on this VLAN.
	// +optional
	VIP *VirtualIP `json:"vip,omitempty"`
}

// Bridge connects interfaces like a switch.
type Bridge struct {
	// interfaces are the names of those that are connected.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	Interfaces []string `json:"interfaces,omitempty"`
	// stp turns the spanning tree protocol on or off. Default: that of the kernel, off.
	// +optional
	STP *bool `json:"stp,omitempty"`
	// vlanFiltering turns the filter of VLAN tags on or off. Default: that of the kernel, off.
	// +optional
	VLANFiltering *bool `json:"vlanFiltering,omitempty"`
}
