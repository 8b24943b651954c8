package machineconfig

import (
	"github.com/siderolabs/crypto/x509"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"

	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// The fields of registries are deprecated by Talos 1.12, but they are the only ones that earlier versions know.

// addLegacy writes hostname, network and registries as Talos before 1.12 wants them: inside the main document.
func addLegacy(in Input, docs []docconfig.Document) error {
	for _, doc := range docs {
		main, ok := doc.(*v1alpha1.Config)
		if !ok {
			continue
		}

		if problems := netconfig.Legacy(in.Machine, in.Values, main.MachineConfig); len(problems) > 0 {
			return inputErrors(problems)
		}

		legacyRegistries(in.Registries, main.MachineConfig)
	}

	return nil
}

func legacyRegistries(in Registries, m *v1alpha1.MachineConfig) {
	registries := &m.MachineRegistries

	for _, mirror := range in.Mirrors {
		if registries.RegistryMirrors == nil {
			registries.RegistryMirrors = map[string]*v1alpha1.RegistryMirrorConfig{}
		}

		registries.RegistryMirrors[mirror.Registry] = &v1alpha1.RegistryMirrorConfig{
			MirrorEndpoints:    mirror.Endpoints,
			MirrorOverridePath: trueOrNil(mirror.OverridePath),
			MirrorSkipFallback: trueOrNil(mirror.SkipFallback),
		}
	}

	for _, host := range in.Hosts {
		if registries.RegistryConfig == nil {
			registries.RegistryConfig = map[string]*v1alpha1.RegistryConfig{}
		}

		registries.RegistryConfig[host.Host] = legacyRegistryHost(host)
	}
}

func legacyRegistryHost(host RegistryHost) *v1alpha1.RegistryConfig {
	out := &v1alpha1.RegistryConfig{}

	if host.hasAuth() {
		out.RegistryAuth = &v1alpha1.RegistryAuthConfig{
			RegistryUsername:      host.Username,
			RegistryPassword:      host.Password,
			RegistryAuth:          host.Auth,
			RegistryIdentityToken: host.IdentityToken,
		}
	}

	if host.hasTLS() {
		out.RegistryTLS = &v1alpha1.RegistryTLSConfig{
			TLSCA:                 v1alpha1.Base64Bytes(host.CA),
			TLSInsecureSkipVerify: trueOrNil(host.InsecureSkipVerify),
		}

		if host.ClientCert != "" {
			out.RegistryTLS.TLSClientIdentity = &x509.PEMEncodedCertificateAndKey{
				Crt: []byte(host.ClientCert), Key: []byte(host.ClientKey),
			}
		}
	}

	return out
}
