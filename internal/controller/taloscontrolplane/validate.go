package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"net/url"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/desired"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// validate rejects an invalid spec before anything is changed. The CEL rules of the CRD already check most of it.
func (r *Reconciler) validate(ctx context.Context, s *scope) (ctrl.Result, error) {
	check := func() error { return checkSpec(s.cp, s.held.State.BundleConfig, s.cp.Status.ObservedKubeVersion) }

	err := check()
	if failure.Reason(err) != v1alpha1.ReasonDowngradeRefused {
		return ctrl.Result{}, err
	}

	if moved, merr := r.versionMoved(ctx, s); merr != nil {
		return ctrl.Result{}, merr
	} else if moved {
		err = check()
	}

	return ctrl.Result{}, err
}

// versionMoved queries the Kubernetes version that the cluster runs now, and reports whether it differs from the last
// observed one. Otherwise an outdated observation would reject a spec forever, because no reconciliation gets past the
// rejection to observe another version.
func (r *Reconciler) versionMoved(ctx context.Context, s *scope) (bool, error) {
	machines, err := machineset.List(ctx, r.Client, s.cp)
	if err != nil {
		return false, err
	}

	version, err := r.Workloads.Version(ctx, s.held.State.Bundle, evidence.Addresses(machines))
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("No API server tells which version a refused spec has to follow", "error", err.Error())

		return false, nil
	}

	moved := version != s.cp.Status.ObservedKubeVersion
	s.cp.Status.ObservedKubeVersion = version

	return moved, nil
}

// checkSpec is pure. made are the parameters that the cluster was created with.
func checkSpec(cp *v1alpha1.TalosControlPlane, made clusterstate.BundleConfig, runningKubernetes string) error {
	spec := &cp.Spec

	if err := validation.SpecVersions.Versions(spec.TalosVersion, spec.KubernetesVersion).Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonUnsupportedVersion, err.Error(), nil)
	}

	if err := checkChanges(cp, made, runningKubernetes); err != nil {
		return err
	}

	failures := validation.Endpoint("spec.endpoint", spec.Endpoint)
	failures = append(failures, validation.ControlPlaneReplicas("spec.machines", len(spec.Machines))...)
	failures = append(failures, validation.DNSDomain("spec.network.dnsDomain", spec.Network.DNSDomain)...)
	failures = append(failures, validation.CertSANs("spec.certSANs", spec.CertSANs)...)
	failures = append(failures, subnets(spec).Check()...)
	failures = append(failures, validation.ClusterNetwork("spec", netconfig.Cluster{
		KubeSpan: spec.KubeSpan, KubePrism: spec.KubePrism, Discovery: spec.Discovery, Kubernetes: spec.KubernetesVersion,
		Talos: spec.TalosVersion,
	})...)
	failures = append(failures, validation.SharedNetwork("spec.machineNetwork", spec.MachineNetwork)...)
	failures = append(failures, checkNodeOptions("spec", &spec.NodeOptions, spec)...)
	failures = append(failures, checkMachines(spec)...)

	// A cluster that runs is not stopped by it: only a machine whose network cannot work, or whose image is impossible,
	// gets no other configuration.
	if made.TalosVersion == "" {
		failures = append(failures, validation.Images(spec.TalosVersion, "spec.clusterImage", spec.ClusterImage, spec.Install,
			remediation.Listed(spec.Machines, spec.Spares))...)
		patched := len(spec.ClusterConfigPatches)+len(spec.ConfigPatches)+
			len(spec.ClusterConfigPatchesFrom)+len(spec.ConfigPatchesFrom) > 0
		failures = append(failures, validation.MachineNetworks(remediation.Listed(spec.Machines, spec.Spares), patched)...)
	}

	failures = append(failures, validation.UpgradeChecks("spec.upgrade.checks", spec.Upgrade)...)
	failures = append(failures, hook.Check("spec.upgrade", spec.Upgrade)...)

	if err := failures.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidSpec, err.Error(), nil)
	}

	if err := rollout.Validate(spec.Rollout); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidSpec, "spec.rollout."+err.Error(), err)
	}

	if err := rollout.ValidateUpgrade(spec.Upgrade); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidSpec, "spec.upgrade."+err.Error(), err)
	}

	patches := validation.Patches([3]string{"spec.clusterConfigPatches", "spec.configPatches", ""}, machineconfig.Patches{
		Cluster: spec.ClusterConfigPatches, Group: spec.ConfigPatches,
	})
	if err := patches.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidPatch, err.Error(), nil)
	}

	return nil
}

