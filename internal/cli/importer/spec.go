package importer

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/cli/exit"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
)

var machineName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

// nameNodes determines the names of the machines: the hostname of the node, if it is a valid name.
func (t *takeover) nameNodes() {
	used := map[string]int{}
	for _, n := range t.nodes {
		n.Name, _, _ = strings.Cut(n.facts.Hostname, ".")
		used[n.Name]++
	}

	next := map[v1alpha1.Role]int{}

	for _, n := range t.nodes {
		if used[n.Name] > 1 || !machineName.MatchString(n.Name) {
			n.Name = fmt.Sprintf("%s-%s-%d", t.name, n.role, next[n.role])
			next[n.role]++
		}
	}
}

// describe derives the spec from what the nodes run.
func (t *takeover) describe() error {
	var first clusterimport.Description

	for i, n := range t.controlPlane() {
		d, err := clusterimport.Describe(n.Config, n.facts.TalosVersion)
		if err != nil {
			return fmt.Errorf("the node at %s: %w", n.Address, err)
		}

		d.KubernetesVersion = n.kubernetesVersion()
		d.Contract = first.Contract

		if i == 0 {
			first = d
		}

		if conflicts := clusterimport.Conflicts(first.BundleConfig, d.BundleConfig); len(conflicts) > 0 {
			return fmt.Errorf("the control-plane nodes disagree: %s on %s", strings.Join(conflicts, "; "), n.Address)
		}
	}

	t.made = first.BundleConfig
	t.controlPlaneObject(first)
	t.workerObject()

	return nil
}

func (t *takeover) controlPlaneObject(d clusterimport.Description) {
	spec := v1alpha1.TalosControlPlaneSpec{
		TalosVersion: d.TalosVersion, KubernetesVersion: d.KubernetesVersion, Endpoint: d.Endpoint, CertSANs: d.CertSANs,
	}
	if d.ClusterName != t.name {
		spec.ClusterName = d.ClusterName
	}

	if d.AllowScheduling {
		spec.AllowSchedulingOnControlPlanes = &d.AllowScheduling
	}

	spec.Network.PodSubnets = unlessDefault(d.PodSubnets, machineconfig.DefaultPodSubnet)
	spec.Network.ServiceSubnets = unlessDefault(d.ServiceSubnets, machineconfig.DefaultServiceSubnet)

	if d.DNSDomain != machineconfig.DefaultDNSDomain {
		spec.Network.DNSDomain = d.DNSDomain
	}

	if d.CNI.Name != "" {
		spec.Network.CNI = &v1alpha1.CNI{Name: v1alpha1.CNIName(d.CNI.Name), URLs: d.CNI.URLs}
	}

	spec.NodeOptions, spec.Machines = entriesOf(t.controlPlane())

	t.cp = &v1alpha1.TalosControlPlane{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosControlPlane"},
		ObjectMeta: metav1.ObjectMeta{Namespace: t.plane.Namespace, Name: t.name}, Spec: spec,
	}
}

func (t *takeover) workerObject() {
	nodes := slices.DeleteFunc(slices.Clone(t.nodes), (*runningNode).isControlPlane)
	if len(nodes) == 0 {
		return
	}

	spec := v1alpha1.TalosWorkerSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: t.name}}
	spec.NodeOptions, spec.Machines = entriesOf(nodes)

	t.worker = &v1alpha1.TalosWorker{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosWorker"},
		ObjectMeta: metav1.ObjectMeta{Namespace: t.plane.Namespace, Name: t.name + workersSuffix}, Spec: spec,
	}
}

func unlessDefault(list []string, def string) []string {
	if slices.Equal(list, []string{def}) {
		return nil
	}

	return list
}

