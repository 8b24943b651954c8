// Package desired translates what the API objects say about a machine into the machine config that it should have. It
// is pure.
package desired

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
	"github.com/talos-operator/talos-operator/internal/machineconfig/keyref"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/optional"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
	"github.com/talos-operator/talos-operator/internal/machineconfig/system"
	"github.com/talos-operator/talos-operator/internal/machineconfig/volume"
)

// Sources are the objects that determine the configuration of one machine.
type Sources struct {
	ControlPlane *v1alpha1.TalosControlPlane
	// Worker is the group of a worker; nil for a control-plane machine.
	Worker  *v1alpha1.TalosWorker
	Machine *v1alpha1.TalosMachine
	State   *clusterstate.State
	// Disk is the install disk that was chosen.
	Disk string
	// From are the patches that ConfigMaps and Secrets hold.
	From Patches
	// Adopted are patches that keep changes made outside of the operator; they are applied last.
	Adopted []string
	// Machines are those of the cluster, for the firewall that one of them has. Without them, those that are listed with
	// the machine are known.
	Machines []v1alpha1.TalosMachine
}

// Patches are patches and values that were read from other objects, by the level of the object that names them.
type Patches struct {
	Cluster, Group, Machine []machineconfig.Sourced
	// Values are those of the fields that name a key of a Secret.
	Values keyref.Values
}

// group returns the options that the machine shares with its group.
func (s Sources) group() *v1alpha1.NodeOptions {
	switch {
	case s.Worker != nil:
		return &s.Worker.Spec.NodeOptions
	case s.ControlPlane != nil:
		return &s.ControlPlane.Spec.NodeOptions
	}

	return &v1alpha1.NodeOptions{} // what is left of a cluster whose control plane is gone
}

// groupNetwork returns the network that the machines of the group share; nil if there is none.
func (s Sources) groupNetwork() *v1alpha1.SharedNetwork {
	if s.Worker != nil {
		return s.Worker.Spec.MachineNetwork
	}

	return s.ControlPlane.Spec.MachineNetwork
}

// Input translates the objects to the input of the renderer. It contains private keys.
func Input(s Sources) machineconfig.Input {
	cp, m, group := &s.ControlPlane.Spec, &s.Machine.Spec, s.group()

	return machineconfig.Input{
		ClusterName:                    s.State.BundleConfig.ClusterName,
		Endpoint:                       cp.Endpoint,
		TalosVersion:                   cp.TalosVersion,
		Contract:                       s.State.BundleConfig.Contract,
		KubernetesVersion:              cp.KubernetesVersion,
		Secrets:                        s.State.Bundle.Secrets(),
		Role:                           machineconfig.Role(m.Role),
		CertSANs:                       cp.CertSANs,
		Network:                        clusterNetwork(cp.Network),
		AllowSchedulingOnControlPlanes: ptr.Deref(cp.AllowSchedulingOnControlPlanes, false),
		Install:                        install(s),
		Kubelet:                        kubelet(group.Kubelet, m.Kubelet),
		Registries:                     Registries(s),
		NodeLabels:                     merged(group.NodeLabels, m.NodeLabels),
		NodeAnnotations:                merged(group.NodeAnnotations, m.NodeAnnotations),
		NodeTaints:                     taints(group.NodeTaints, m.NodeTaints),
		ExtensionServices:              ExtensionServices(s),
		StaticPods:                     StaticPods(s),
		Kernel:                         Kernel(s),
		System:                         System(s),
		Volumes:                        Volumes(s),
		Machine:                        machineNetwork(s),
		Values:                         s.From.Values,
		KubeSpan:                       cp.KubeSpan,
		KubePrism:                      cp.KubePrism,
		KubePrismFixed:                 s.State.BundleConfig.KubePrism != "",
		Discovery:                      cp.Discovery,
		Firewall:                       netconfig.MergeFirewalls(group.IngressFirewall, m.IngressFirewall),
		Neighbours:                     Neighbours(s),
		Patches: machineconfig.Patches{
			Cluster: cp.ClusterConfigPatches,
			Group:   group.ConfigPatches,
			Machine: m.ConfigPatches,

			ClusterFrom: s.From.Cluster, GroupFrom: s.From.Group, MachineFrom: s.From.Machine,
			Adopted: s.Adopted,
		},
	}
}

