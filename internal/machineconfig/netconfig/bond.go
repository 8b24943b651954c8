package netconfig

import (
	"net/netip"

	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// bond returns the document of a bond, after those of its members that have no name.
func (d *documents) bond(
	path *field.Path, name string, b *v1alpha1.Bond, common network.CommonLinkConfig,
) *network.BondConfigV1Alpha1 {
	doc := network.NewBondConfigV1Alpha1(name)
	doc.CommonLinkConfig, doc.BondLinks = common, b.Interfaces

	for i, selector := range b.Selectors {
		member, err := aliasOfSelector(selector)
		if err != nil {
			d.errs = append(d.errs, field.Invalid(path.Child("selectors").Index(i), expression(selector), err.Error()))

			continue
		}

		d.docs = append(d.docs, member)
		doc.BondLinks = append(doc.BondLinks, member.Name())
	}

	if b.Primary != "" {
		d.errs = append(d.errs, field.Forbidden(path.Child("primary"),
			"Talos 1.12 and later has no field for it in BondConfig; remove it"))
	}

	doc.BondMode = enum[nethelpers.BondMode](d, path.Child("mode"), b.Mode)
	doc.BondXmitHashPolicy = enum[nethelpers.BondXmitHashPolicy](d, path.Child("xmitHashPolicy"), b.XmitHashPolicy)
	doc.BondLACPRate = enum[nethelpers.LACPRate](d, path.Child("lacpRate"), b.LACPRate)
	doc.BondADSelect = enum[nethelpers.ADSelect](d, path.Child("adSelect"), b.ADSelect)
	doc.BondADLACPActive = enum[nethelpers.ADLACPActive](d, path.Child("adLACPActive"), b.ADLACPActive)
	doc.BondARPValidate = enum[nethelpers.ARPValidate](d, path.Child("arpValidate"), b.ARPValidate)
	doc.BondARPAllTargets = enum[nethelpers.ARPAllTargets](d, path.Child("arpAllTargets"), b.ARPAllTargets)
	doc.BondPrimaryReselect = enum[nethelpers.PrimaryReselect](d, path.Child("primaryReselect"), b.PrimaryReselect)
	doc.BondFailOverMAC = enum[nethelpers.FailOverMAC](d, path.Child("failOverMac"), b.FailOverMAC)

	bondNumbers(doc, b)

	return doc
}

func bondNumbers(doc *network.BondConfigV1Alpha1, b *v1alpha1.Bond) {
	doc.BondMIIMon, doc.BondUseCarrier = number[uint32](b.MIIMon), b.UseCarrier
	doc.BondUpDelay, doc.BondDownDelay = number[uint32](b.UpDelay), number[uint32](b.DownDelay)
	doc.BondARPInterval, doc.BondMissedMax = number[uint32](b.ARPInterval), number[uint8](b.MissedMax)
	doc.BondARPIPTargets, doc.BondNSIP6Targets = addresses(b.ARPIPTargets), addresses(b.NSIP6Targets)
	doc.BondADActorSysPrio, doc.BondADUserPortKey = number[uint16](b.ADActorSysPrio), number[uint16](b.ADUserPortKey)
	doc.BondResendIGMP, doc.BondMinLinks = number[uint32](b.ResendIGMP), number[uint32](b.MinLinks)
	doc.BondLPInterval, doc.BondPacketsPerSlave = number[uint32](b.LPInterval), number[uint32](b.PacketsPerSlave)
	doc.BondNumPeerNotif, doc.BondPeerNotifyDelay = number[uint8](b.NumPeerNotif), number[uint32](b.PeerNotifDelay)
	doc.BondTLBDynamicLB, doc.BondAllSlavesActive = number[uint8](b.TLBDynamicLB), number[uint8](b.AllSlavesActive)
}

// number converts an option, whose range the API has checked.
func number[T uint8 | uint16 | uint32](n *int32) *T {
	if n == nil {
		return nil
	}

	out := T(*n)

	return &out
}

func addresses(texts []string) []netip.Addr {
	var out []netip.Addr
	for _, text := range texts {
		out = append(out, address(text).Addr)
	}

	return out
}
