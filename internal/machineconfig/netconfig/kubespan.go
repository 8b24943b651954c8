package netconfig

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/blang/semver/v4"
	"github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
)

// Roots of the paths of fields that all machines of a cluster share.
const (
	KubeSpanRoot  = "kubeSpan"
	KubePrismRoot = "kubePrism"
	DiscoveryRoot = "discovery"
)

// withoutRegistry is the first minor version of Kubernetes 1 whose nodes may not write the annotations that the
// registry in the Kubernetes API is made of.
const withoutRegistry = 32

// Cluster is what all machines of a cluster share.
type Cluster struct {
	KubeSpan  *v1alpha1.KubeSpan
	KubePrism *v1alpha1.KubePrism
	Discovery *v1alpha1.Discovery
	// Kubernetes is the version of Kubernetes, for example v1.36.2; unknown if empty.
	Kubernetes string
	// Talos is the version of Talos, for example v1.13.9; unknown if empty.
	Talos string
}

// KubeSpans tells whether the machines are connected by KubeSpan.
func (c Cluster) KubeSpans() bool { return c.KubeSpan != nil && ptr.Deref(c.KubeSpan.Enabled, false) }

// Check returns what cannot work. at is the path of the object that has the fields; nil if they are at the top.
func (c Cluster) Check(at *field.Path) field.ErrorList {
	return slices.Concat(
		c.checkKubeSpan(below(at, KubeSpanRoot)), c.checkKubePrism(below(at, KubePrismRoot)),
		c.checkDiscovery(below(at, DiscoveryRoot)),
	)
}

func below(at *field.Path, name string) *field.Path {
	if at == nil {
		return field.NewPath(name)
	}

	return at.Child(name)
}

func (c Cluster) checkKubeSpan(path *field.Path) field.ErrorList {
	var errs field.ErrorList

	if c.KubeSpans() && !c.discovers() {
		errs = append(errs, withoutDiscovery(path))
	}

	if c.KubeSpan == nil {
		return errs
	}

	if mtu := c.KubeSpan.MTU; mtu != 0 && (mtu < constants.KubeSpanLinkMinimumMTU || mtu > 65535) {
		errs = append(errs, field.Invalid(path.Child("mtu"), mtu, "must be between 1280 and 65535"))
	}

	if c.KubeSpan.Filters == nil {
		return errs
	}

	errs = append(errs, c.checkExcluded(path.Child("filters", "excludeAdvertisedNetworks"))...)
	positive := false

	for i, text := range c.KubeSpan.Filters.Endpoints {
		network, negative := strings.CutPrefix(text, "!")
		positive = positive || !negative

		_, err := netip.ParsePrefix(network)
		if _, addrErr := netip.ParseAddr(network); err != nil && addrErr != nil {
			errs = append(errs, field.Invalid(path.Child("filters", "endpoints").Index(i), text,
				"is not a network in CIDR notation, such as 10.0.0.0/8 or !10.0.0.0/8"))
		}
	}

	if len(c.KubeSpan.Filters.Endpoints) > 0 && !positive {
		errs = append(errs, field.Invalid(path.Child("filters", "endpoints"), c.KubeSpan.Filters.Endpoints[0],
			"publishes no address, because all entries are exclusions: begin with 0.0.0.0/0 and ::/0, and list what is left "+
				"out after them"))
	}

	return errs
}

// checkExcluded refuses networks that Talos cannot read. Before 1.12 it refuses the whole config for the field.
func (c Cluster) checkExcluded(path *field.Path) field.ErrorList {
	r, excluded := checker{}, c.KubeSpan.Filters.ExcludeAdvertisedNetworks

	if olderThan(c.Talos, 12) && len(excluded) > 0 {
		r.add(field.Forbidden(path, "needs Talos 1.12 or later; upgrade first, or remove it"))
	}

	for i, text := range excluded {
		r.masked(path.Index(i), text)
	}

	return r.errs
}

func withoutDiscovery(path *field.Path) *field.Error {
	return field.Forbidden(path.Child("enabled"), "needs discovery: without it, or without a registry, the "+
		"machines learn no peers; turn discovery and its registry service on, or KubeSpan off")
}

// discovers tells whether the machines find each other.
func (c Cluster) discovers() bool {
	if c.Discovery == nil {
		return true
	}

	if c.Discovery.Enabled != nil && !*c.Discovery.Enabled {
		return false
	}

	r := c.Discovery.Registries

	return r == nil || r.Service == nil || r.Service.Enabled == nil || *r.Service.Enabled ||
		r.Kubernetes != nil && ptr.Deref(r.Kubernetes.Enabled, false)
}

func (c Cluster) checkDiscovery(path *field.Path) field.ErrorList {
	if c.Discovery == nil || c.Discovery.Registries == nil {
		return nil
	}

	var errs field.ErrorList

	r := c.Discovery.Registries
	path = path.Child("registries")

	if r.Service != nil && r.Service.Endpoint != "" && !isService(r.Service.Endpoint) {
		errs = append(errs, field.Invalid(path.Child("service", "endpoint"), keyref.WithoutUser(r.Service.Endpoint),
			"is not a URL with http or https, a host, and no path, such as https://discovery.example.org:3000"))
	}

	if r.Kubernetes == nil || !ptr.Deref(r.Kubernetes.Enabled, false) {
		return errs
	}

	if v, err := semver.ParseTolerant(c.Kubernetes); err == nil && (v.Major > 1 || v.Minor >= withoutRegistry) {
		errs = append(errs, field.Forbidden(path.Child("kubernetes", "enabled"), fmt.Sprintf("does not work with Kubernetes "+
			"1.%d and later, where nodes may not write the annotations that it needs; use the registry service",
			withoutRegistry)))
	}

	return errs
}