// Render renders the configuration that a machine would get now, installed to the disk that its status names: for a
// machine that cannot be queried for its own. The result contains private keys.
func Render(s Sources) (*machineconfig.Rendered, error) {
	s.Disk = s.Machine.Status.InstallDisk

	return machineconfig.Render(Input(s))
}

func clusterNetwork(n v1alpha1.ClusterNetwork) machineconfig.ClusterNetwork {
	out := machineconfig.ClusterNetwork{
		PodSubnets: n.PodSubnets, ServiceSubnets: n.ServiceSubnets, DNSDomain: n.DNSDomain,
	}
	if n.CNI != nil {
		out.CNI = machineconfig.CNI{Name: string(n.CNI.Name), URLs: n.CNI.URLs}
	}

	return out
}

// installOptions merges field by field; the machine takes precedence. A disk and a selector exclude each other, so a
// machine that sets one does not inherit the other.
func installOptions(
	cluster *v1alpha1.ImageOptions, group, machine *v1alpha1.InstallOptions,
) v1alpha1.InstallOptions {
	var out v1alpha1.InstallOptions
	if cluster != nil {
		out.ImageOptions = *cluster
	}

	for _, o := range []*v1alpha1.InstallOptions{group, machine} {
		if o != nil {
			override(&out, o)
		}
	}

	return out
}

// override replaces what other options set.
func override(into, o *v1alpha1.InstallOptions) {
	if o.Disk != "" || o.DiskSelector != nil {
		into.Disk, into.DiskSelector = o.Disk, o.DiskSelector
	}

	if o.Bootloader != nil {
		into.Bootloader = o.Bootloader
	}

	if o.Wipe != nil {
		into.Wipe = o.Wipe
	}

	if o.ExtraKernelArgs != nil {
		into.ExtraKernelArgs = o.ExtraKernelArgs
	}

	overrideImage(into, o.Image, o.ImageOptions)
}

func install(s Sources) machineconfig.Install {
	o := s.Install()

	return machineconfig.Install{
		Disk:            s.Disk,
		Image:           o.Image,
		Factory:         s.Image(),
		Refused:         s.refusal(),
		Wipe:            ptr.Deref(o.Wipe, false),
		Bootloader:      o.Bootloader,
		ExtraKernelArgs: o.ExtraKernelArgs,
	}
}

// DiskWish returns what the objects say about the install disk of a machine that runs from systemDisk, empty if it runs
// from no disk.
func DiskWish(s Sources, systemDisk string) machineconfig.DiskWish {
	o := s.Install()
	wish := machineconfig.DiskWish{Path: o.Disk, Wipe: ptr.Deref(o.Wipe, false), SystemDisk: systemDisk}

	if s := o.DiskSelector; s != nil {
		wish.Selector = machineconfig.DiskSelector{
			MinSize: s.MinSize, MaxSize: s.MaxSize, Type: s.Type, Model: s.Model,
			Serial: s.Serial, WWID: s.WWID, BusPath: s.BusPath,
		}
	}

	return wish
}

func kubelet(group, machine *v1alpha1.KubeletOptions) machineconfig.Kubelet {
	var out machineconfig.Kubelet

	for _, o := range []*v1alpha1.KubeletOptions{group, machine} {
		if o == nil {
			continue
		}

		if o.Image != "" {
			out.Image = o.Image
		}

		out.ExtraArgs = merged(out.ExtraArgs, o.ExtraArgs)
	}

	return out
}

// Registries returns the registries of the group, each mirror and each host replaced by that of the machine.
func Registries(s Sources) *v1alpha1.Registries {
	return registry.Merge(s.group().Registries, s.Machine.Spec.Registries)
}

// System returns the settings of Talos of the group, replaced by those of the machine.
func System(s Sources) v1alpha1.SystemOptions {
	return system.Merge(s.group().SystemOptions, s.Machine.Spec.SystemOptions)
}

// Refs lists the fields of a machine and of its group that take their values from other objects. Those of the group
// that the machine replaces are left out.
func Refs(s Sources) []keyref.Ref {
	return slices.Concat(
		netconfig.Secrets(s.Machine.Spec.Network), registry.Secrets(Registries(s)), system.Refs(System(s)),
		volume.Refs(Volumes(s)),
	)
}

// ExtensionServices returns the services of the group, replaced by those of the same name that the machine lists
// itself, sorted by name.
func ExtensionServices(s Sources) []v1alpha1.ExtensionService {
	return optional.MergeSorted(s.group().ExtensionServices, s.Machine.Spec.ExtensionServices,
		func(s v1alpha1.ExtensionService) string { return s.Name })
}