// entriesOf returns the machine list of a group. Options that all machines share become options of the group.
func entriesOf(nodes []*runningNode) (v1alpha1.NodeOptions, []v1alpha1.MachineEntry) {
	entries := make([]v1alpha1.MachineEntry, 0, len(nodes))

	for _, n := range nodes {
		entries = append(entries, v1alpha1.MachineEntry{Name: n.Name, Address: n.Address, NodeOptions: optionsOf(n)})
	}

	group := v1alpha1.NodeOptions{Install: &v1alpha1.InstallOptions{}, Kubelet: &v1alpha1.KubeletOptions{}}

	for _, field := range []func(*v1alpha1.NodeOptions) *string{
		func(o *v1alpha1.NodeOptions) *string { return &o.Install.Disk },
		func(o *v1alpha1.NodeOptions) *string { return &o.Install.Image },
		func(o *v1alpha1.NodeOptions) *string { return &o.Kubelet.Image },
	} {
		value := *field(&entries[0].NodeOptions)

		if slices.ContainsFunc(entries, func(e v1alpha1.MachineEntry) bool { return *field(&e.NodeOptions) != value }) {
			continue
		}

		*field(&group) = value

		for i := range entries {
			*field(&entries[i].NodeOptions) = ""
		}
	}

	dropEmpty(&group)

	for i := range entries {
		dropEmpty(&entries[i].NodeOptions)
	}

	return group, entries
}

func optionsOf(n *runningNode) v1alpha1.NodeOptions {
	out := v1alpha1.NodeOptions{Install: &v1alpha1.InstallOptions{}, Kubelet: &v1alpha1.KubeletOptions{}}

	// Both were read before, so a readable configuration either has them or not.
	if disk, err := machineconfig.InstallDisk(n.Config); err == nil && strings.HasPrefix(disk, "/dev/") {
		out.Install.Disk = disk
	}

	images, err := clusterimport.ImagesOf(n.Config)
	if err != nil {
		return out
	}

	if repository(images.Install) != machineconfig.DefaultInstallerRepository {
		out.Install.Image = images.Install
	}

	if r := repository(images.Kubelet); r != machineconfig.DefaultKubeletRepository {
		out.Kubelet.Image = r
	}

	return out
}

// repository returns an image reference without tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")

	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[:at]
	}

	return image
}

func dropEmpty(o *v1alpha1.NodeOptions) {
	if o.Install.Disk+o.Install.Image == "" {
		o.Install = nil
	}

	if o.Kubelet.Image == "" {
		o.Kubelet = nil
	}
}

// machine returns the TalosMachine that the operator will create for a node.
func (t *takeover) machine(n *runningNode) (*v1alpha1.TalosMachine, *v1alpha1.TalosWorker) {
	m := &v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.plane.Namespace, Name: n.Name},
		Spec: v1alpha1.TalosMachineSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: t.name}, Role: n.role, Address: n.Address,
		},
		Status: v1alpha1.TalosMachineStatus{InstallDisk: n.Disk},
	}

	worker := t.worker
	if n.isControlPlane() {
		worker = nil
	}

	m.Spec.NodeOptions = t.entry(n).NodeOptions

	return m, worker
}

func (t *takeover) entry(n *runningNode) *v1alpha1.MachineEntry {
	list := t.cp.Spec.Machines
	if !n.isControlPlane() {
		list = t.worker.Spec.Machines
	}

	return &list[slices.IndexFunc(list, func(e v1alpha1.MachineEntry) bool { return e.Name == n.Name })]
}

// findContract determines the version contract that the configurations were generated with.
func (t *takeover) findContract() error {
	n := t.controlPlane()[0]
	m, _ := t.machine(n)

	contract, err := clusterimport.Contract(desired.Input(desired.Sources{
		ControlPlane: t.cp, Machine: m, State: t.plainState(), Disk: m.Status.InstallDisk,
	}), n.Config)
	t.made.Contract = contract

	return err
}

func (t *takeover) plainState() *clusterstate.State {
	return clusterstate.NewState(t.material.Bundle, t.made, "")
}

// beyondSpec returns the patches that turn the configuration rendered from the spec into the live one, and the fields
// that they change.
func (t *takeover) beyondSpec(n *runningNode) (patches, fields []string, err error) {
	m, worker := t.machine(n)

	rendered, err := desired.Render(desired.Sources{
		ControlPlane: t.cp, Worker: worker, Machine: m, State: t.plainState(),
	})
	if err != nil {
		return nil, nil, err
	}

	want, _, err := machineconfig.KeepImageTags(n.Config, rendered.Bytes, machineconfig.Released{})
	if err != nil {
		return nil, nil, err
	}

	patches, err = machineconfig.DerivePatches(want, n.Config)

	var unpatchable *machineconfig.UnpatchableError
	if errors.As(err, &unpatchable) {
		return nil, nil, fmt.Errorf("machine %s cannot be taken over as it runs: %w", n.Name, unpatchable)
	}

	if err != nil {
		return nil, nil, fmt.Errorf("machine %s: %w", n.Name, err)
	}

	diff, err := machineconfig.Diff(want, n.Config)

	return patches, diff.Paths(), err
}

