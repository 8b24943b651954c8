package netconfig

import (
	"encoding/base64"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

const (
	wireGuardKey   = "a WireGuard key: 32 bytes in base64, as wg genkey and wg genpsk print them"
	wireGuardBytes = 32
)

// Secrets lists the values of a network that Secrets hold; n may be nil.
func Secrets(n *v1alpha1.MachineNetwork) []keyref.Ref {
	if n == nil {
		return nil
	}

	var out []keyref.Ref

	for i, one := range n.Interfaces {
		path := interfacePath(i)

		if one.WireGuard != nil {
			out = append(out, wireGuardSecrets(path.Child("wireguard"), one.Name, one.WireGuard)...)
		}

		out = append(out, tokens(path.Child("vip"), one.VIP)...)

		for j, vlan := range one.VLANs {
			out = append(out, tokens(path.Child("vlans").Index(j).Child("vip"), vlan.VIP)...)
		}
	}

	return out
}

// legacyInterfaces is a whole list: a patch may move its items.
const legacyInterfaces = "machine.network.interfaces"

func wireGuardSecrets(path *field.Path, name string, w *v1alpha1.WireGuard) []keyref.Ref {
	one := func(at *field.Path, from v1alpha1.SecretKeyReference, in string) keyref.Ref {
		return keyref.Ref{
			Field: at.String(), From: from, Document: "WireguardConfig/" + name, Path: in, Legacy: legacyInterfaces,
			Form: wireGuardKey, Fits: isWireGuardKey,
		}
	}

	out := []keyref.Ref{one(path.Child("privateKeyFrom"), w.PrivateKeyFrom, "privateKey")}

	for i, peer := range w.Peers {
		if peer.PresharedKeyFrom != nil {
			out = append(out, one(path.Child("peers").Index(i).Child("presharedKeyFrom"), *peer.PresharedKeyFrom, "peers"))
		}
	}

	return out
}

// tokens are those for the API of the cloud that assigns a virtual IP.
func tokens(path *field.Path, vip *v1alpha1.VirtualIP) []keyref.Ref {
	if vip == nil {
		return nil
	}

	var out []keyref.Ref

	for cloud, by := range map[string]*v1alpha1.CloudVIP{"hcloud": vip.HCloud, "equinixMetal": vip.EquinixMetal} {
		if by != nil {
			out = append(out, keyref.Ref{
				Field: path.Child(cloud, "apiTokenFrom").String(), From: by.APITokenFrom,
				Document: "HCloudVIPConfig/" + vip.Address, Path: "apiToken", Legacy: legacyInterfaces,
				Form: keyref.TokenForm, Fits: keyref.IsToken,
			})
		}
	}

	return out
}

func isWireGuardKey(text string) bool {
	raw, err := base64.StdEncoding.DecodeString(text)

	return err == nil && len(raw) == wireGuardBytes
}

// reader takes values out of what was read, and notes those that were not.
type reader struct {
	values keyref.Values
	errs   field.ErrorList
}

func (r *reader) value(path *field.Path) string { return r.values.At(path, &r.errs) }
