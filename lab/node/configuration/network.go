package configuration

import (
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
)

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
