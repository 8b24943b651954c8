package spec

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterimport"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// paused is the value of the annotation: a person reads the objects, and removes it.
const paused = "true"

// mostWorkers is how many machines a TalosWorker may have.
const mostWorkers = 600

// name gives each machine the name of its host, up to the first dot, where that is a name of a TalosMachine.
func (b *builder) name() error {
	if b.Name == "" {
		b.Name = b.fleet.Config.ClusterName
	}

	if !hostname.MatchString(b.Name) {
		return fmt.Errorf("%q is no name of a TalosControlPlane: at most 63 lower-case letters, digits and -; choose "+
			"another with --name", b.Name)
	}

	used, next := map[string]int{}, map[v1alpha1.Role]int{}

	for _, n := range b.nodes {
		n.name, _, _ = strings.Cut(n.Hostname, ".")
		used[n.name]++
	}

	for _, n := range b.nodes {
		if used[n.name] > 1 || !hostname.MatchString(n.name) {
			n.name = fmt.Sprintf("%s-%s-%d", b.Name, n.role(), next[n.role()])
			next[n.role()]++
		}
	}

	return nil
}

func (b *builder) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: b.Namespace, Name: name, Annotations: map[string]string{v1alpha1.PausedAnnotation: paused},
	}
}

// describe derives the control plane from the machine configs: patches may have changed what the talconfig.yaml says.
func (b *builder) describe() error {
	first, err := b.description()
	if err != nil {
		return err
	}

	cp := &v1alpha1.TalosControlPlane{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosControlPlane"},
		ObjectMeta: b.meta(b.Name),
	}
	b.out.ControlPlane = cp

	spec := &cp.Spec
	spec.TalosVersion, spec.KubernetesVersion = first.TalosVersion, first.KubernetesVersion
	spec.Endpoint, spec.CertSANs = first.Endpoint, first.CertSANs
	spec.Network.PodSubnets = unlessDefault(first.PodSubnets, machineconfig.DefaultPodSubnet)
	spec.Network.ServiceSubnets = unlessDefault(first.ServiceSubnets, machineconfig.DefaultServiceSubnet)

	if first.ClusterName != b.Name {
		spec.ClusterName = first.ClusterName
	}

	if first.AllowScheduling {
		spec.AllowSchedulingOnControlPlanes = &first.AllowScheduling
	}

	if first.DNSDomain != machineconfig.DefaultDNSDomain {
		spec.Network.DNSDomain = first.DNSDomain
	}

	if cni := first.CNI; cni.Name != "" && isOpen(cni.URLs...) {
		spec.Network.CNI = &v1alpha1.CNI{Name: v1alpha1.CNIName(cni.Name), URLs: cni.URLs}
	}

	made := desired.BundleConfig(cp)
	made.KubePrism = "" // patches of the talconfig.yaml may have given it another address

	b.state = clusterstate.NewState(b.Bundle, made, "")

	return nil
}

// description is what all control planes agree on.
func (b *builder) description() (clusterimport.Description, error) {
	var first clusterimport.Description

	isFirst := true

	for _, n := range b.nodes {
		if !n.ControlPlane {
			continue
		}

		d, err := clusterimport.Describe(n.config, b.fleet.Config.Version())
		if err != nil {
			return first, n.failure(err)
		}

		d.KubernetesVersion = "v" + strings.TrimPrefix(b.fleet.Config.KubernetesVersion, "v")

		if isFirst {
			first, isFirst = d, false
		}

		if conflicts := clusterimport.Conflicts(first.BundleConfig, d.BundleConfig); len(conflicts) > 0 {
			return first, n.failure(fmt.Errorf("patches make the control planes disagree: %s", strings.Join(conflicts, "; ")))
		}
	}

	return first, nil
}

func unlessDefault(list []string, fallback string) []string {
	if slices.Equal(list, []string{fallback}) {
		return nil
	}

	return list
}

