package machineconfig

import (
	"fmt"

	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// describedTwice warns of links that a document and machine.network describe: Talos merges both without a word. It is
// no refusal, because clusters work with such patches. Host names, resolvers and time servers in both forms Talos
// refuses.
func describedTwice(cfg config.Provider) []string {
	main := cfg.RawV1Alpha1()
	if main == nil || main.MachineConfig == nil || main.MachineConfig.MachineNetwork == nil {
		return nil
	}

	documents := map[string]string{}

	for _, doc := range cfg.Documents() {
		if link := linkOf(doc); link != "" {
			documents[link] = documentID(doc)
		}
	}

	var out []string

	for i, device := range main.MachineConfig.MachineNetwork.NetworkInterfaces {
		for _, link := range linksOf(device) {
			if id, both := documents[link]; both {
				out = append(out, fmt.Sprintf("machine.network.interfaces[%d] describes %s, which the document %s describes, "+
					"too, and Talos merges them: describe it in one of them", i, link, id))
			}
		}
	}

	return out
}

// linkOf returns the name of the link that a document describes; empty if it describes none. EthernetConfig is no such
// document: machine.network has nothing that it has.
func linkOf(doc docconfig.Document) string {
	switch d := doc.(type) {
	case *network.LinkConfigV1Alpha1, *network.BondConfigV1Alpha1, *network.BridgeConfigV1Alpha1,
		*network.DummyLinkConfigV1Alpha1, *network.VLANConfigV1Alpha1, *network.WireguardConfigV1Alpha1,
		*network.VRFConfigV1Alpha1, *network.DHCPv4ConfigV1Alpha1, *network.DHCPv6ConfigV1Alpha1:
		return d.(docconfig.NamedDocument).Name()
	case *network.Layer2VIPConfigV1Alpha1:
		return d.LinkName
	case *network.HCloudVIPConfigV1Alpha1:
		return d.LinkName
	}

	return ""
}

// linksOf returns the names of a link of machine.network and of its VLANs; nothing for one that a selector selects.
func linksOf(device *v1alpha1.Device) []string {
	if device == nil || device.DeviceInterface == "" {
		return nil
	}

	out := []string{device.DeviceInterface}

	for _, vlan := range device.DeviceVlans {
		if vlan != nil {
			out = append(out, nethelpers.VLANLinkName(device.DeviceInterface, vlan.VlanID))
		}
	}

	return out
}