// checkChanges compares the spec to the parameters that the cluster was created with, and to what it runs.
func checkChanges(cp *v1alpha1.TalosControlPlane, made clusterstate.BundleConfig, runningKubernetes string) error {
	spec := &cp.Spec

	older := validation.SpecVersions.TalosChange(made.TalosVersion, spec.TalosVersion)

	// Where upgrades are automatic, the path decides: it goes through the minors, and back while that is possible.
	if o := spec.Upgrade; o == nil || o.Kubernetes != v1alpha1.UpgradeAutomatic {
		older = append(older, validation.SpecVersions.KubernetesChange(cmp.Or(runningKubernetes, made.KubernetesVersion),
			spec.KubernetesVersion)...)
	}

	if err := older.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonDowngradeRefused, err.Error(), nil)
	}

	changed := validation.Immutable(immutable(made), immutable(desired.BundleConfig(cp)))
	if err := changed.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonImmutableField, err.Error(), nil)
	}

	return nil
}

func immutable(c clusterstate.BundleConfig) validation.Values {
	return validation.Values{
		"spec.clusterName": c.ClusterName, "spec.endpoint": c.Endpoint, "spec.network.podSubnets": c.PodSubnets,
		"spec.network.serviceSubnets": c.ServiceSubnets, "spec.network.dnsDomain": c.DNSDomain,
		"spec.kubePrism": c.KubePrism,
	}
}

func subnets(spec *v1alpha1.TalosControlPlaneSpec) validation.ClusterSubnets {
	outside := map[string]string{}

	if u, err := url.Parse(spec.Endpoint); err == nil {
		outside["spec.endpoint"] = u.Hostname()
	}

	for i, m := range spec.Machines {
		if m.Address != "" {
			outside[fmt.Sprintf("spec.machines[%d].address", i)] = m.Address
		}
	}

	return validation.ClusterSubnets{
		PodsField: "spec.network.podSubnets", ServicesField: "spec.network.serviceSubnets",
		Pods: spec.Network.PodSubnets, Services: spec.Network.ServiceSubnets, Outside: outside,
	}
}

func checkNodeOptions(
	field string, o *v1alpha1.NodeOptions, spec *v1alpha1.TalosControlPlaneSpec,
) validation.Failures {
	failures := validation.NodeLabels(field+".nodeLabels", o.NodeLabels)
	failures = append(failures, validation.NodeTaints(field+".nodeTaints", o.NodeTaints)...)
	failures = append(failures, validation.NodeOptions(field, o, false, netconfig.KubePrismPort(spec.KubePrism))...)

	if o.Kubelet != nil {
		failures = append(failures, validation.KubeletImage(field+".kubelet.image", o.Kubelet.Image,
			spec.KubernetesVersion)...)
	}

	return failures
}

func checkMachines(spec *v1alpha1.TalosControlPlaneSpec) validation.Failures {
	failures := remediation.Check(spec.Machines, spec.Spares)

	for field, m := range remediation.Listed(spec.Machines, spec.Spares) {
		failures = append(failures, checkNodeOptions(field, &m.NodeOptions, spec)...)
		failures = append(failures, validation.CombinedStaticPods(field, spec.StaticPods, m.StaticPods,
			netconfig.KubePrismPort(spec.KubePrism))...)
	}

	return failures
}