// group puts the machines into the control plane and into groups of workers.
func (b *builder) group() error {
	var (
		groups   = map[*v1alpha1.TalosWorker][]v1alpha1.MachineEntry{}
		worker   *v1alpha1.TalosWorker
		problems []error
	)

	for _, n := range b.nodes {
		entry, err := b.entryOf(n)
		problems = append(problems, err)

		if !n.ControlPlane {
			if worker == nil || len(groups[worker]) == mostWorkers {
				worker = b.newWorker()
			}

			n.worker = worker
		}

		groups[n.worker] = append(groups[n.worker], entry)
	}

	if err := errors.Join(problems...); err != nil {
		return err
	}

	for worker, entries := range groups {
		cp := &b.out.ControlPlane.Spec

		list, options, network := &cp.Machines, &cp.NodeOptions, &cp.MachineNetwork
		if worker != nil {
			list, options, network = &worker.Spec.Machines, &worker.Spec.NodeOptions, &worker.Spec.MachineNetwork
		}

		hoist(options, entries)
		*network = shareNetwork(entries)
		*list = entries
	}

	for _, n := range b.nodes {
		list := b.out.ControlPlane.Spec.Machines
		if n.worker != nil {
			list = n.worker.Spec.Machines
		}

		n.entry = &list[slices.IndexFunc(list, func(e v1alpha1.MachineEntry) bool { return e.Name == n.name })]
	}

	return b.validate()
}

func (b *builder) newWorker() *v1alpha1.TalosWorker {
	name := b.Name + "-workers"
	if next := len(b.out.Workers) + 1; next > 1 {
		name = fmt.Sprintf("%s-%d", name, next)
	}

	worker := &v1alpha1.TalosWorker{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TalosWorker"},
		ObjectMeta: b.meta(name),
		Spec:       v1alpha1.TalosWorkerSpec{ControlPlaneRef: v1alpha1.ObjectReference{Name: b.Name}},
	}
	b.out.Workers = append(b.out.Workers, worker)

	return worker
}

// validate says what the operator would refuse in the objects.
func (b *builder) validate() error {
	spec := &b.out.ControlPlane.Spec

	failures := validation.SpecVersions.Versions(spec.TalosVersion, spec.KubernetesVersion)
	failures = append(failures, validation.Endpoint("spec.endpoint", spec.Endpoint)...)
	failures = append(failures, validation.ControlPlaneReplicas("spec.machines", len(spec.Machines))...)
	failures = append(failures, validation.DNSDomain("spec.network.dnsDomain", spec.Network.DNSDomain)...)
	failures = append(failures, validation.CertSANs("spec.certSANs", spec.CertSANs)...)

	return failures.Err()
}

// parts are the settings that a group has for its machines where all of them have the same. take moves one.
var parts = []func(from, into *v1alpha1.NodeOptions){
	func(from, into *v1alpha1.NodeOptions) {
		into.Install.Disk, into.Install.DiskSelector = from.Install.Disk, from.Install.DiskSelector
		from.Install.Disk, from.Install.DiskSelector = "", nil
	},
	func(from, into *v1alpha1.NodeOptions) {
		into.Install.Image, into.Install.ImageOptions = from.Install.Image, from.Install.ImageOptions
		from.Install.Image, from.Install.ImageOptions = "", v1alpha1.ImageOptions{}
	},
	func(from, into *v1alpha1.NodeOptions) {
		into.Install.Wipe, into.Install.ExtraKernelArgs = from.Install.Wipe, from.Install.ExtraKernelArgs
		from.Install.Wipe, from.Install.ExtraKernelArgs = nil, nil
	},
	func(from, into *v1alpha1.NodeOptions) { into.NodeLabels, from.NodeLabels = from.NodeLabels, nil },
	func(from, into *v1alpha1.NodeOptions) {
		into.NodeAnnotations, from.NodeAnnotations = from.NodeAnnotations, nil
	},
	func(from, into *v1alpha1.NodeOptions) { into.NodeTaints, from.NodeTaints = from.NodeTaints, nil },
}

func hoist(group *v1alpha1.NodeOptions, entries []v1alpha1.MachineEntry) {
	group.Install = &v1alpha1.InstallOptions{}

	for _, take := range parts {
		own := make([]v1alpha1.NodeOptions, len(entries))
		isShared := true

		for i := range entries {
			own[i].Install = &v1alpha1.InstallOptions{}
			take(&entries[i].NodeOptions, &own[i])
			isShared = isShared && reflect.DeepEqual(own[i], own[0])
		}

		if isShared {
			take(&own[0], group)

			continue
		}

		for i := range entries {
			take(&own[i], &entries[i].NodeOptions)
		}
	}

	dropEmpty(group)

	for i := range entries {
		dropEmpty(&entries[i].NodeOptions)
	}
}

func dropEmpty(o *v1alpha1.NodeOptions) {
	if reflect.ValueOf(*o.Install).IsZero() {
		o.Install = nil
	}
}
