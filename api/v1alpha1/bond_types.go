package v1alpha1

// Bond joins interfaces into one, for bandwidth or against failures. Its options are those of the kernel's bonding driver,
// with its defaults.
// +kubebuilder:validation:XValidation:rule="has(self.interfaces) != has(self.selectors)",message="set exactly one of interfaces and selectors"
type Bond struct {
	// interfaces are the names of the members.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	Interfaces []string `json:"interfaces,omitempty"`
	// selectors select the members by their properties, one interface each.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Selectors []LinkSelector `json:"selectors,omitempty"`
	// mode determines which member a packet takes.
	// +required
	// +kubebuilder:validation:Enum=balance-rr;active-backup;balance-xor;broadcast;"802.3ad";balance-tlb;balance-alb
	Mode string `json:"mode,omitempty"`
	// xmitHashPolicy determines what the member of a packet is computed from, in the modes balance-xor, 802.3ad and
	// balance-tlb.
	// +optional
	// +kubebuilder:validation:Enum=layer2;"layer3+4";"layer2+3";"encap2+3";"encap3+4"
	XmitHashPolicy string `json:"xmitHashPolicy,omitempty"`
	// lacpRate is how often the partner is asked for its state in the mode 802.3ad: slow (every 30 s) or fast (every
	// second).
	// +optional
	// +kubebuilder:validation:Enum=slow;fast
	LACPRate string `json:"lacpRate,omitempty"`
	// adActorSysPrio is the priority of this system in the mode 802.3ad.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ADActorSysPrio *int32 `json:"adActorSysPrio,omitempty"`
	// adUserPortKey is the upper part of the key of the ports in the mode 802.3ad.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1023
	ADUserPortKey *int32 `json:"adUserPortKey,omitempty"`
	// adSelect determines which aggregate is used in the mode 802.3ad.
	// +optional
	// +kubebuilder:validation:Enum=stable;bandwidth;count
	ADSelect string `json:"adSelect,omitempty"`
	// adLACPActive sends LACP packets without being asked in the mode 802.3ad: on or off. Talos 1.12 and later.
	// +optional
	// +kubebuilder:validation:Enum=on;off
	ADLACPActive string `json:"adLACPActive,omitempty"`
	// arpInterval is how often members are checked by ARP, in milliseconds. Not together with miimon.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ARPInterval *int32 `json:"arpInterval,omitempty"`
	// arpIPTargets are the IPv4 addresses that are asked then. Talos 1.12 and later.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=15
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	ARPIPTargets []string `json:"arpIPTargets,omitempty"`
	// nsIP6Targets are the IPv6 addresses that are asked then. Talos 1.12 and later.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=45
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	NSIP6Targets []string `json:"nsIP6Targets,omitempty"`
	// arpValidate determines which ARP packets count.
	// +optional
	// +kubebuilder:validation:Enum=none;active;backup;all;filter;filter-active;filter-backup
	ARPValidate string `json:"arpValidate,omitempty"`
	// arpAllTargets determines whether any or all targets have to respond.
	// +optional
	// +kubebuilder:validation:Enum=any;all
	ARPAllTargets string `json:"arpAllTargets,omitempty"`
	// primary is the member that is preferred in the modes active-backup, balance-tlb and balance-alb. Before Talos 1.12
	// only.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*$`
	Primary string `json:"primary,omitempty"`
	// primaryReselect determines when the preferred member is used again.
	// +optional
	// +kubebuilder:validation:Enum=always;better;failure
	PrimaryReselect string `json:"primaryReselect,omitempty"`
	// failOverMac determines the hardware addresses of members in the mode active-backup.
	// +optional
	// +kubebuilder:validation:Enum=none;active;follow
	FailOverMAC string `json:"failOverMac,omitempty"`
	// miimon is how often the links of members are checked, in milliseconds. 802.3ad needs it to notice a dead link.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MIIMon *int32 `json:"miimon,omitempty"`
	// upDelay is how long a link has to be up until it is used, in milliseconds: a multiple of miimon.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpDelay *int32 `json:"upDelay,omitempty"`
	// downDelay is how long a link has to be down until it is not used, in milliseconds: a multiple of miimon.
	// +optional
	// +kubebuilder:validation:Minimum=0
	DownDelay *int32 `json:"downDelay,omitempty"`
	// useCarrier determines whether drivers report the state of links themselves.
	// +optional
	UseCarrier *bool `json:"useCarrier,omitempty"`
	// resendIGMP is how often IGMP reports are sent again after a failover.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	ResendIGMP *int32 `json:"resendIGMP,omitempty"`
	// minLinks is how many members have to be up for the bond to be up, in the mode 802.3ad.
	// +optional
	// +kubebuilder:validation:Minimum=0
	MinLinks *int32 `json:"minLinks,omitempty"`
	// lpInterval is how often learning packets are sent to switches, in seconds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	LPInterval *int32 `json:"lpInterval,omitempty"`
	// packetsPerSlave is how many packets a member takes before the next one does, in the mode balance-rr.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	PacketsPerSlave *int32 `json:"packetsPerSlave,omitempty"`
	// numPeerNotif is how many notifications peers get after a failover.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=255
	NumPeerNotif *int32 `json:"numPeerNotif,omitempty"`
	// peerNotifDelay is the time between these notifications, in milliseconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	PeerNotifDelay *int32 `json:"peerNotifDelay,omitempty"`
	// tlbDynamicLB moves flows between members by their load in the mode balance-tlb: 0 or 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	TLBDynamicLB *int32 `json:"tlbDynamicLB,omitempty"`
	// allSlavesActive delivers duplicate packets that arrive at inactive members: 0 or 1.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1
	AllSlavesActive *int32 `json:"allSlavesActive,omitempty"`
	// missedMax is how many checks by ARP have to fail until a member counts as down. Talos 1.12 and later.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=255
	MissedMax *int32 `json:"missedMax,omitempty"`
}
