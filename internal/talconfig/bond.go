package talconfig

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

func (x *links) bond(field, name string, b *v1alpha1.Bond, common network.CommonLinkConfig) {
	doc := network.NewBondConfigV1Alpha1(name)
	doc.CommonLinkConfig = common
	doc.BondLinks = slices.Clone(b.BondInterfaces)

	for i, selector := range b.BondDeviceSelectors {
		member := fmt.Sprintf("%s-m%d", name, i)
		x.alias(fmt.Sprintf("%s.deviceSelectors[%d]", field, i), member, selector)
		doc.BondLinks = append(doc.BondLinks, member)
	}

	if len(doc.BondLinks) == 0 {
		x.add(field, "has no members: name them in interfaces, or select them in deviceSelectors")
	}

	for i, link := range b.BondInterfaces {
		x.unique(x.members, fmt.Sprintf("%s.interfaces[%d]", field, i), link)
	}

	if b.BondMode == "" {
		x.add(field+".mode", "is missing: for example 802.3ad or active-backup")
	}

	x.bondWords(field, b, doc)
	x.bondNumbers(b, doc)

	for i, target := range b.BondARPIPTarget {
		addr, err := netip.ParseAddr(target)
		if err != nil {
			x.add(fmt.Sprintf("%s.arpIPTarget[%d]", field, i), "%q is not an IP address", target)
		}

		doc.BondARPIPTargets = append(doc.BondARPIPTargets, addr)
	}

	if b.BondPrimary != "" && !x.legacy {
		x.add(field+".primary", "has no form since Talos 1.12: remove it")
	}

	if b.BondADActorSystem != "" && !x.legacy {
		x.add(field+".adActorSystem", "has no form since Talos 1.12: remove it")
	}

	x.docs = append(x.docs, doc)
}

func (x *links) bondWords(field string, b *v1alpha1.Bond, doc *network.BondConfigV1Alpha1) {
	word(x, field+".mode", b.BondMode, nethelpers.BondModeByName, &doc.BondMode)
	word(x, field+".xmitHashPolicy", b.BondHashPolicy, nethelpers.BondXmitHashPolicyByName, &doc.BondXmitHashPolicy)
	word(x, field+".lacpRate", b.BondLACPRate, nethelpers.LACPRateByName, &doc.BondLACPRate)
	word(x, field+".arpValidate", b.BondARPValidate, nethelpers.ARPValidateByName, &doc.BondARPValidate)
	word(x, field+".arpAllTargets", b.BondARPAllTargets, nethelpers.ARPAllTargetsByName, &doc.BondARPAllTargets)
	word(x, field+".primaryReselect", b.BondPrimaryReselect, nethelpers.PrimaryReselectByName, &doc.BondPrimaryReselect)
	word(x, field+".failOverMac", b.BondFailOverMac, nethelpers.FailOverMACByName, &doc.BondFailOverMAC)
	word(x, field+".adSelect", b.BondADSelect, nethelpers.ADSelectByName, &doc.BondADSelect)
}

// word reads a word of an enumeration: one that is not known is a problem.
func word[T interface {
	comparable
	fmt.Stringer
}](x *links, field, text string, byName func(string) (T, error), into **T,
) {
	if text == "" {
		return
	}

	value, err := byName(text)
	if err != nil {
		x.add(field, "%q is not known%s", text, alternatives(byName))

		return
	}

	*into = &value
}

// alternatives lists what a function knows of the words of bonds.
func alternatives[T any](byName func(string) (T, error)) string {
	var known []string

	for _, candidate := range bondWords {
		if _, err := byName(candidate); err == nil {
			known = append(known, candidate)
		}
	}

	if len(known) == 0 {
		return ""
	}

	return fmt.Sprintf("; known are %v", known)
}

// bondWords are all words of the settings of bonds.
var bondWords = []string{
	"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb", "balance-alb",
	"layer2", "layer2+3", "layer3+4", "encap2+3", "encap3+4", "vlan+srcmac", "slow", "fast",
	"none", "active", "backup", "all", "filter", "filter_active", "filter_backup", "any",
	"always", "better", "failure", "follow", "stable", "bandwidth", "count",
}

