package validation

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/extension"
	"github.com/talos-operator/talos-operator/internal/machineconfig/kernel"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/registry"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
	"github.com/talos-operator/talos-operator/internal/machineconfig/system"
	"github.com/talos-operator/talos-operator/internal/machineconfig/volume"
)

// NodeOptions checks what the machines of a group share, and what a machine has itself, apart from labels, taints and
// images. at is the path of the object that has the options. worker is true for machines that are none of a control
// plane. kubePrism is the port of KubePrism in the cluster; 0 if there is none, or if it is not known.
func NodeOptions(at string, o *v1alpha1.NodeOptions, worker bool, kubePrism int32) Failures {
	return slices.Concat(
		NodeAnnotations(at+".nodeAnnotations", o.NodeAnnotations),
		ExtensionServices(at, o.ExtensionServices),
		StaticPods(at, o.StaticPods, kubePrism),
		Kernel(at, o.Kernel, o.Sysctls, o.Sysfs),
		Volumes(at, o.Volumes),
		IngressFirewall(at, o.IngressFirewall),
		Registries(at, o.Registries),
		failuresOf(system.Check(field.NewPath(at), o.SystemOptions, worker), "correct the field"),
	)
}

// ExtensionServices checks the configuration of extension services. at is the path of the object that has them.
func ExtensionServices(at string, services []v1alpha1.ExtensionService) Failures {
	return failuresOf(extension.Check(field.NewPath(at, extension.Root), services), "correct the service")
}

// IngressFirewall checks the rules of a firewall. at is the path of the object that has it.
func IngressFirewall(at string, firewall *v1alpha1.IngressFirewall) Failures {
	return failuresOf(netconfig.CheckFirewall(field.NewPath(at, netconfig.FirewallRoot), firewall), "correct the rule")
}

// SharedNetwork checks the network configuration that machines have in common. path is that of the field; n may be nil.
func SharedNetwork(path string, n *v1alpha1.SharedNetwork) Failures {
	return failuresOf(netconfig.CheckShared(field.NewPath(path), n), "correct the field")
}

// ClusterNetwork checks how the machines of a cluster find and reach each other. at is the path of the object that has
// the fields.
func ClusterNetwork(at string, cluster netconfig.Cluster) Failures {
	return failuresOf(cluster.Check(field.NewPath(at)), "correct the field")
}

// StaticPods checks static pods. at is the path of the object that has them. kubePrism is as for NodeOptions.
func StaticPods(at string, pods []runtime.RawExtension, kubePrism int32) Failures {
	return failuresOf(staticpod.Check(field.NewPath(at, staticpod.Root), pods, kubePrism), "correct the pod")
}

// CombinedStaticPods checks the static pods that a machine gets: those of its group, and its own. at is the path of the
// machine. kubePrism is as for NodeOptions. What is wrong in one of the lists is not said again.
func CombinedStaticPods(at string, group, machine []runtime.RawExtension, kubePrism int32) Failures {
	if len(group) == 0 || len(machine) == 0 ||
		len(StaticPods(at, group, kubePrism))+len(StaticPods(at, machine, kubePrism)) > 0 {
		return nil
	}

	return StaticPods(at, staticpod.Merge(group, machine), kubePrism)
}

// Kernel checks settings of the kernel. at is the path of the object that has them.
func Kernel(at string, o *v1alpha1.KernelOptions, sysctls, sysfs map[string]string) Failures {
	return failuresOf(kernel.Check(field.NewPath(at), kernel.Of(o, sysctls, sysfs)), "correct the entry, or remove it")
}

// Registries checks where images are pulled from. at is the path of the object that says so.
func Registries(at string, registries *v1alpha1.Registries) Failures {
	return failuresOf(registry.Check(field.NewPath(at, registry.Root), registries), "correct the entry")
}

// Volumes checks the volumes of Talos. at is the path of the object that has them.
func Volumes(at string, volumes *v1alpha1.Volumes) Failures {
	return failuresOf(volume.Check(field.NewPath(at, volume.Root), volumes), "correct the volume")
}

func failuresOf(problems field.ErrorList, remedy string) Failures {
	out := make(Failures, 0, len(problems))
	for _, problem := range problems {
		out = append(out, Failure{Field: problem.Field, Problem: problem.ErrorBody(), Remedy: remedy})
	}

	return out
}