// isService tells whether Talos reads a text as the address of a discovery service.
func isService(text string) bool {
	u, err := url.Parse(text)

	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		strings.Trim(u.Path, "/") == "" && u.RawQuery == "" && u.Fragment == ""
}

// CheckMachine returns what of a machine cannot work in the cluster.
func (c Cluster) CheckMachine(n v1alpha1.MachineNetwork) field.ErrorList {
	var errs field.ErrorList

	for i, text := range n.KubeSpanEndpoints {
		at := field.NewPath(Root, "kubeSpanEndpoints").Index(i)

		if end, err := netip.ParseAddrPort(text); err != nil || end.Port() == 0 {
			errs = append(errs, field.Invalid(at, text, "is not an IP address and a port, such as 192.0.2.1:51820"))
		}
	}

	for i, one := range n.Interfaces {
		if c.KubeSpans() && one.WireGuard != nil && one.WireGuard.ListenPort == constants.KubeSpanDefaultPort {
			errs = append(errs, field.Invalid(interfacePath(i).Child("wireguard", "listenPort"), one.WireGuard.ListenPort,
				"is the port of KubeSpan; use another one"))
		}
	}

	return errs
}

// KubeSpanDocuments returns the documents about KubeSpan as Talos 1.13 and later reads it.
func (c Cluster) KubeSpanDocuments() []config.Document {
	k := c.KubeSpan
	if k == nil {
		return nil
	}

	doc := network.NewKubeSpanV1Alpha1()
	doc.ConfigEnabled, doc.ConfigAdvertiseKubernetesNetworks = k.Enabled, k.AdvertiseKubernetesNetworks
	doc.ConfigAllowDownPeerBypass, doc.ConfigHarvestExtraEndpoints = k.AllowDownPeerBypass, k.HarvestExtraEndpoints
	doc.ConfigMTU = mtu(k.MTU)

	if k.Filters != nil {
		doc.ConfigFilters = &network.KubeSpanFiltersConfig{ConfigEndpoints: k.Filters.Endpoints}
		for _, text := range k.Filters.ExcludeAdvertisedNetworks {
			doc.ConfigFilters.ConfigExcludeAdvertisedNetworks = append(
				doc.ConfigFilters.ConfigExcludeAdvertisedNetworks, prefix(text))
		}
	}

	return []config.Document{doc}
}

// KubeSpanLegacy writes KubeSpan as Talos before 1.13 reads it.
func (c Cluster) KubeSpanLegacy(m *talosv1alpha1.MachineConfig) {
	k := c.KubeSpan
	if k == nil {
		return
	}

	if m.MachineNetwork == nil {
		m.MachineNetwork = &talosv1alpha1.NetworkConfig{}
	}

	out := &talosv1alpha1.NetworkKubeSpan{
		KubeSpanEnabled: k.Enabled, KubeSpanAdvertiseKubernetesNetworks: k.AdvertiseKubernetesNetworks,
		KubeSpanAllowDownPeerBypass: k.AllowDownPeerBypass, KubeSpanHarvestExtraEndpoints: k.HarvestExtraEndpoints,
		KubeSpanMTU: mtu(k.MTU),
	}

	if k.Filters != nil {
		out.KubeSpanFilters = &talosv1alpha1.KubeSpanFilters{
			KubeSpanFiltersEndpoints:                 k.Filters.Endpoints,
			KubeSpanFiltersExcludeAdvertisedNetworks: k.Filters.ExcludeAdvertisedNetworks,
		}
	}

	m.MachineNetwork.NetworkKubeSpan = out
}

func mtu(n int32) *uint32 {
	if n == 0 {
		return nil
	}

	out := uint32(n)

	return &out
}

// ApplyDiscovery writes how machines find each other into the main document, where all versions of Talos have it.
func (c Cluster) ApplyDiscovery(into *talosv1alpha1.ClusterConfig) {
	d := c.Discovery
	if d == nil {
		return
	}

	if into.ClusterDiscoveryConfig == nil {
		into.ClusterDiscoveryConfig = &talosv1alpha1.ClusterDiscoveryConfig{}
	}

	out := into.ClusterDiscoveryConfig

	if d.Enabled != nil {
		out.DiscoveryEnabled = d.Enabled
	}

	if d.Registries == nil {
		return
	}

	if s := d.Registries.Service; s != nil {
		out.DiscoveryRegistries.RegistryService.RegistryEndpoint = s.Endpoint
		out.DiscoveryRegistries.RegistryService.RegistryDisabled = disabled(s.Enabled)
	}

	if k := d.Registries.Kubernetes; k != nil && k.Enabled != nil {
		out.DiscoveryRegistries.RegistryKubernetes.RegistryDisabled = disabled(k.Enabled)
	}
}

// disabled is the field of Talos that turns off what a field of ours turns on.
func disabled(enabled *bool) *bool {
	if enabled == nil {
		return nil
	}

	off := !*enabled

	return &off
}

// Shared returns the documents of a machine that each version of Talos reads. Both arguments have passed their checks.
func Shared(n v1alpha1.MachineNetwork, firewall *v1alpha1.IngressFirewall) []config.Document {
	out := firewallDocuments(firewall)

	if len(n.KubeSpanEndpoints) > 0 {
		doc := network.NewKubespanEndpointsV1Alpha1()
		for _, text := range n.KubeSpanEndpoints {
			end, _ := netip.ParseAddrPort(text)
			doc.ExtraAnnouncedEndpointsConfig = append(doc.ExtraAnnouncedEndpointsConfig, end)
		}

		out = append(out, doc)
	}

	return out
}
