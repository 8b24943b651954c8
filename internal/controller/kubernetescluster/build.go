package kubernetescluster

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// Roles of machines, as used in labels and by Talos.
const (
	roleControlPlane = string(v1alpha1.RoleControlPlane)
	roleWorker       = string(v1alpha1.RoleWorker)
)

// topology is what a KubernetesCluster expands to. It is pure.
type topology struct {
	cluster *vitistackv1alpha1.KubernetesCluster
	name    string
	// members returns the indexes that a group has in service and as spares; starting from 0 while no machine exists.
	members func(workerGroup string, replicas, spares int) (active, idle []int)
	// usable reports whether a spare machine is ready to be listed as a spare.
	usable func(name string) bool
	// installed returns the disk that Talos was installed on; empty while it is unknown.
	installed func(name string) string
}

func newTopology(c *vitistackv1alpha1.KubernetesCluster) topology {
	return topology{
		cluster: c, name: c.TalosClusterName(), members: firstIndexes, usable: func(string) bool { return true },
		installed: func(string) string { return "" },
	}
}

func inlineEndpoint(c *vitistackv1alpha1.KubernetesCluster) string {
	if t := c.Spec.TalosConfig; t != nil && t.Cluster != nil && t.Cluster.ControlPlane != nil {
		return t.Cluster.ControlPlane.Endpoint
	}

	return ""
}

func (t topology) endpoint() string {
	return cmp.Or(t.cluster.Spec.ClusterEndpoint, inlineEndpoint(t.cluster))
}

func (t topology) policy() v1alpha1.DeletionPolicy {
	return cmp.Or(t.cluster.Spec.DeletionPolicy, v1alpha1.DeletionPreserve)
}

// machines returns all Machines: the control plane first, then the groups in order.
func (t topology) machines() []*vitistackv1alpha1.Machine {
	active, idle := t.controlPlaneMachines()
	out := append(active, idle...)

	for i := range t.cluster.Spec.Workers {
		active, idle := t.workerMachines(&t.cluster.Spec.Workers[i])
		out = append(append(out, active...), idle...)
	}

	return out
}

// controlPlaneMachines returns the control-plane machines in service, and the spares.
func (t topology) controlPlaneMachines() (active, idle []*vitistackv1alpha1.Machine) {
	cp := &t.cluster.Spec.ControlPlane
	in, out := t.members("", int(cp.Replicas), int(cp.Spares))

	for _, i := range in {
		active = append(active, t.machine(validation.ControlPlaneGroup, "", i, cp.MachineTemplate.Spec))
	}

	for _, i := range out {
		idle = append(idle, t.machine(validation.ControlPlaneGroup, "", i, cp.MachineTemplate.Spec))
	}

	return active, idle
}

// workerMachines returns the machines of a group in service, and its spares.
func (t topology) workerMachines(g *vitistackv1alpha1.WorkerGroup) (active, idle []*vitistackv1alpha1.Machine) {
	in, out := t.members(g.Name, int(g.Replicas), int(g.Spares))

	for _, i := range in {
		active = append(active, t.machine(g.Name, g.Name, i, g.MachineTemplate.Spec))
	}

	for _, i := range out {
		idle = append(idle, t.machine(g.Name, g.Name, i, g.MachineTemplate.Spec))
	}

	return active, idle
}

// entries returns the machine list entries of machines.
func entries(machines []*vitistackv1alpha1.Machine) []v1alpha1.MachineEntry {
	var out []v1alpha1.MachineEntry
	for _, m := range machines {
		out = append(out, entry(m))
	}

	return out
}

// spares returns the entries of idle machines that can already be listed.
func (t topology) spares(idle []*vitistackv1alpha1.Machine) []v1alpha1.MachineEntry {
	return entries(slices.DeleteFunc(slices.Clone(idle), func(m *vitistackv1alpha1.Machine) bool {
		return !t.usable(m.Name)
	}))
}

func (t topology) machine(
	group, workerGroup string,
	index int,
	template vitistackv1alpha1.MachineSpec,
) *vitistackv1alpha1.Machine {
	m := &vitistackv1alpha1.Machine{
		TypeMeta: metav1.TypeMeta{APIVersion: vitistackv1alpha1.GroupVersion.String(), Kind: "Machine"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.cluster.Namespace,
			Name:      validation.MachineName(t.name, group, index),
			Labels: map[string]string{
				vitistackv1alpha1.ClusterNameLabel: t.name,
				vitistackv1alpha1.RoleLabel:        roleControlPlane,
			},
		},
		Spec: *template.DeepCopy(),
	}

	if workerGroup != "" {
		m.Labels[vitistackv1alpha1.RoleLabel] = roleWorker
		m.Labels[vitistackv1alpha1.WorkerGroupLabel] = workerGroup
	}

	m.Spec.Provider.Addresses = ownOf(template.Provider.Addresses, index)
	// An empty string in the list stands for a machine without an expected fingerprint.
	if own := ownOf(template.Provider.MaintenanceFingerprints, index); len(own) > 0 && own[0] != "" {
		m.Spec.Provider.MaintenanceFingerprints = own
	} else {
		m.Spec.Provider.MaintenanceFingerprints = nil
	}

	m.Spec.ReclaimPolicy = vitistackv1alpha1.ReclaimDelete
	if t.policy() == v1alpha1.DeletionPreserve {
		m.Spec.ReclaimPolicy = vitistackv1alpha1.ReclaimRetain
	}

	m.Spec.TalosConfig = &vitistackv1alpha1.MachineTalosSettings{
		MachineType:     m.Labels[vitistackv1alpha1.RoleLabel],
		ClusterEndpoint: t.endpoint(),
		InstallDisk:     cmp.Or(t.installDisk(template), t.installed(m.Name)),
	}

	return m
}

