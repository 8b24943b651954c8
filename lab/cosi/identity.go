package cosi

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
)

// Identity is what distinguishes one node from another in the recorded resources.
type Identity struct {
	// Hostname is the node's name; in maintenance mode a real node has one too.
	Hostname string
	// Address is the node's address with the length of its subnet; 127.10.0.1/16.
	Address netip.Prefix
	// Gateway is the default gateway and resolver. Default: the first address of the subnet.
	Gateway netip.Addr
	// Link is the name of the node's network link. Default: eth0.
	Link string
	// MoreLinks are the names of further network cards of the node.
	MoreLinks []string
	// HardwareAddr is the link's MAC address. Default: made from Address.
	HardwareAddr string
	// NodeID is the node's identity in discovery. Default: made from Hostname and Address.
	NodeID string
	// Platform is the platform that the node says it runs on. Default: metal.
	Platform string
	// TalosVersion is the tag of the installed Talos. Default: v1.13.9.
	TalosVersion string
	// KubernetesVersion is the tag of the Kubernetes images. Default: the recorded one, until there is a machine config.
	KubernetesVersion string
}

var errIdentity = errors.New("a node's identity needs a hostname and an IPv4 address with a prefix length")

func (i Identity) complete() (Identity, error) {
	if i.Hostname == "" || !i.Address.IsValid() || !i.Address.Addr().Is4() {
		return i, fmt.Errorf("%w: %+v", errIdentity, i)
	}

	if !i.Gateway.IsValid() {
		i.Gateway = i.Address.Masked().Addr().Next()
	}

	if i.Link == "" {
		i.Link = "eth0"
	}

	if i.HardwareAddr == "" {
		a := i.Address.Addr().As4()
		i.HardwareAddr = fmt.Sprintf("02:00:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3])
	}

	if i.NodeID == "" {
		i.NodeID = NewNodeID([]byte(i.Hostname + "/" + i.Address.String()))
	}

	if i.Platform == "" {
		i.Platform = "metal"
	}

	if i.TalosVersion == "" {
		i.TalosVersion = recordedVersion
	}

	if i.KubernetesVersion == "" {
		i.KubernetesVersion = recordedKubernetes
	}

	return i, nil
}

// NewNodeID makes a discovery identity, 32 bytes in base 62 as a real node writes it, from a seed.
func NewNodeID(seed []byte) string {
	sum := sha256.Sum256(seed)

	return new(big.Int).SetBytes(sum[:]).Text(62)
}
