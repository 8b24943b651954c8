package machineconfig

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/siderolabs/crypto/x509"
	"github.com/siderolabs/talos/pkg/machinery/config"
	docconfig "github.com/siderolabs/talos/pkg/machinery/config/config"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/generate"
	"github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/internal/machineconfig/extension"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
	"github.com/talos-operator/talos-operator/internal/machineconfig/system"
	"github.com/talos-operator/talos-operator/internal/machineconfig/volume"
)

// generateBase makes the config before patches.
func generateBase(in Input) (config.Provider, error) {
	contract, err := checkInput(in)
	if err != nil {
		return nil, err
	}

	if in.Install.Image, err = installer(in); err != nil {
		return nil, err
	}

	generated, err := generate.NewInput(
		in.ClusterName, in.Endpoint, strings.TrimPrefix(in.KubernetesVersion, "v"), generateOptions(in, contract)...,
	)
	if err != nil {
		return nil, fmt.Errorf("preparing machine config: %w", err)
	}

	generated.PodNet = orDefault(in.Network.PodSubnets, DefaultPodSubnet)
	generated.ServiceNet = orDefault(in.Network.ServiceSubnets, DefaultServiceSubnet)

	cfg, err := generated.Config(machineType(in.Role))
	if err != nil {
		return nil, fmt.Errorf("generating machine config: %w", err)
	}

	return adjust(in, contract, cfg)
}

func checkInput(in Input) (*config.VersionContract, error) {
	if in.Secrets == nil || in.Secrets.Certs == nil || in.Secrets.Cluster == nil || in.Secrets.Secrets == nil ||
		in.Secrets.TrustdInfo == nil {
		return nil, &InputError{Field: "Secrets", Problem: "the secrets bundle is missing or incomplete"}
	}

	if in.ClusterName == "" {
		return nil, &InputError{Field: "ClusterName", Problem: "is empty"}
	}

	if in.Role != ControlPlane && in.Role != Worker {
		return nil, &InputError{Field: "Role", Problem: fmt.Sprintf("%q is neither controlplane nor worker", in.Role)}
	}

	// Talos escapes what is no URL and accepts it, so this has to be caught here.
	if u, err := url.Parse(in.Endpoint); err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" {
		return nil, &InputError{Field: "Endpoint", Problem: "must be a URL with https, a host and a port"}
	}

	if in.KubernetesVersion == "" {
		return nil, &InputError{Field: "KubernetesVersion", Problem: "is empty"}
	}

	problems := netconfig.Check(in.Machine, in.Role == Worker, in.Patches.any())
	problems = append(problems, in.cluster().Check(nil)...)
	problems = append(problems, in.cluster().CheckMachine(in.Machine)...)
	problems = append(problems, netconfig.CheckFirewall(field.NewPath(netconfig.FirewallRoot), in.Firewall)...)
	problems = append(problems, extension.Check(field.NewPath(extension.Root), in.ExtensionServices)...)
	problems = append(problems, staticpod.Check(field.NewPath(staticpod.Root), in.StaticPods,
		netconfig.KubePrismPort(in.KubePrism))...)
	problems = append(problems, kernel.Check(nil, in.Kernel)...)
	problems = append(problems, registry.Check(field.NewPath(registry.Root), in.Registries)...)
	problems = append(problems, system.Check(nil, in.System, in.Role == Worker)...)
	problems = append(problems, volume.Check(field.NewPath(volume.Root), in.Volumes)...)

	if len(problems) > 0 {
		return nil, inputErrors(problems)
	}

	return in.contract()
}

// contract is what the version of Talos that the config is for knows.
func (in Input) contract() (*config.VersionContract, error) {
	contract, err := config.ParseContractFromVersion(cmp.Or(in.Contract, in.TalosVersion))
	if err != nil {
		return nil, &InputError{Field: "TalosVersion", Problem: fmt.Sprintf("%q is not a version like v1.13.9",
			cmp.Or(in.Contract, in.TalosVersion))}
	}

	return contract, nil
}

