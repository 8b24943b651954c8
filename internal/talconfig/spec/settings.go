package spec

import (
	"cmp"
	"errors"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/types/network"
	talosv1alpha1 "github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"go.yaml.in/yaml/v4"
	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// settings are the parts of a machine config that have typed fields.
type settings struct {
	main     *talosv1alpha1.Config
	hostname string
	shared   v1alpha1.SharedNetwork
}

func readSettings(config []byte, hasDocuments bool) (settings, error) {
	cfg, err := configloader.NewFromBytes(config)
	if err != nil {
		return settings{}, errors.New(machineconfig.Describe(err)) // the cause may quote secrets
	}

	out := settings{main: cfg.RawV1Alpha1()}
	if out.main == nil || out.main.MachineConfig == nil || out.main.ClusterConfig == nil {
		return settings{}, errors.New("patches have removed machine or cluster from the machine config")
	}

	if n := out.main.MachineConfig.MachineNetwork; n != nil {
		out.hostname = n.NetworkHostname
	}

	for _, doc := range cfg.Documents() {
		if doc, ok := doc.(*network.HostnameConfigV1Alpha1); ok {
			out.hostname = doc.ConfigHostname
		}
	}

	out.shared = sharedNetwork(out.main.MachineConfig, cfg.Documents(), hasDocuments)

	return out, nil
}

// install is never nil.
func (s *settings) install() *talosv1alpha1.InstallConfig {
	if i := s.main.MachineConfig.MachineInstall; i != nil {
		return i
	}

	return &talosv1alpha1.InstallConfig{}
}

// Limits of the API.
const (
	longestLabel      = 63
	longestAnnotation = 2048
	mostLabels        = 64
	mostArguments     = 64
)

// entryOf describes a machine by typed fields. What they cannot say is left to patches.
func (b *builder) entryOf(n *node) (v1alpha1.MachineEntry, error) {
	out := v1alpha1.MachineEntry{Name: n.name}

	for _, address := range n.Addresses() {
		if _, err := netip.ParseAddr(address); err == nil {
			out.Address = address

			break
		}
	}

	if out.Address == "" {
		return out, n.failure(errors.New("ipAddress has no IP address, and the operator reaches machines by theirs: add it"))
	}

	out.Network = n.network()
	out.NodeLabels, out.NodeAnnotations, out.NodeTaints = n.labels(), n.annotations(), n.taints()

	install := &v1alpha1.InstallOptions{}
	if disk := n.install().InstallDisk; strings.HasPrefix(disk, "/dev/") {
		install.Disk = disk
	} else if disk == "" {
		install.DiskSelector = DiskSelector(n.install().InstallDiskSelector)
	}

	if wipe := n.install().InstallWipe; wipe != nil && *wipe {
		install.Wipe = wipe
	}

	if args := n.install().InstallExtraKernelArgs; len(args) <= mostArguments && isOpen(args...) {
		install.ExtraKernelArgs = args
	}

	b.setImage(n, install)
	out.Install = install

	return out, nil
}

var hostname = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// network of the node; nil if it says nothing.
func (n *node) network() *v1alpha1.MachineNetwork {
	out := &v1alpha1.MachineNetwork{SharedNetwork: n.shared}

	if n.hostname != n.name && hostname.MatchString(n.hostname) {
		out.Hostname = n.hostname
	}

	if reflect.ValueOf(*out).IsZero() {
		return nil
	}

	return out
}

// labels of the node, apart from the one that Talos sets.
func (n *node) labels() map[string]string {
	out := map[string]string{}

	for key, value := range n.main.MachineConfig.MachineNodeLabels {
		if key != constants.LabelExcludeFromExternalLB && len(value) <= longestLabel {
			out[key] = value
		}
	}

	if len(out) == 0 || len(out) > mostLabels {
		return nil
	}

	return out
}

// annotations of the node, if typed fields can say all of them.
func (n *node) annotations() map[string]string {
	out := n.main.MachineConfig.MachineNodeAnnotations
	if len(out) == 0 || len(out) > mostLabels || len(validation.NodeAnnotations("", out)) > 0 ||
		!isOpenSection(map[string]any{"nodeAnnotations": out}) {
		return nil
	}

	for _, value := range out {
		if len(value) > longestAnnotation {
			return nil
		}
	}

	return out
}

func (n *node) taints() []corev1.Taint {
	var out []corev1.Taint

	for key, text := range n.main.MachineConfig.MachineNodeTaints {
		value, effect, hasValue := strings.Cut(text, ":")
		if !hasValue {
			value, effect = "", text
		}

		if value == "" && hasValue { // ":NoSchedule" is another text with the same meaning
			continue
		}

		out = append(out, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}

	slices.SortFunc(out, func(a, b corev1.Taint) int { return strings.Compare(a.Key, b.Key) })

	return out
}

// DiskSelector is nil for a selector that typed fields cannot express.
func DiskSelector(s *talosv1alpha1.InstallDiskSelector) *v1alpha1.DiskSelector {
	if s == nil || s.Name+s.Modalias+s.UUID != "" {
		return nil
	}

	out := &v1alpha1.DiskSelector{
		Type: string(s.Type), Model: s.Model, Serial: s.Serial, WWID: s.WWID, BusPath: s.BusPath,
	}

	if s.Size == nil {
		return out
	}

	var size string

	raw, err := yaml.Marshal(s.Size)
	if err != nil || yaml.Unmarshal(raw, &size) != nil {
		return nil
	}

	switch operator, bound, found := strings.Cut(size, " "); {
	case found && operator == ">=":
		out.MinSize = bound
	case found && operator == "<=":
		out.MaxSize = bound
	default:
		return nil
	}

	return out
}

// setImage names the installer by the fields of a schematic, by its ID, or by its reference: the first that results in
// the same.
func (b *builder) setImage(n *node, install *v1alpha1.InstallOptions) {
	wanted, version := n.install().InstallImage, b.fleet.Config.Version()
	if wanted == "" || wanted == machineconfig.DefaultInstallImage(version) {
		return
	}

	for _, candidate := range b.imageOptions(n) {
		probe := desired.Sources{ControlPlane: &v1alpha1.TalosControlPlane{}, Machine: &v1alpha1.TalosMachine{}}
		probe.ControlPlane.Spec.TalosVersion = version
		probe.Machine.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: candidate}

		image := probe.Image()
		if image == nil || len(image.Check()) > 0 {
			continue
		}

		if resolved, err := image.Resolve(); err == nil && resolved.Installer() == wanted {
			install.ImageOptions = candidate

			return
		}
	}

	install.Image = wanted
}

func (b *builder) imageOptions(n *node) []v1alpha1.ImageOptions {
	if n.TalosImageURL != "" {
		return nil
	}

	var common v1alpha1.ImageOptions

	if spec := n.MachineSpec; spec != nil {
		common.Platform = spec.Mode
		if spec.Secureboot {
			common.SecureBoot = &spec.Secureboot
		}
	}

	if host := b.fleet.Config.ImageFactory.RegistryURL; host != "" && host != imagefactory.DefaultRegistry {
		protocol := b.fleet.Config.ImageFactory.Protocol
		if protocol == "" {
			protocol = "https"
		}

		common.Factory = &v1alpha1.ImageFactory{Address: protocol + "://" + host}
	}

	plain, inline, byID := common, common, common
	plain.Platform = cmp.Or(common.Platform, imagefactory.DefaultPlatform)

	if n.Schematic == nil {
		return []v1alpha1.ImageOptions{plain}
	}

	out := []v1alpha1.ImageOptions{plain}

	if inline.Schematic = schematicOf(n.Schematic); inline.Schematic != nil {
		out = append(out, inline)
	}

	if id, err := n.Schematic.ID(); err == nil {
		byID.Schematic = &v1alpha1.Schematic{ID: id}
		out = append(out, byID)
	}

	return out
}

// schematicOf leaves out what the fields of a spec cannot express: then the ID is another one. It is nil for a
// schematic that a spec must not show.
func schematicOf(s *imagefactory.Schematic) *v1alpha1.Schematic {
	c := &s.Customization
	shown := slices.Clone(c.ExtraKernelArgs)
	out := &v1alpha1.Schematic{
		Extensions: c.SystemExtensions.OfficialExtensions, ExtraKernelArgs: c.ExtraKernelArgs, Bootloader: c.Bootloader,
	}

	if c.SecureBoot.IncludeWellKnownCertificates {
		out.SecureBootCertificates = v1alpha1.WellKnownCertificates
	}

	for _, m := range c.Meta {
		out.Meta = append(out.Meta, v1alpha1.SchematicMeta{Key: int32(m.Key), Value: m.Value})
		shown = append(shown, m.Value)
	}

	if o := s.Overlay; o != nil {
		out.Overlay = &v1alpha1.SchematicOverlay{Image: o.Image, Name: o.Name}

		for name, value := range o.Options {
			text, ok := value.(string)
			if !ok {
				continue
			}

			if out.Overlay.Options == nil {
				out.Overlay.Options = map[string]string{}
			}

			out.Overlay.Options[name] = text
			shown = append(shown, text)
		}
	}

	if !isOpen(shown...) || reflect.ValueOf(*out).IsZero() {
		return nil
	}

	return out
}

// isOpen reports whether texts may stand in a spec, which everybody may read who may read the object.
func isOpen(texts ...string) bool {
	if len(texts) == 0 {
		return true
	}

	return isOpenSection(map[string]any{"install": map[string]any{"extraKernelArgs": texts}})
}

// isOpenSection is isOpen for a part of the machine section, with its names.
func isOpenSection(section map[string]any) bool {
	raw, err := yaml.Marshal(map[string]any{"machine": section})
	if err != nil {
		return false
	}

	_, secret := machineconfig.SplitSecrets([]string{string(raw)})

	return len(secret) == 0
}
