package configuration

import (
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	configconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// ShutsOut reports whether the firewall of a config keeps new connections from the Talos API: what comes in is blocked,
// and no rule lets its port through.
func ShutsOut(cfg config.Provider) bool {
	rules := cfg.NetworkRules()
	if rules == nil || rules.DefaultAction() != nethelpers.DefaultActionBlock {
		return false
	}

	return !slices.ContainsFunc(rules.Rules(), func(r configconfig.NetworkRule) bool {
		return r.Protocol() == nethelpers.ProtocolTCP && slices.ContainsFunc(r.PortRanges(), func(p [2]uint16) bool {
			return p[0] <= constants.ApidPort && constants.ApidPort <= p[1]
		})
	})
}

// Trusted are the authorities whose client certificates a node accepts.
func Trusted(cfg config.Provider) []*x509.PEMEncodedCertificate {
	list := slices.Clone(cfg.Machine().Security().AcceptedCAs())
	if ca := cfg.Machine().Security().IssuingCA(); ca != nil && len(ca.Crt) > 0 {
		list = append(list, &x509.PEMEncodedCertificate{Crt: ca.Crt})
	}

	return list
}

// Trusts reports whether a node with a config trusts an authority.
func Trusts(cfg config.Provider, crt []byte) bool {
	return slices.ContainsFunc(Trusted(cfg), func(ca *x509.PEMEncodedCertificate) bool {
		return strings.TrimSpace(string(ca.Crt)) == strings.TrimSpace(string(crt))
	})
}