func generateOptions(in Input, contract *config.VersionContract) []generate.Option {
	domain := in.Network.DNSDomain
	if domain == "" {
		domain = DefaultDNSDomain
	}

	options := []generate.Option{
		generate.WithVersionContract(contract),
		generate.WithSecretsBundle(in.Secrets),
		generate.WithInstallImage(in.Install.Image),
		generate.WithInstallDisk(in.Install.Disk),
		generate.WithInstallExtraKernelArgs(in.Install.ExtraKernelArgs),
		generate.WithAdditionalSubjectAltNames(in.CertSANs),
		generate.WithDNSDomain(domain),
		generate.WithAllowSchedulingOnControlPlanes(in.AllowSchedulingOnControlPlanes && in.Role == ControlPlane),
	}

	// The CNI is installed by control planes; in a worker's config it would only be noise. Without a name Talos installs
	// flannel, so the default is left to Talos.
	if in.Network.CNI.Name != "" && in.Role == ControlPlane {
		options = append(options, generate.WithClusterCNIConfig(&v1alpha1.CNIConfig{
			CNIName: in.Network.CNI.Name, CNIUrls: in.Network.CNI.URLs,
		}))
	}

	return options
}

func machineType(role Role) machine.Type {
	if role == ControlPlane {
		return machine.TypeControlPlane
	}

	return machine.TypeWorker
}

// adjust fills in what the generator has no options for.
func adjust(in Input, contract *config.VersionContract, cfg config.Provider) (config.Provider, error) {
	var docs []docconfig.Document

	for _, doc := range cfg.Clone().Documents() {
		switch doc := doc.(type) {
		case *v1alpha1.Config:
			if err := adjustMachine(in, doc.MachineConfig); err != nil {
				return nil, err
			}

			problems := system.Apply(in.System, in.Values, contract, doc.MachineConfig)
			problems = append(problems, volume.Legacy(in.Volumes, in.Values, contract, doc.MachineConfig)...)

			if len(problems) > 0 {
				return nil, inputErrors(problems)
			}

			in.cluster().ApplyDiscovery(doc.ClusterConfig)
			in.cluster().ApplyKubePrism(doc.MachineConfig)
		}

		docs = append(docs, doc)
	}

	var err error

	if contract.MultidocNetworkConfigSupported() {
		docs, err = addDocuments(in, docs)
	} else {
		err = addLegacy(in, docs)
	}

	if err != nil {
		return nil, err
	}

	docs = append(docs, addKubeSpan(in, contract, docs)...)
	docs = append(docs, netconfig.Shared(in.Machine, in.Firewall)...)
	docs = append(docs, extension.Documents(in.ExtensionServices)...)

	settings, problems := system.Documents(in.System, in.Values, contract)

	volumes, more := volume.Documents(in.Volumes, in.Values, contract)
	if problems = append(problems, more...); len(problems) > 0 {
		return nil, inputErrors(problems)
	}

	docs = append(docs, settings...)
	docs = append(docs, volumes...)

	out, err := container.New(docs...)
	if err != nil {
		return nil, fmt.Errorf("putting machine config together: %w", err)
	}

	return out, nil
}

func adjustMachine(in Input, m *v1alpha1.MachineConfig) error {
	if err := adjustInstall(in.Install, m.MachineInstall); err != nil {
		return err
	}

	m.MachineKubelet.KubeletImage = kubeletImage(in)

	if len(in.Kubelet.ExtraArgs) > 0 {
		m.MachineKubelet.KubeletExtraArgs = v1alpha1.Args{}
		for name, value := range in.Kubelet.ExtraArgs {
			m.MachineKubelet.KubeletExtraArgs[name] = v1alpha1.NewArgValue(value, nil)
		}
	}

	for key, value := range in.NodeLabels {
		if m.MachineNodeLabels == nil {
			m.MachineNodeLabels = map[string]string{}
		}

		m.MachineNodeLabels[key] = value
	}

	if len(in.NodeAnnotations) > 0 {
		m.MachineNodeAnnotations = map[string]string{}
		for key, value := range in.NodeAnnotations {
			m.MachineNodeAnnotations[key] = value
		}
	}

	pods, err := staticpod.Objects(in.StaticPods)
	if err != nil {
		return err
	}

	m.MachinePods = append(m.MachinePods, pods...)
	kernel.Apply(in.Kernel, m)

	return addTaints(in.NodeTaints, m)
}

