package talconfig

import (
	"cmp"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/types/block"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	"github.com/siderolabs/talos/pkg/machinery/config/types/runtime/extensions"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/nethelpers"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/internal/imagefactory"
)

// Config is a talconfig.yaml. The names of the keys are those of talhelper.
type Config struct {
	ClusterName string `yaml:"clusterName"`
	// TalosVersion defaults to DefaultTalosVersion.
	TalosVersion      string `yaml:"talosVersion"`
	KubernetesVersion string `yaml:"kubernetesVersion"`
	// Endpoint is the URL of the Kubernetes API.
	Endpoint string `yaml:"endpoint"`
	// Domain is the DNS domain of the cluster. Default: cluster.local.
	Domain                         string `yaml:"domain"`
	AllowSchedulingOnMasters       *bool  `yaml:"allowSchedulingOnMasters"`
	AllowSchedulingOnControlPlanes *bool  `yaml:"allowSchedulingOnControlPlanes"`
	// AdditionalMachineCertSANs are of all machines. talhelper prefers certSANs of a group or node.
	AdditionalMachineCertSANs   []string            `yaml:"additionalMachineCertSans"`
	AdditionalAPIServerCertSANs []string            `yaml:"additionalApiServerCertSans"`
	InlineManifests             []InlineManifest    `yaml:"inlineManifests"`
	ClusterPodNets              []string            `yaml:"clusterPodNets"`
	ClusterSvcNets              []string            `yaml:"clusterSvcNets"`
	CNI                         *v1alpha1.CNIConfig `yaml:"cniConfig"`
	Patches                     []string            `yaml:"patches"`
	Nodes                       []Node              `yaml:"nodes"`
	ImageFactory                ImageFactory        `yaml:"imageFactory"`
	ControlPlane                NodeConfigs         `yaml:"controlPlane"`
	Worker                      NodeConfigs         `yaml:"worker"`
}

// Node is one machine.
type Node struct {
	Hostname string `yaml:"hostname"`
	// IPAddress is a list with commas, of addresses or names at which the Talos API is reached.
	IPAddress               string                        `yaml:"ipAddress"`
	ControlPlane            bool                          `yaml:"controlPlane"`
	InstallDisk             string                        `yaml:"installDisk"`
	InstallDiskSelector     *v1alpha1.InstallDiskSelector `yaml:"installDiskSelector"`
	IgnoreHostname          bool                          `yaml:"ignoreHostname"`
	OverridePatches         bool                          `yaml:"overridePatches"`
	OverrideExtraManifests  bool                          `yaml:"overrideExtraManifests"`
	OverrideMachineCertSANs bool                          `yaml:"overrideMachineCertSANs"`
	NodeConfigs             `yaml:",inline"`
}

// NodeConfigs are the settings of a node, or of all nodes of a group. nil means not set.
type NodeConfigs struct {
	NodeLabels          map[string]string              `yaml:"nodeLabels"`
	NodeAnnotations     map[string]string              `yaml:"nodeAnnotations"`
	NodeTaints          map[string]string              `yaml:"nodeTaints"`
	MachineDisks        []*v1alpha1.MachineDisk        `yaml:"machineDisks"`
	MachineFiles        []MachineFile                  `yaml:"machineFiles"`
	DisableSearchDomain *bool                          `yaml:"disableSearchDomain"`
	KernelModules       []*v1alpha1.KernelModuleConfig `yaml:"kernelModules"`
	Nameservers         []string                       `yaml:"nameservers"`
	NetworkInterfaces   []*v1alpha1.Device             `yaml:"networkInterfaces"`
	// ExtraManifests are files with further documents of the machine config.
	ExtraManifests []string `yaml:"extraManifests"`
	CertSANs       []string `yaml:"certSANs"`
	Patches        []string `yaml:"patches"`
	// TalosImageURL is the installer image without tag.
	TalosImageURL       string                  `yaml:"talosImageURL"`
	NoSchematicValidate *bool                   `yaml:"noSchematicValidate"`
	Schematic           *imagefactory.Schematic `yaml:"schematic"`
	// ImageSchematic is of the boot images, where it differs from that of the installer.
	ImageSchematic    *imagefactory.Schematic `yaml:"imageSchematic"`
	MachineSpec       *MachineSpec            `yaml:"machineSpec"`
	IngressFirewall   *IngressFirewall        `yaml:"ingressFirewall"`
	ExtensionServices []ExtensionService      `yaml:"extensionServices"`
	Volumes           []Volume                `yaml:"volumes"`
	UserVolumes       []UserVolume            `yaml:"userVolumes"`
	// FilenameTmpl is a Go template of the name of the file. Default: DefaultFilename.
	FilenameTmpl string `yaml:"filenameTmpl"`
}

