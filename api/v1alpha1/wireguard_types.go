package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WireGuard makes an interface a WireGuard tunnel. Keys are 32 bytes in base64, as the command wg prints them.
type WireGuard struct {
	// privateKeyFrom names the private key of this machine, as wg genkey prints it. Each machine needs one of its own.
	// +required
	PrivateKeyFrom SecretKeyReference `json:"privateKeyFrom,omitzero"`
	// listenPort is the UDP port on which peers reach the machine. Default: a random one.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ListenPort int32 `json:"listenPort,omitempty"`
	// firewallMark is the mark of the packets that the tunnel sends. Default: none.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4294967295
	FirewallMark int64 `json:"firewallMark,omitempty"`
	// peers are the other ends of the tunnel.
	// +optional
	// +listType=map
	// +listMapKey=publicKey
	// +kubebuilder:validation:MaxItems=64
	Peers []WireGuardPeer `json:"peers,omitempty"`
}

// WireGuardPeer is another end of a tunnel.
type WireGuardPeer struct {
	// publicKey of the peer, as wg pubkey prints it.
	// +required
	// +kubebuilder:validation:MinLength=44
	// +kubebuilder:validation:MaxLength=44
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$`
	PublicKey string `json:"publicKey,omitempty"`
	// presharedKeyFrom names a symmetric key that both ends have, as wg genpsk prints it. Talos 1.12 and later. Default:
	// none.
	// +optional
	PresharedKeyFrom *SecretKeyReference `json:"presharedKeyFrom,omitempty"`
	// endpoint is the IP address and the UDP port of the peer, for example 192.0.2.1:51820 or [2001:db8::1]:51820.
	// Default: the one from which the peer connects.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^\P{C}*$`
	Endpoint string `json:"endpoint,omitempty"`
	// persistentKeepaliveInterval is how often an empty packet keeps the way through NAT and firewalls open, in whole
	// seconds, for example 25s. Default: never.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]{1,5}[smh])+$`
	PersistentKeepaliveInterval *metav1.Duration `json:"persistentKeepaliveInterval,omitempty"`
	// allowedIPs are the networks behind the peer, in CIDR notation: packets to them go to the peer, and the peer may send
	// from them. They add no routes: list those in routes of the interface.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^\P{C}*$`
	AllowedIPs []string `json:"allowedIPs,omitempty"`
}