// ownOf returns the element of a template's list that belongs to one machine.
func ownOf(list []string, index int) []string {
	if index >= len(list) {
		return nil
	}

	return list[index : index+1]
}

// installDisk returns the disk that the spec names; empty if the operator chooses one.
func (t topology) installDisk(template vitistackv1alpha1.MachineSpec) string {
	if i := template.Install; i != nil && (i.Disk != "" || i.DiskSelector != nil) {
		return i.Disk
	}

	if c := t.cluster.Spec.TalosConfig; c != nil && c.Install != nil {
		return c.Install.Disk
	}

	return ""
}

// controlPlane returns the TalosControlPlane of the cluster.
func (t topology) controlPlane() *v1alpha1.TalosControlPlane {
	spec := &t.cluster.Spec
	cp := &v1alpha1.TalosControlPlane{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosControlPlane"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.cluster.Namespace, Name: t.name,
			Labels: map[string]string{vitistackv1alpha1.ClusterNameLabel: t.name},
			// Otherwise the control plane would add the finalizer itself, with a separate write.
			Finalizers: []string{v1alpha1.Finalizer},
		},
		Spec: v1alpha1.TalosControlPlaneSpec{
			ClusterName:       t.name,
			TalosVersion:      spec.TalosVersion,
			KubernetesVersion: spec.KubernetesVersion,
			Upgrade:           spec.Upgrade.DeepCopy(),
			Endpoint:          t.endpoint(),
			Network:           t.network(),
			DeletionPolicy:    t.policy(),
			GroupPolicy:       t.groupPolicy(spec.ControlPlane.GroupPolicy),
			NodeOptions:       t.nodeOptions(),

			BackupBeforeDisruption: t.cluster.Spec.BackupBeforeDisruption,
		},
	}

	if c := spec.TalosConfig; c != nil {
		cp.Spec.ClusterConfigPatches, cp.Spec.ClusterConfigPatchesFrom = c.ConfigPatches, c.ConfigPatchesFrom

		if c.Machine != nil {
			cp.Spec.CertSANs, cp.Spec.MachineNetwork = c.Machine.CertSANs, c.Machine.Network
		}

		if c.Cluster != nil {
			cp.Spec.AllowSchedulingOnControlPlanes = c.Cluster.AllowSchedulingOnControlPlanes
			cp.Spec.KubeSpan, cp.Spec.Discovery = c.Cluster.KubeSpan, c.Cluster.Discovery
			cp.Spec.KubePrism = c.Cluster.KubePrism
		}
	}

	if t.bootstrapSecrets() != nil {
		cp.Spec.BootstrapSecretsRef = &v1alpha1.ObjectReference{Name: t.bootstrapSecretsName()}
	}

	active, idle := t.controlPlaneMachines()
	cp.Spec.Machines, cp.Spec.Spares = entries(active), t.spares(idle)

	return cp
}

// workers returns one TalosWorker per group.
func (t topology) workers() []*v1alpha1.TalosWorker {
	var out []*v1alpha1.TalosWorker

	for i := range t.cluster.Spec.Workers {
		g := &t.cluster.Spec.Workers[i]
		active, idle := t.workerMachines(g)
		w := &v1alpha1.TalosWorker{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosWorker"},
			ObjectMeta: metav1.ObjectMeta{
				Namespace: t.cluster.Namespace, Name: t.name + "-" + g.Name,
				Labels: map[string]string{
					vitistackv1alpha1.ClusterNameLabel: t.name,
					vitistackv1alpha1.WorkerGroupLabel: g.Name,
				},
				Finalizers: []string{v1alpha1.Finalizer},
			},
			Spec: v1alpha1.TalosWorkerSpec{
				ControlPlaneRef: v1alpha1.ObjectReference{Name: t.name},
				DeletionPolicy:  t.policy(),
				GroupPolicy:     t.workerPolicy(g),
				NodeOptions:     t.nodeOptions(),
				Machines:        entries(active),
				Spares:          t.spares(idle),
			},
		}

		if c := t.cluster.Spec.TalosConfig; c != nil && c.Machine != nil {
			w.Spec.MachineNetwork = c.Machine.Network
		}

		out = append(out, w)
	}

	return out
}

