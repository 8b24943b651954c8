package machineconfig

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/cel"
	"github.com/siderolabs/talos/pkg/machinery/cel/celenv"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/cri"
	"github.com/siderolabs/talos/pkg/machinery/config/types/meta"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
)

// addDocuments writes hostname, network and registries as Talos 1.12 and later want them: in documents of their own.
func addDocuments(in Input, docs []docconfig.Document) ([]docconfig.Document, error) {
	for _, doc := range docs {
		if hostname, ok := doc.(*network.HostnameConfigV1Alpha1); ok && in.Machine.Hostname != "" {
			off := nethelpers.AutoHostnameKindOff
			hostname.ConfigAuto, hostname.ConfigHostname = &off, in.Machine.Hostname
		}
	}

	extra, err := linkDocuments(in.Machine.Interfaces)
	if err != nil {
		return nil, err
	}

	if len(in.Machine.Nameservers) > 0 {
		resolver := network.NewResolverConfigV1Alpha1()

		for i, server := range in.Machine.Nameservers {
			addr, err := parseAddr(fmt.Sprintf("Machine.Nameservers[%d]", i), server)
			if err != nil {
				return nil, err
			}

			resolver.ResolverNameservers = append(resolver.ResolverNameservers,
				network.NameserverConfig{Address: network.Addr{Addr: addr}})
		}

		extra = append(extra, resolver)
	}

	registries, err := registryDocuments(in.Registries)
	if err != nil {
		return nil, err
	}

	extra = append(extra, registries...)

	slices.SortStableFunc(extra, func(a, b docconfig.Document) int {
		return strings.Compare(documentID(a), documentID(b))
	})

	return append(docs, extra...), nil
}

func documentID(doc docconfig.Document) string {
	if named, ok := doc.(docconfig.NamedDocument); ok {
		return doc.Kind() + "/" + named.Name()
	}

	return doc.Kind()
}

func linkDocuments(interfaces []Interface) ([]docconfig.Document, error) {
	var docs []docconfig.Document

	for i, in := range interfaces {
		field := fmt.Sprintf("Machine.Interfaces[%d]", i)

		name := in.Name
		if name == "" {
			alias, err := aliasDocument(field, in.MACAddress)
			if err != nil {
				return nil, err
			}

			name = alias.Name()
			docs = append(docs, alias)
		}

		link, err := linkDocument(field, name, in)
		if err != nil {
			return nil, err
		}

		docs = append(docs, link)

		if in.DHCP {
			docs = append(docs, network.NewDHCPv4ConfigV1Alpha1(name))
		}
	}

	return docs, nil
}

// aliasDocument gives the link with a hardware address a name of its own, at most as long as Linux allows.
func aliasDocument(field, mac string) (*network.LinkAliasConfigV1Alpha1, error) {
	mac = strings.ToLower(mac)

	digits := strings.ReplaceAll(mac, ":", "")
	if len(digits) != 12 || len(mac) != 17 || strings.Trim(digits, "0123456789abcdef") != "" {
		return nil, &InputError{Field: field, Problem: "needs a name or a hardware address like 00:1a:2b:3c:4d:5e"}
	}

	match, err := cel.ParseBooleanExpression(`mac(link.permanent_addr) == "`+mac+`"`, celenv.LinkLocator())
	if err != nil {
		return nil, fmt.Errorf("selecting a link by hardware address: %w", err)
	}

	alias := network.NewLinkAliasConfigV1Alpha1("nic" + digits)
	alias.Selector.Match = match

	return alias, nil
}

func linkDocument(field, name string, in Interface) (*network.LinkConfigV1Alpha1, error) {
	link := network.NewLinkConfigV1Alpha1(name)
	up := true
	link.LinkUp = &up

	if in.MTU < 0 || in.MTU > 65535 {
		return nil, &InputError{Field: field + ".MTU", Problem: "must be at most 65535"}
	}

	link.LinkMTU = uint32(in.MTU)

	for i, address := range in.Addresses {
		prefix, err := netip.ParsePrefix(address)
		if err != nil {
			return nil, &InputError{
				Field: fmt.Sprintf("%s.Addresses[%d]", field, i), Problem: fmt.Sprintf("%q is not in CIDR notation", address),
			}
		}

		link.LinkAddresses = append(link.LinkAddresses, network.AddressConfig{AddressAddress: prefix})
	}

	for i, route := range in.Routes {
		out, err := routeConfig(fmt.Sprintf("%s.Routes[%d]", field, i), route)
		if err != nil {
			return nil, err
		}

		link.LinkRoutes = append(link.LinkRoutes, out)
	}

	return link, nil
}

func routeConfig(field string, route Route) (network.RouteConfig, error) {
	var out network.RouteConfig

	gateway, err := parseAddr(field+".Gateway", route.Gateway)
	if err != nil {
		return out, err
	}

	out.RouteGateway = network.Addr{Addr: gateway}

	if route.Network == "" {
		return out, nil
	}

	destination, err := netip.ParsePrefix(route.Network)
	if err != nil {
		return out, &InputError{
			Field: field + ".Network", Problem: fmt.Sprintf("%q is not in CIDR notation", route.Network),
		}
	}

	// Talos writes the default route as one without destination, and refuses 0.0.0.0/0.
	if destination.Bits() > 0 {
		out.RouteDestination = network.Prefix{Prefix: destination}
	}

	return out, nil
}

func parseAddr(field, text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, &InputError{Field: field, Problem: fmt.Sprintf("%q is not an IP address", text)}
	}

	return addr, nil
}

func registryDocuments(in Registries) ([]docconfig.Document, error) {
	var docs []docconfig.Document

	for i, mirror := range in.Mirrors {
		doc := cri.NewRegistryMirrorConfigV1Alpha1(mirror.Registry)
		doc.RegistrySkipFallback = trueOrNil(mirror.SkipFallback)

		for j, endpoint := range mirror.Endpoints {
			u, err := url.Parse(endpoint)
			if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
				return nil, &InputError{
					Field:   fmt.Sprintf("Registries.Mirrors[%d].Endpoints[%d]", i, j),
					Problem: "must be a URL with http or https and a host",
				}
			}

			doc.RegistryEndpoints = append(doc.RegistryEndpoints, cri.RegistryEndpoint{
				EndpointURL: meta.URL{URL: u}, EndpointOverridePath: trueOrNil(mirror.OverridePath),
			})
		}

		docs = append(docs, doc)
	}

	for _, host := range in.Hosts {
		if host.hasAuth() {
			doc := cri.NewRegistryAuthConfigV1Alpha1(host.Host)
			doc.RegistryUsername, doc.RegistryPassword = host.Username, host.Password
			doc.RegistryAuth, doc.RegistryIdentityToken = host.Auth, host.IdentityToken
			docs = append(docs, doc)
		}

		if host.hasTLS() {
			doc := cri.NewRegistryTLSConfigV1Alpha1(host.Host)
			doc.TLSCA = host.CA
			doc.TLSInsecureSkipVerify = trueOrNil(host.InsecureSkipVerify)

			if host.ClientCert != "" {
				doc.TLSClientIdentity = &meta.CertificateAndKey{Cert: host.ClientCert, Key: host.ClientKey}
			}

			docs = append(docs, doc)
		}
	}

	return docs, nil
}

func (h RegistryHost) hasAuth() bool {
	return h.Username != "" || h.Password != "" || h.Auth != "" || h.IdentityToken != ""
}

func (h RegistryHost) hasTLS() bool { return h.CA != "" || h.ClientCert != "" || h.InsecureSkipVerify }

func trueOrNil(b bool) *bool {
	if !b {
		return nil
	}

	return &b
}
