package render

import (
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"

	"github.com/talos-operator/talos-operator/internal/talconfig"
)

func newRenderer(f *talconfig.Fleet, o Options) (*renderer, error) {
	r := &renderer{fleet: f, options: o, bases: map[bool][]docconfig.Document{}}

	in, err := r.input()
	if err != nil {
		return nil, err
	}

	for isControlPlane, kind := range map[bool]machine.Type{true: machine.TypeControlPlane, false: machine.TypeWorker} {
		cfg, err := in.Config(kind)
		if err != nil {
			return nil, fmt.Errorf("generating a machine config: %w", describe(err))
		}

		r.bases[isControlPlane] = cfg.Documents()
	}

	return r, nil
}

func (r *renderer) input() (*generate.Input, error) {
	c := &r.fleet.Config

	contract, err := config.ParseContractFromVersion(c.Version())
	if err != nil {
		return nil, fmt.Errorf("talosVersion: %w", err)
	}

	options := []generate.Option{
		generate.WithVersionContract(contract),
		generate.WithSecretsBundle(r.options.Secrets),
		generate.WithAllowSchedulingOnControlPlanes(c.SchedulesOnControlPlanes()),
	}

	if c.Domain != "" {
		options = append(options, generate.WithDNSDomain(c.Domain))
	}

	if c.CNI != nil {
		options = append(options, generate.WithClusterCNIConfig(c.CNI))
	}

	in, err := generate.NewInput(c.ClusterName, c.Endpoint, strings.TrimPrefix(c.KubernetesVersion, "v"), options...)
	if err != nil {
		return nil, fmt.Errorf("preparing machine configs: %w", describe(err))
	}

	in.AdditionalSubjectAltNames = c.AdditionalAPIServerCertSANs
	in.AdditionalMachineCertSANs = c.AdditionalMachineCertSANs
	in.PodNet, in.ServiceNet = networksOf(c)

	return in, nil
}

// networksOf has networks of the family of the endpoint where none are given.
func networksOf(c *talconfig.Config) (pods, services []string) {
	pods, services = c.ClusterPodNets, c.ClusterSvcNets
	is6 := false

	if u, err := url.Parse(c.Endpoint); err == nil {
		addr, err := netip.ParseAddr(u.Hostname())
		is6 = err == nil && addr.Is6()
	}

	if len(pods) == 0 {
		pods = []string{constants.DefaultIPv4PodNet}
		if is6 {
			pods = []string{constants.DefaultIPv6PodNet}
		}
	}

	if len(services) == 0 {
		services = []string{constants.DefaultIPv4ServiceNet}
		if is6 {
			services = []string{constants.DefaultIPv6ServiceNet}
		}
	}

	return pods, services
}

// sharedDocuments are the main document and those of the settings that nodes may share.
func (r *renderer) sharedDocuments(m *talconfig.Machine) ([]docconfig.Document, error) {
	var docs []docconfig.Document

	for _, base := range r.bases[m.ControlPlane] {
		switch doc := base.Clone().(type) {
		case *v1alpha1.Config:
			ownEndpoint(doc)

			if err := r.setMain(m, doc); err != nil {
				return nil, err
			}

			docs = append(docs, doc)
		default:
			// Each node gets its own hostname.
			if doc.Kind() != "HostnameConfig" {
				docs = append(docs, doc)
			}
		}
	}

	docs = append(docs, r.settingDocuments(m)...)

	return appendManifests(docs, m.Manifests)
}

// ownEndpoint copies the URL of the endpoint: the library's copy of a document shares it, and a patch of one node that
// sets another endpoint would write into all of them.
func ownEndpoint(doc *v1alpha1.Config) {
	control := doc.ClusterConfig.ControlPlane
	if control == nil || control.Endpoint == nil || control.Endpoint.URL == nil {
		return
	}

	own := *control.Endpoint.URL
	control.Endpoint = &v1alpha1.Endpoint{URL: &own}
}

func (r *renderer) setMain(m *talconfig.Machine, doc *v1alpha1.Config) error {
	image, err := r.fleet.InstallerOf(m)
	if err != nil {
		return err
	}

	setInstall(m, doc.MachineConfig.MachineInstall, image, r.fleet.HasDocuments())
	setMachine(m, doc.MachineConfig)

	if !r.fleet.HasDocuments() {
		setNetwork(m, doc.MachineConfig)
	}

	if m.ControlPlane {
		r.setCluster(doc.ClusterConfig)
	}

	return executeMetadata(m, doc)
}

func setInstall(m *talconfig.Machine, install *v1alpha1.InstallConfig, image string, hasDocuments bool) {
	install.InstallDisk, install.InstallDiskSelector = m.InstallDisk, m.InstallDiskSelector
	install.InstallImage = image

	// Since 1.12 the installer image brings the kernel arguments.
	if m.Schematic != nil && len(m.Schematic.Customization.ExtraKernelArgs) > 0 && !hasDocuments {
		install.InstallExtraKernelArgs = slices.Clone(m.Schematic.Customization.ExtraKernelArgs)
		install.InstallGrubUseUKICmdline = nil
	}
}

func setMachine(m *talconfig.Machine, out *v1alpha1.MachineConfig) {
	out.MachineCertSANs = append(slices.Clone(out.MachineCertSANs), m.CertSANs...)
	out.MachineDisks = m.MachineDisks
	out.MachineNodeAnnotations = maps.Clone(m.NodeAnnotations)
	out.MachineNodeTaints = maps.Clone(m.NodeTaints)

	for key, value := range m.NodeLabels {
		if out.MachineNodeLabels == nil {
			out.MachineNodeLabels = map[string]string{}
		}

		out.MachineNodeLabels[key] = value
	}

	for _, file := range m.MachineFiles {
		out.MachineFiles = append(out.MachineFiles, &v1alpha1.MachineFile{
			FileContent: file.Content, FilePermissions: file.Permissions, FilePath: file.Path, FileOp: file.Op,
		})
	}

	if len(m.KernelModules) > 0 {
		out.MachineKernel = &v1alpha1.KernelConfig{KernelModules: m.KernelModules}
	}
}

// setNetwork writes the network as Talos before 1.12 reads it.
func setNetwork(m *talconfig.Machine, out *v1alpha1.MachineConfig) {
	if out.MachineNetwork == nil {
		out.MachineNetwork = &v1alpha1.NetworkConfig{}
	}

	if !m.IgnoreHostname {
		out.MachineNetwork.NetworkHostname = m.Hostname
	}

	out.MachineNetwork.NameServers = m.Nameservers
	out.MachineNetwork.NetworkDisableSearchDomain = m.DisableSearchDomain
	out.MachineNetwork.NetworkInterfaces = m.NetworkInterfaces
}

func (r *renderer) setCluster(out *v1alpha1.ClusterConfig) {
	for _, manifest := range r.fleet.Config.InlineManifests {
		out.ClusterInlineManifests = append(out.ClusterInlineManifests, v1alpha1.ClusterInlineManifest{
			InlineManifestName: manifest.Name, InlineManifestContents: manifest.Contents,
		})
	}

	// A cluster that began with AES-CBC needs its key to read the Secrets of then.
	if secrets := r.options.Secrets.Secrets; secrets.AESCBCEncryptionSecret != "" {
		out.ClusterAESCBCEncryptionSecret = secrets.AESCBCEncryptionSecret
	}
}