// StaticPods returns the static pods of the group, replaced by those of the same namespace and name that the machine
// lists itself, sorted by both.
func StaticPods(s Sources) []runtime.RawExtension {
	return staticpod.Merge(s.group().StaticPods, s.Machine.Spec.StaticPods)
}

// Kernel returns the settings of the kernel of the group, replaced by those that the machine has itself.
func Kernel(s Sources) kernel.Settings {
	group, m := s.group(), &s.Machine.Spec

	return kernel.Merge(kernel.Of(group.Kernel, group.Sysctls, group.Sysfs), kernel.Of(m.Kernel, m.Sysctls, m.Sysfs))
}

// Volumes returns the volumes of the group, each replaced by that of the machine, apart from the encryption.
func Volumes(s Sources) *v1alpha1.Volumes {
	return volume.Merge(s.group().Volumes, s.Machine.Spec.Volumes)
}

// taints returns the taints of the group, without those of a key that the machine has a taint of, and then those of the
// machine.
func taints(group, machine []corev1.Taint) []machineconfig.Taint {
	var out []machineconfig.Taint

	replaced := func(t corev1.Taint) bool {
		return slices.ContainsFunc(machine, func(own corev1.Taint) bool { return own.Key == t.Key })
	}

	for _, t := range slices.Concat(slices.DeleteFunc(slices.Clone(group), replaced), machine) {
		out = append(out, machineconfig.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}

	return out
}

// machineNetwork returns the network of a machine with what its group shares. A machine is called like its object if it
// has no other name.
func machineNetwork(s Sources) v1alpha1.MachineNetwork {
	out := *cmp.Or(s.Machine.Spec.Network, &v1alpha1.MachineNetwork{})
	out.Hostname = cmp.Or(out.Hostname, s.Machine.Name)
	out.SharedNetwork = netconfig.MergeShared(s.groupNetwork(), out.SharedNetwork)

	return out
}

func merged(base, over map[string]string) map[string]string {
	if len(base)+len(over) == 0 {
		return nil
	}

	out := make(map[string]string, len(base)+len(over))
	for k, v := range base {
		out[k] = v
	}

	for k, v := range over {
		out[k] = v
	}

	return out
}

// Layers are what decides the configuration of a machine, for machineconfig.Explain: what follows from the cluster
// alone, the fields of the group, and those of the machine with all patches.
func Layers(s Sources) []machineconfig.Layer {
	cluster, group := s, s

	cluster.Machine, group.Machine = withoutFields(s.Machine), withoutFields(s.Machine)

	groupName := "TalosControlPlane " + s.ControlPlane.Name

	if s.Worker != nil {
		groupName = "TalosWorker " + s.Worker.Name
		cluster.Worker, group.Worker = s.Worker.DeepCopy(), s.Worker.DeepCopy()
		cluster.Worker.Spec.NodeOptions, cluster.Worker.Spec.MachineNetwork = v1alpha1.NodeOptions{}, nil
		group.Worker.Spec.NodeOptions = shared(s)
	} else {
		cluster.ControlPlane, group.ControlPlane = s.ControlPlane.DeepCopy(), s.ControlPlane.DeepCopy()
		cluster.ControlPlane.Spec.NodeOptions, cluster.ControlPlane.Spec.MachineNetwork = v1alpha1.NodeOptions{}, nil
		group.ControlPlane.Spec.NodeOptions = shared(s)
	}

	return []machineconfig.Layer{
		{Name: "generated", Input: Input(cluster)},
		{Name: "fields of " + groupName, Input: Input(group)},
		{Name: "fields of TalosMachine " + s.Machine.Name, Input: Input(s)},
	}
}

// shared returns the options of the group without the fields that take values from other objects and that the machine
// replaces: these objects are not read.
func shared(s Sources) v1alpha1.NodeOptions {
	out := *s.group()
	out.Registries = registry.Without(out.Registries, s.Machine.Spec.Registries)
	out.Volumes = volume.Without(out.Volumes, s.Machine.Spec.Volumes)
	out.SystemOptions = system.Without(out.SystemOptions, s.Machine.Spec.SystemOptions)

	return out
}

func withoutFields(m *v1alpha1.TalosMachine) *v1alpha1.TalosMachine {
	out := m.DeepCopy()
	out.Spec.NodeOptions, out.Spec.Network = v1alpha1.NodeOptions{}, nil

	return out
}
