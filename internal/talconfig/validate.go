package talconfig

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/api/machine"
	"github.com/siderolabs/talos/pkg/machinery/compatibility"
	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// newestContract is that of the machinery library.
var newestContract = config.TalosVersion1_13

func (l *loader) validate(f *Fleet) {
	c := &f.Config

	l.required("clusterName", c.ClusterName, "the name of the cluster")
	l.validateVersions(c)
	l.legacy = !f.HasDocuments()
	l.validateEndpoint(c.Endpoint)

	if c.Domain != "" && len(validation.IsDNS1123Subdomain(c.Domain)) > 0 {
		l.add("domain", "has to be a DNS name such as cluster.local")
	}

	l.networks("clusterPodNets", c.ClusterPodNets)
	l.networks("clusterSvcNets", c.ClusterSvcNets)
	l.validateCNI(c)
	l.validateFactory(c.ImageFactory)

	for i, m := range c.InlineManifests {
		at := fmt.Sprintf("inlineManifests[%d]", i)
		l.required(at+".name", m.Name, "the name of the manifest")
		l.required(at+".contents", m.Contents, "the manifest, or @file")
	}

	l.validateConfigs(groupControlPlane, c.ControlPlane)
	l.validateConfigs(groupWorker, c.Worker)
	l.validateNodes(f)
}

func (l *loader) required(path, value, what string) {
	if value == "" {
		l.add(path, "is missing: %s", what)
	}
}

func (l *loader) validateVersions(c *Config) {
	contract, err := config.ParseContractFromVersion(c.Version())

	switch {
	case err != nil || !imagefactory.Since(c.Version(), 2):
		l.add("talosVersion", "has to be a version such as %s", DefaultTalosVersion)

		return
	case contract.Greater(newestContract):
		l.add("talosVersion", "is newer than %s, up to which this release writes machine configs: update talos-operator, or "+
			"use an older version", newestContract)

		return
	}

	if c.KubernetesVersion == "" {
		l.add("kubernetesVersion", "is missing: the version to install, such as v%s", constants.DefaultKubernetesVersion)

		return
	}

	kubernetes, err := compatibility.ParseKubernetesVersion(strings.TrimPrefix(c.KubernetesVersion, "v"))
	if err != nil || strings.Count(c.KubernetesVersion, ".") != 2 {
		l.add("kubernetesVersion", "has to be a version with three numbers, such as v%s", constants.DefaultKubernetesVersion)

		return
	}

	talos, err := compatibility.ParseTalosVersion(&machine.VersionInfo{Tag: c.Version()})
	if err == nil {
		err = kubernetes.SupportedWith(talos)
	}

	if err != nil {
		l.add("kubernetesVersion", "does not fit talosVersion: %v", err)
	}
}

func (l *loader) validateEndpoint(endpoint string) {
	if endpoint == "" {
		l.add("endpoint", "is missing: the URL of the Kubernetes API, such as https://10.0.0.10:6443")

		return
	}

	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
		l.add("endpoint", "has to be a URL with https, a host and a port, such as https://10.0.0.10:6443")
	}
}

func (l *loader) networks(path string, values []string) {
	for i, value := range values {
		if _, err := netip.ParsePrefix(value); err != nil {
			l.add(fmt.Sprintf("%s[%d]", path, i), "%q is not a network such as 10.244.0.0/16", value)
		}
	}
}

func (l *loader) validateCNI(c *Config) {
	if c.CNI == nil {
		return
	}

	switch name := c.CNI.CNIName; {
	case !slices.Contains([]string{constants.FlannelCNI, constants.CustomCNI, constants.NoneCNI}, name):
		l.add("cniConfig.name", "%q is not one of flannel, custom, none", name)
	case name == constants.CustomCNI && len(c.CNI.CNIUrls) == 0:
		l.add("cniConfig.urls", "is missing: the URLs of the manifests of the custom CNI")
	case name != constants.CustomCNI && len(c.CNI.CNIUrls) > 0:
		l.add("cniConfig.urls", "has no effect with the CNI %s: set name to custom, or remove it", name)
	case name != constants.FlannelCNI && c.CNI.CNIFlannel != nil:
		l.add("cniConfig.flannel", "has no effect with the CNI %s: set name to flannel, or remove it", name)
	}
}

