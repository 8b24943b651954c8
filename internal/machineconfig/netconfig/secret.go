package netconfig

import (
	"encoding/base64"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Secret is a value of a network that a key of a Secret holds.
type Secret struct {
	// Field is the path of the reference, for example network.interfaces[0].wireguard.privateKeyFrom.
	Field string
	// From is the reference.
	From v1alpha1.SecretKeyReference
	// Document and Path are where the value is in the configuration of a cluster with documents.
	Document, Path string
	// Legacy is where it is in the main document of an older one.
	Legacy string
	// form is what the value has to be, for people.
	form string
	fits func(value string) bool
}

// Values are those of the Secrets of a network, by Secret.Field.
type Values map[string]string

const (
	wireGuardKey   = "a WireGuard key: 32 bytes in base64, as wg genkey and wg genpsk print them"
	wireGuardBytes = 32
)

// Secrets lists the values of a network that Secrets hold; n may be nil.
func Secrets(n *v1alpha1.MachineNetwork) []Secret {
	if n == nil {
		return nil
	}

	var out []Secret

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

func wireGuardSecrets(path *field.Path, name string, w *v1alpha1.WireGuard) []Secret {
	one := func(at *field.Path, from v1alpha1.SecretKeyReference, in string) Secret {
		return Secret{
			Field: at.String(), From: from, Document: "WireguardConfig/" + name, Path: in, Legacy: legacyInterfaces,
			form: wireGuardKey, fits: isWireGuardKey,
		}
	}

	out := []Secret{one(path.Child("privateKeyFrom"), w.PrivateKeyFrom, "privateKey")}

	for i, peer := range w.Peers {
		if peer.PresharedKeyFrom != nil {
			out = append(out, one(path.Child("peers").Index(i).Child("presharedKeyFrom"), *peer.PresharedKeyFrom, "peers"))
		}
	}

	return out
}

// tokens are those for the API of the cloud that assigns a virtual IP.
func tokens(path *field.Path, vip *v1alpha1.VirtualIP) []Secret {
	if vip == nil {
		return nil
	}

	var out []Secret

	for cloud, by := range map[string]*v1alpha1.CloudVIP{"hcloud": vip.HCloud, "equinixMetal": vip.EquinixMetal} {
		if by != nil {
			out = append(out, Secret{
				Field: path.Child(cloud, "apiTokenFrom").String(), From: by.APITokenFrom,
				Document: "HCloudVIPConfig/" + vip.Address, Path: "apiToken", Legacy: legacyInterfaces,
				form: "a token: one word of printable characters", fits: isToken,
			})
		}
	}

	return out
}

func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isWireGuardKey(text string) bool {
	raw, err := base64.StdEncoding.DecodeString(text)

	return err == nil && len(raw) == wireGuardBytes
}

// Check returns what is wrong with a value, without quoting it.
func (s Secret) Check(value string) error {
	if !s.fits(value) {
		return fmt.Errorf("is not %s", s.form)
	}

	return nil
}

// reader takes values out of what was read, and notes those that were not.
type reader struct {
	values Values
	errs   field.ErrorList
}

func (r *reader) value(path *field.Path) string {
	value, ok := r.values[path.String()]
	if !ok {
		r.errs = append(r.errs, field.Required(path, "its Secret was not read"))
	}

	return value
}