// entry turns a Machine into an entry of a machine list, without the settings for the provider.
func entry(m *vitistackv1alpha1.Machine) v1alpha1.MachineEntry {
	fingerprint := ""
	if own := m.Spec.Provider.MaintenanceFingerprints; len(own) > 0 {
		fingerprint = own[0]
	}

	return v1alpha1.MachineEntry{
		MaintenanceFingerprint: fingerprint,

		Name:        m.Name,
		MachineRef:  &v1alpha1.ObjectReference{Name: m.Name},
		Network:     m.Spec.Network,
		NodeOptions: optionsOf(&m.Spec),
	}
}

// optionsOf returns the settings of a Machine that an entry of a machine list has, too.
func optionsOf(m *vitistackv1alpha1.MachineSpec) v1alpha1.NodeOptions {
	return v1alpha1.NodeOptions{
		Install: m.Install, NodeLabels: m.NodeLabels, NodeAnnotations: m.NodeAnnotations, NodeTaints: m.NodeTaints,
		ExtensionServices: m.ExtensionServices, StaticPods: m.StaticPods, IngressFirewall: m.IngressFirewall,
		Kernel: m.Kernel, Sysctls: m.Sysctls, Sysfs: m.Sysfs, Volumes: m.Volumes, SystemOptions: m.SystemOptions,
		ConfigPatches: m.ConfigPatches, ConfigPatchesFrom: m.ConfigPatchesFrom,
	}
}

// network merges the two fields of the API that describe the network: the top-level one takes precedence.
func (t topology) network() v1alpha1.ClusterNetwork {
	spec := &t.cluster.Spec
	out := v1alpha1.ClusterNetwork{PodSubnets: spec.PodSubnets, ServiceSubnets: spec.ServiceSubnets}

	if c := spec.TalosConfig; c != nil && c.Cluster != nil && c.Cluster.Network != nil {
		n := c.Cluster.Network
		out.DNSDomain, out.CNI = n.DNSDomain, n.CNI

		if len(out.PodSubnets) == 0 {
			out.PodSubnets = n.PodSubnets
		}

		if len(out.ServiceSubnets) == 0 {
			out.ServiceSubnets = n.ServiceSubnets
		}
	}

	return out
}

// groupPolicy returns the policy of a group: a field of its own replaces that of the cluster.
func (t topology) groupPolicy(own v1alpha1.GroupPolicy) v1alpha1.GroupPolicy {
	all := t.cluster.Spec.GroupPolicy

	return v1alpha1.GroupPolicy{
		Rollout:     cmp.Or(own.Rollout, all.Rollout),
		Drift:       cmp.Or(own.Drift, all.Drift),
		Remediation: cmp.Or(own.Remediation, all.Remediation),
		Drain:       cmp.Or(own.Drain, all.Drain),
	}
}

// workerPolicy returns the policy of a worker group. A TalosWorker inherits what it does not set from the control
// plane: what is set only for the control plane of this cluster is an exception, and the worker groups keep the
// defaults.
func (t topology) workerPolicy(g *vitistackv1alpha1.WorkerGroup) v1alpha1.GroupPolicy {
	out, exception := t.groupPolicy(g.GroupPolicy), t.cluster.Spec.ControlPlane.GroupPolicy

	if out.Rollout == nil && exception.Rollout != nil {
		out.Rollout = &v1alpha1.RolloutOptions{Approval: v1alpha1.ApprovalAutomatic}
	}

	if out.Drift == "" && exception.Drift != "" {
		out.Drift = v1alpha1.DriftReport
	}

	return out
}

func (t topology) nodeOptions() v1alpha1.NodeOptions {
	var out v1alpha1.NodeOptions

	c := t.cluster.Spec.TalosConfig
	if c == nil {
		return out
	}

	if i := c.Install; i != nil {
		out.Install = &v1alpha1.InstallOptions{
			Disk: i.Disk, Image: i.Image, Bootloader: i.Bootloader, Wipe: i.Wipe, ExtraKernelArgs: i.ExtraKernelArgs,
			ImageOptions: i.ImageOptions,
		}
	}

	if c.Machine != nil {
		out.Registries = c.Machine.Registries
	}

	if c.Machine != nil && c.Machine.Kubelet != nil {
		out.Kubelet = &v1alpha1.KubeletOptions{Image: c.Machine.Kubelet.Image, ExtraArgs: c.Machine.Kubelet.ExtraArgs}
	}

	return out
}

func (t topology) bootstrapSecretsName() string { return t.name + "-bootstrap-secrets" }

// bootstrapSecrets returns the key material that is inline in the spec; nil if there is none.
func (t topology) bootstrapSecrets() map[string][]byte {
	c := t.cluster.Spec.TalosConfig
	if c == nil || c.Machine == nil {
		return nil
	}

	out := map[string][]byte{}
	if c.Machine.Token != "" {
		out["token"] = []byte(c.Machine.Token)
	}

	if ca := c.Machine.CA; ca != nil && ca.Crt+ca.Key != "" {
		out["ca.crt"], out["ca.key"] = validation.PEM(ca.Crt), validation.PEM(ca.Key)
	}

	if len(out) == 0 {
		return nil
	}

	return out
}

func (t topology) owner() string {
	return fmt.Sprintf("%s/%s\n", t.cluster.Namespace, t.cluster.Name)
}