// addTaints writes taints as Talos wants them: one a key.
func addTaints(taints []Taint, m *v1alpha1.MachineConfig) error {
	for _, taint := range taints {
		if m.MachineNodeTaints == nil {
			m.MachineNodeTaints = map[string]string{}
		}

		if _, exists := m.MachineNodeTaints[taint.Key]; exists {
			return &InputError{
				Field:   "NodeTaints",
				Problem: fmt.Sprintf("key %q occurs twice, and Talos knows one taint for each key", taint.Key),
			}
		}

		value := taint.Effect
		if taint.Value != "" {
			value = taint.Value + ":" + taint.Effect
		}

		m.MachineNodeTaints[taint.Key] = value
	}

	return nil
}

func adjustInstall(in Install, install *v1alpha1.InstallConfig) error {
	wipe := in.Wipe
	install.InstallWipe = &wipe
	install.InstallBootloader = in.Bootloader

	// Talos refuses both together; without extra arguments the boot loader takes those of the kernel image.
	if len(in.ExtraKernelArgs) > 0 {
		install.InstallGrubUseUKICmdline = nil
	}

	if in.Disk != "" || in.Selector == (DiskSelector{}) {
		return nil
	}

	selector, err := in.Selector.talos()
	if err != nil {
		return err
	}

	install.InstallDiskSelector = selector

	return nil
}

// talos writes the selector in the words of Talos.
func (s DiskSelector) talos() (*v1alpha1.InstallDiskSelector, error) {
	if s.MinSize != "" && s.MaxSize != "" {
		return nil, &InputError{
			Field: "Install.Selector", Problem: "Talos knows one bound for the size of a disk: choose the disk first",
		}
	}

	fields := map[string]string{
		"type": s.Type, "model": s.Model, "serial": s.Serial, "wwid": s.WWID, "busPath": s.BusPath,
	}

	switch {
	case s.MinSize != "":
		fields["size"] = ">= " + s.MinSize
	case s.MaxSize != "":
		fields["size"] = "<= " + s.MaxSize
	}

	for key, value := range fields {
		if value == "" {
			delete(fields, key)
		}
	}

	// Through YAML, because the size condition cannot be set otherwise.
	raw, err := yaml.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("writing disk selector: %w", err)
	}

	out := &v1alpha1.InstallDiskSelector{}
	if err := yaml.Unmarshal(raw, out); err != nil {
		return nil, &InputError{Field: "Install.Selector", Problem: describe(err)}
	}

	return out, nil
}

// kubeletImage adds the Kubernetes version to an image without tag; the version decides, not the tag.
func kubeletImage(in Input) string {
	image := in.Kubelet.Image
	if image == "" {
		image = DefaultKubeletRepository
	}

	last := image[strings.LastIndex(image, "/")+1:]
	if strings.ContainsAny(last, ":@") {
		return image
	}

	return image + ":" + normalizeVersion(in.KubernetesVersion)
}

func normalizeVersion(v string) string { return "v" + strings.TrimPrefix(v, "v") }

func orDefault(values []string, fallback string) []string {
	if len(values) == 0 {
		return []string{fallback}
	}

	return slices.Clone(values)
}

func pairOf(pair *x509.PEMEncodedCertificateAndKey) func() (crt, key []byte) {
	return func() ([]byte, []byte) {
		if pair == nil {
			return nil, nil
		}

		return pair.Crt, pair.Key
	}
}

// Reads tells whether a Talos version can read the configs of a version contract, such as v1.13: one that is older
// refuses fields and documents that it does not know. Versions that cannot be parsed are no obstacle.
func Reads(talosVersion, contract string) bool {
	runs, err := config.ParseContractFromVersion(talosVersion)
	if err != nil {
		return true
	}

	needs, err := config.ParseContractFromVersion(contract)

	return err != nil || !needs.Greater(runs)
}