// InlineManifest is a manifest that control planes apply when they are bootstrapped.
type InlineManifest struct {
	Name string `yaml:"name"`
	// Contents of the manifest, or @file.
	Contents     string `yaml:"contents"`
	SkipEnvsubst bool   `yaml:"skipEnvsubst"`
}

// MachineFile is a file on the machine.
type MachineFile struct {
	// Content of the file, or @file, whose bytes are taken as they are.
	Content      string            `yaml:"content"`
	Permissions  v1alpha1.FileMode `yaml:"permissions"`
	Path         string            `yaml:"path"`
	Op           string            `yaml:"op"`
	SkipEnvsubst bool              `yaml:"skipEnvsubst"`
}

// ImageFactory is where images come from.
type ImageFactory struct {
	// RegistryURL is the host. Default: factory.talos.dev.
	RegistryURL string `yaml:"registryURL"`
	// SchematicEndpoint is the path that takes schematics. Default: /schematics.
	SchematicEndpoint string `yaml:"schematicEndpoint"`
	// Protocol is https or http. Default: https.
	Protocol string `yaml:"protocol"`
	// InstallerURLTmpl and ISOURLTmpl are Go templates of the URLs.
	InstallerURLTmpl string `yaml:"installerURLTmpl"`
	ISOURLTmpl       string `yaml:"ISOURLTmpl"`
}

// MachineSpec is what kind of machine an image is for.
type MachineSpec struct {
	// Mode is the platform. Default: metal.
	Mode string `yaml:"mode"`
	// Arch is amd64 or arm64. Default: amd64.
	Arch       string `yaml:"arch"`
	Secureboot bool   `yaml:"secureboot"`
	UseUKI     bool   `yaml:"useUKI"`
	// BootMethod is iso, disk-image or pxe. Default: iso.
	BootMethod string `yaml:"bootMethod"`
	// ImageSuffix is the end of the file name of a disk image. Default: raw.zst, raw.xz before Talos 1.10.
	ImageSuffix string `yaml:"imageSuffix"`
}

// IngressFirewall filters what reaches a machine.
type IngressFirewall struct {
	DefaultAction nethelpers.DefaultAction `yaml:"defaultAction"`
	Rules         []FirewallRule           `yaml:"rules"`
}

// FirewallRule accepts what it matches.
type FirewallRule struct {
	Name         string                   `yaml:"name"`
	PortSelector network.RulePortSelector `yaml:"portSelector"`
	Ingress      network.IngressConfig    `yaml:"ingress"`
}

// ExtensionService configures a service of a system extension.
type ExtensionService struct {
	Name        string                    `yaml:"name"`
	ConfigFiles extensions.ConfigFileList `yaml:"configFiles"`
	Environment []string                  `yaml:"environment"`
}

// Volume configures a volume of the system.
type Volume struct {
	Name         string                 `yaml:"name"`
	Provisioning block.ProvisioningSpec `yaml:"provisioning"`
	Encryption   block.EncryptionSpec   `yaml:"encryption"`
}

// UserVolume is a volume for workloads.
type UserVolume struct {
	Name         string                 `yaml:"name"`
	VolumeType   *block.VolumeType      `yaml:"volumeType"`
	Provisioning block.ProvisioningSpec `yaml:"provisioning"`
	Filesystem   block.FilesystemSpec   `yaml:"filesystem"`
	Encryption   block.EncryptionSpec   `yaml:"encryption"`
}

// Addresses are the addresses of a node, the first of which is the preferred one.
func (n *Node) Addresses() []string {
	var out []string

	for address := range strings.SplitSeq(n.IPAddress, ",") {
		if address = strings.TrimSpace(address); address != "" {
			out = append(out, address)
		}
	}

	return out
}

// SchedulesOnControlPlanes reports whether workloads run on control planes.
func (c *Config) SchedulesOnControlPlanes() bool {
	return ptr.Deref(c.AllowSchedulingOnControlPlanes, false) || c.AllowSchedulingOnControlPlanes == nil &&
		ptr.Deref(c.AllowSchedulingOnMasters, false)
}

// DefaultTalosVersion is the version without talosVersion: that of the library that writes the machine configs.
const DefaultTalosVersion = "v1.13.9"

// Version is the Talos version, with v.
func (c *Config) Version() string {
	return "v" + strings.TrimPrefix(cmp.Or(c.TalosVersion, DefaultTalosVersion), "v")
}