// longestPatch and mostPatches are the limits of a spec.
const (
	longestPatch = 65536
	mostPatches  = 64
)

// derivePatches adds the settings that the nodes have beyond the spec to the spec, unless they may be secret: those of
// all nodes to the cluster, those of a group to the group, the rest to the machine.
func (t *takeover) derivePatches() error {
	open := map[string][]string{}
	names := map[string][]string{}

	for _, n := range t.nodes {
		patches, _, err := t.beyondSpec(n)
		if err != nil {
			return err
		}

		plain, _ := machineconfig.SplitSecrets(patches)

		for _, p := range plain {
			if len(p) > longestPatch {
				continue
			}

			// The hostname is specific to each node, even if all nodes get it from the same source.
			if strings.Contains(p, "kind: HostnameConfig") {
				names[n.Name] = append(names[n.Name], p)
			} else {
				open[n.Name] = append(open[n.Name], p)
			}
		}

		open[n.Name] = slices.Clip(open[n.Name])
	}

	shared, own := machineconfig.SharedPatches(open)
	t.cp.Spec.ClusterConfigPatches = shared

	t.groupPatches(true, own, names)
	t.groupPatches(false, own, names)

	return nil
}

func (t *takeover) groupPatches(controlPlane bool, own, names map[string][]string) {
	group := map[string][]string{}

	for _, n := range t.nodes {
		if n.isControlPlane() == controlPlane {
			group[n.Name] = own[n.Name]
		}
	}

	shared, alone := machineconfig.SharedPatches(group)

	switch {
	case controlPlane:
		t.cp.Spec.ConfigPatches = shared
	case t.worker != nil:
		t.worker.Spec.ConfigPatches = shared
	}

	for _, n := range t.nodes {
		if n.isControlPlane() == controlPlane {
			t.entry(n).ConfigPatches = slices.Concat(names[n.Name], alone[n.Name])
		}
	}
}

// verify renders every machine again with all patches. The remaining differences may be secret, and the operator stores
// them in the Secret of the machine. If patches conflict, all of them are stored there.
func (t *takeover) verify() error {
	kept, err := t.keptFields()
	if err != nil {
		t.warn("the patches of the nodes do not fit together, so all of them are kept in the Secrets of the machines: %s",
			exit.Line(err))
		t.dropPatches()

		if kept, err = t.keptFields(); err != nil {
			return err
		}
	}

	t.kept = kept

	return nil
}

func (t *takeover) keptFields() (map[string][]string, error) {
	out := map[string][]string{}

	for _, n := range t.nodes {
		if len(t.entry(n).ConfigPatches) > mostPatches {
			return nil, fmt.Errorf("machine %s needs more than %d patches", n.Name, mostPatches)
		}

		_, fields, err := t.beyondSpec(n)
		if err != nil {
			return nil, err
		}

		out[n.Name] = fields
	}

	return out, nil
}

func (t *takeover) dropPatches() {
	t.cp.Spec.ClusterConfigPatches, t.cp.Spec.ConfigPatches = nil, nil
	if t.worker != nil {
		t.worker.Spec.ConfigPatches = nil
	}

	for _, n := range t.nodes {
		t.entry(n).ConfigPatches = nil
	}
}

// warnOfImages warns about nodes whose image contains more than their configuration would install.
func (t *takeover) warnOfImages() {
	for _, n := range t.nodes {
		images, err := clusterimport.ImagesOf(n.Config)
		if err != nil || n.extensions.Schematic == "" || strings.Contains(images.Install, n.extensions.Schematic) {
			continue
		}

		t.warn("machine %s runs schematic %s, and its config installs %s: set install.schematic or install.image before "+
			"you upgrade it, or it loses its extensions", n.Name, n.extensions.Schematic,
			cmp.Or(images.Install, "the default image"))
	}
}