// bondNumbers leaves out what is zero, as the form before 1.12 does.
func (x *links) bondNumbers(b *v1alpha1.Bond, doc *network.BondConfigV1Alpha1) {
	doc.BondMIIMon, doc.BondUpDelay, doc.BondDownDelay = some(b.BondMIIMon), some(b.BondUpDelay), some(b.BondDownDelay)
	doc.BondARPInterval, doc.BondResendIGMP = some(b.BondARPInterval), some(b.BondResendIGMP)
	doc.BondMinLinks, doc.BondLPInterval = some(b.BondMinLinks), some(b.BondLPInterval)
	doc.BondPacketsPerSlave, doc.BondNumPeerNotif = some(b.BondPacketsPerSlave), some(b.BondNumPeerNotif)
	doc.BondTLBDynamicLB, doc.BondAllSlavesActive = some(b.BondTLBDynamicLB), some(b.BondAllSlavesActive)
	doc.BondADActorSysPrio, doc.BondADUserPortKey = some(b.BondADActorSysPrio), some(b.BondADUserPortKey)
	doc.BondPeerNotifyDelay, doc.BondUseCarrier = some(b.BondPeerNotifyDelay), b.BondUseCarrier
}

func some[T comparable](value T) *T {
	if reflect.ValueOf(value).IsZero() {
		return nil
	}

	return &value
}

func (x *links) bridge(field, name string, b *v1alpha1.Bridge, common network.CommonLinkConfig) {
	doc := network.NewBridgeConfigV1Alpha1(name)
	doc.CommonLinkConfig = common
	doc.BridgeLinks = slices.Clone(b.BridgedInterfaces)

	if b.BridgeSTP != nil {
		doc.BridgeSTP.BridgeSTPEnabled = b.BridgeSTP.STPEnabled
	}

	if b.BridgeVLAN != nil {
		doc.BridgeVLAN.BridgeVLANFiltering = b.BridgeVLAN.BridgeVLANFiltering
	}

	for i, link := range b.BridgedInterfaces {
		x.unique(x.members, fmt.Sprintf("%s.interfaces[%d]", field, i), link)
	}

	x.docs = append(x.docs, doc)
}

func (x *links) wireguard(field, name string, w *v1alpha1.DeviceWireguardConfig, common network.CommonLinkConfig) {
	doc := network.NewWireguardConfigV1Alpha1(name)
	doc.CommonLinkConfig = common
	doc.WireguardPrivateKey, doc.WireguardListenPort = w.WireguardPrivateKey, w.WireguardListenPort
	doc.WireguardFirewallMark = w.WireguardFirewallMark

	x.required(field+".privateKey", w.WireguardPrivateKey, "the private key of the tunnel")

	for i, peer := range w.WireguardPeers {
		at := fmt.Sprintf("%s.peers[%d]", field, i)
		x.required(at+".publicKey", peer.WireguardPublicKey, "the public key of the peer")

		out := network.WireguardPeer{
			WireguardPublicKey:                   peer.WireguardPublicKey,
			WireguardPersistentKeepaliveInterval: peer.WireguardPersistentKeepaliveInterval,
		}

		if peer.WireguardEndpoint != "" {
			endpoint, err := netip.ParseAddrPort(peer.WireguardEndpoint)
			if err != nil {
				x.add(at+".endpoint", "%q is not an IP address with a port, such as 192.0.2.1:51820", peer.WireguardEndpoint)
			}

			out.WireguardEndpoint = network.AddrPort{AddrPort: endpoint}
		}

		for j, allowed := range peer.WireguardAllowedIPs {
			prefix, err := netip.ParsePrefix(allowed)
			if err != nil {
				x.add(fmt.Sprintf("%s.allowedIPs[%d]", at, j), "%q is not a network such as 10.0.0.0/24", allowed)
			}

			out.WireguardAllowedIPs = append(out.WireguardAllowedIPs, network.Prefix{Prefix: prefix})
		}

		doc.WireguardPeers = append(doc.WireguardPeers, out)
	}

	x.docs = append(x.docs, doc)
}
