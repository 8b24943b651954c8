package machineconfig

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/siderolabs/crypto/x509"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// The fields below are deprecated by Talos 1.12, but they are the only ones that earlier versions know.

// addLegacy writes hostname, network and registries as Talos before 1.12 wants them: inside the main document.
func addLegacy(in Input, docs []docconfig.Document) error {
	for _, doc := range docs {
		main, ok := doc.(*v1alpha1.Config)
		if !ok {
			continue
		}

		if err := legacyNetwork(in.Machine, main.MachineConfig); err != nil {
			return err
		}

		legacyRegistries(in.Registries, main.MachineConfig)
	}

	return nil
}

func legacyNetwork(in MachineNetwork, m *v1alpha1.MachineConfig) error {
	if m.MachineNetwork == nil {
		m.MachineNetwork = &v1alpha1.NetworkConfig{}
	}

	n := m.MachineNetwork
	n.NetworkHostname = in.Hostname

	for i, server := range in.Nameservers {
		if _, err := parseAddr(fmt.Sprintf("Machine.Nameservers[%d]", i), server); err != nil {
			return err
		}

		n.NameServers = append(n.NameServers, server)
	}

	for i, one := range in.Interfaces {
		device, err := legacyDevice(fmt.Sprintf("Machine.Interfaces[%d]", i), one)
		if err != nil {
			return err
		}

		n.NetworkInterfaces = append(n.NetworkInterfaces, device)
	}

	return nil
}

func legacyDevice(field string, in Interface) (*v1alpha1.Device, error) {
	// The document form parses everything; it is the same input and has to get the same answers.
	name := in.Name
	if name == "" {
		alias, err := aliasDocument(field, in.MACAddress)
		if err != nil {
			return nil, err
		}

		name = alias.Name()
	}

	if _, err := linkDocument(field, name, in); err != nil {
		return nil, err
	}

	device := &v1alpha1.Device{
		DeviceInterface: in.Name,
		DeviceAddresses: in.Addresses,
		DeviceMTU:       in.MTU,
		DeviceDHCP:      trueOrNil(in.DHCP),
	}

	if in.Name == "" {
		device.DeviceSelector = &v1alpha1.NetworkDeviceSelector{NetworkDevicePermanentAddress: strings.ToLower(in.MACAddress)}
	}

	for _, route := range in.Routes {
		destination := route.Network
		if destination == "" {
			destination = "0.0.0.0/0"
			if gateway, err := netip.ParseAddr(route.Gateway); err == nil && gateway.Is6() {
				destination = "::/0"
			}
		}

		device.DeviceRoutes = append(device.DeviceRoutes,
			&v1alpha1.Route{RouteNetwork: destination, RouteGateway: route.Gateway})
	}

	return device, nil
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