func (l *loader) validateFactory(f ImageFactory) {
	if strings.Contains(f.RegistryURL, "://") || strings.HasSuffix(f.RegistryURL, "/") {
		l.add("imageFactory.registryURL", "has to be a host such as %s; the scheme is in imageFactory.protocol",
			DefaultRegistry)
	}

	if f.Protocol != "" && f.Protocol != "https" && f.Protocol != "http" {
		l.add("imageFactory.protocol", "%q is not one of https, http", f.Protocol)
	}

	probe := Image{Factory: f, ID: "id", Version: DefaultTalosVersion}

	if _, err := probe.Installer(); err != nil {
		l.add("imageFactory.installerURLTmpl", "%v", err)
	}

	if _, err := probe.Boot(); err != nil {
		l.add("imageFactory.ISOURLTmpl", "%v", err)
	}
}

func (l *loader) validateNodes(f *Fleet) {
	if len(f.Nodes) == 0 {
		l.add("nodes", "is missing: at least one node with controlPlane: true")

		return
	}

	if !slices.ContainsFunc(f.Nodes, func(m Machine) bool { return m.ControlPlane }) {
		l.add("nodes", "none has controlPlane: true, and a cluster needs at least one")
	}

	hosts, addresses, files := map[string]string{}, map[string]string{}, map[string]string{}

	for i := range f.Nodes {
		m := &f.Nodes[i]

		l.validateNode(m)
		l.unique(hosts, m.Field+".hostname", m.Hostname)

		for _, address := range m.Addresses() {
			l.unique(addresses, m.Field+".ipAddress", address)
		}

		name, err := f.Filename(m)

		switch {
		case err != nil:
			l.add(m.Field+".filenameTmpl", "%v", err)
		case !filepath.IsLocal(name) || name == "." || name == "talosconfig" || filepath.Base(name) == ".gitignore":
			l.add(m.Field+".filenameTmpl", "names %q, which is not a file of its own below the output folder", name)
		default:
			l.unique(files, m.Field+".filenameTmpl", name)
		}
	}

	l.validateAlone(f)
}

// validateAlone checks what of a node has nothing to do with another one, on all processors.
func (l *loader) validateAlone(f *Fleet) {
	problems := make([]Problems, parts(len(f.Nodes)))

	_ = inParts(len(f.Nodes), func(part, from, to int) error {
		own := *l
		own.problems, own.known = nil, map[string]bool{}

		for i := from; i < to; i++ {
			own.validateConfigs(f.Nodes[i].Field, f.Config.Nodes[i].NodeConfigs)
			own.validateDevices(&f.Nodes[i])
		}

		problems[part] = own.problems

		return nil
	})

	for _, own := range problems {
		l.problems = append(l.problems, own...)
	}
}

// unique reports a value that another field has: one of both machines would get lost.
func (l *loader) unique(seen map[string]string, path, value string) {
	if value == "" {
		return
	}

	if other, ok := seen[value]; ok && other != path {
		l.add(path, "%q is also that of %s", value, other)

		return
	}

	seen[value] = path
}

func (l *loader) validateNode(m *Machine) {
	switch {
	case m.Hostname == "":
		l.add(m.Field+".hostname", "is missing: the name of the machine")
	case len(validation.IsDNS1123Subdomain(m.Hostname)) > 0:
		l.add(m.Field+".hostname", "%q is not a host name: lower-case letters, digits, - and .", m.Hostname)
	}

	if len(m.Addresses()) == 0 {
		l.add(m.Field+".ipAddress", "is missing: the address at which the Talos API of the machine is reached")
	}

	for _, address := range m.Addresses() {
		if _, err := netip.ParseAddr(address); err != nil && len(validation.IsDNS1123Subdomain(address)) > 0 {
			l.add(m.Field+".ipAddress", "%q is neither an IP address nor a DNS name", address)
		}
	}

	if s := m.InstallDiskSelector; s != nil && s.Name != "" {
		l.add(m.Field+".installDiskSelector.name",
			"is not supported by Talos: select by model, serial, wwid, busPath or size")
	}

	switch {
	case m.InstallDisk == "" && m.InstallDiskSelector == nil:
		l.add(m.Field, "has neither installDisk nor installDiskSelector: name the disk to install to, such as /dev/sda")
	case m.InstallDisk != "" && m.InstallDiskSelector != nil:
		l.add(m.Field, "has installDisk and installDiskSelector: keep one")
	}
}

// HasDocuments reports whether the Talos version configures the network by documents of their own, which is since 1.12.
func (f *Fleet) HasDocuments() bool { return imagefactory.Since(f.Config.Version(), 12) }
