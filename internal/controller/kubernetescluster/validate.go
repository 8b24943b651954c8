package kubernetescluster

import (
	"context"
	"fmt"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/validation"
)

func (r *Reconciler) validate(_ context.Context, s *scope) error {
	err := s.check(r.Clock.Now())
	valid := err == nil
	s.valid = &valid

	if err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonValidationError, err.Error(), nil)
	}

	return nil
}

// check checks a cluster against all rules that need no other object. It is pure.
func (t topology) check(now time.Time) error {
	spec := &t.cluster.Spec

	failures := validation.SpecVersions.Versions(spec.TalosVersion, spec.KubernetesVersion)
	failures = append(failures, validation.Endpoint("spec.clusterEndpoint", t.endpoint())...)
	failures = append(failures,
		validation.ControlPlaneReplicas("spec.controlPlane.replicas", int(spec.ControlPlane.Replicas))...)
	failures = append(failures, validation.MachineNames(t.name, t.groups())...)
	failures = append(failures, t.subnets().Check()...)
	failures = append(failures, t.contradictions()...)
	failures = append(failures, t.material(now)...)
	failures = append(failures, t.templates()...)
	failures = append(failures, t.policies()...)
	failures = append(failures, t.patches()...)
	failures = append(failures, t.machineNetwork()...)
	failures = append(failures, hook.Check("spec.upgrade", spec.Upgrade)...)

	return failures.Err()
}

func (t topology) groups() []validation.Group {
	spec := &t.cluster.Spec
	out := []validation.Group{{
		Field: "spec.controlPlane", Name: validation.ControlPlaneGroup,
		Replicas: int(spec.ControlPlane.Replicas + spec.ControlPlane.Spares),
	}}

	for i, g := range spec.Workers {
		out = append(out, validation.Group{
			Field: fmt.Sprintf("spec.workers[%d]", i), Name: g.Name, Replicas: int(g.Replicas + g.Spares),
		})
	}

	return out
}

// policies checks the maintenance windows of the cluster and of its groups, and the checks of its upgrades.
func (t topology) policies() validation.Failures {
	spec := &t.cluster.Spec
	out := append(checkRollout("spec.rollout", spec.Rollout),
		checkRollout("spec.controlPlane.rollout", spec.ControlPlane.Rollout)...)
	out = append(out, validation.UpgradeChecks("spec.upgrade.checks", spec.Upgrade)...)

	for i := range spec.Workers {
		out = append(out, checkRollout(fmt.Sprintf("spec.workers[%d].rollout", i), spec.Workers[i].Rollout)...)
	}

	if err := rollout.ValidateUpgrade(spec.Upgrade); err != nil {
		out = append(out, validation.Failure{
			Field: "spec.upgrade", Problem: "cannot be followed: " + err.Error(), Remedy: "correct the selector",
		})
	}

	return out
}

func checkRollout(field string, o *v1alpha1.RolloutOptions) validation.Failures {
	err := rollout.Validate(o)
	if err == nil {
		return nil
	}

	return validation.Failures{{
		Field: field, Problem: "cannot be followed: " + err.Error(), Remedy: "correct the maintenance windows",
	}}
}

// patches checks the patches that all machines share.
func (t topology) patches() validation.Failures {
	c := t.cluster.Spec.TalosConfig
	if c == nil {
		return nil
	}

	return validation.Patches([3]string{"spec.talosConfig.configPatches", "", ""},
		machineconfig.Patches{Cluster: c.ConfigPatches})
}

// machineNetwork checks how the machines find and reach each other.
func (t topology) machineNetwork() validation.Failures {
	c := t.cluster.Spec.TalosConfig
	if c == nil || c.Cluster == nil {
		return nil
	}

	return validation.ClusterNetwork("spec.talosConfig.cluster", netconfig.Cluster{
		KubeSpan: c.Cluster.KubeSpan, KubePrism: c.Cluster.KubePrism, Discovery: c.Cluster.Discovery,
		Kubernetes: t.cluster.Spec.KubernetesVersion,
	})
}

// kubePrism is the load balancer for the Kubernetes API on each machine; nil for the default.
func (t topology) kubePrism() *v1alpha1.KubePrism {
	if c := t.cluster.Spec.TalosConfig; c != nil && c.Cluster != nil {
		return c.Cluster.KubePrism
	}

	return nil
}

func (t topology) subnets() validation.ClusterSubnets {
	n := t.network()

	return validation.ClusterSubnets{
		PodsField: "spec.podSubnets", ServicesField: "spec.serviceSubnets",
		Pods: n.PodSubnets, Services: n.ServiceSubnets,
	}
}

// contradictions finds values that the API has in two fields and that differ.
func (t topology) contradictions() validation.Failures {
	var out validation.Failures

	differ := func(field, other, a, b string) {
		if a != "" && b != "" && a != b {
			out = append(out, validation.Failure{
				Field: field, Problem: fmt.Sprintf("is %q, and %s is %q", a, other, b), Remedy: "set one of them, or both alike",
			})
		}
	}

	differ("spec.talosConfig.cluster.controlPlane.endpoint", "spec.clusterEndpoint",
		inlineEndpoint(t.cluster), t.cluster.Spec.ClusterEndpoint)
	differ("spec.talosConfig.cluster.name", "spec.clusterName", t.cluster.InlineClusterName(),
		t.cluster.Spec.ClusterName)

	return out
}

func (t topology) material(now time.Time) validation.Failures {
	c := t.cluster.Spec.TalosConfig
	if c == nil || c.Machine == nil {
		return nil
	}

	out := validation.MachineToken("spec.talosConfig.machine.token", c.Machine.Token)
	if ca := c.Machine.CA; ca != nil {
		out = append(out, validation.CertificateAuthority("spec.talosConfig.machine.ca", ca.Crt, ca.Key, now)...)
	}

	out = append(out, validation.CertSANs("spec.talosConfig.machine.certSANs", c.Machine.CertSANs)...)
	out = append(out, validation.Registries("spec.talosConfig.machine", c.Machine.Registries)...)
	out = append(out, validation.SharedNetwork("spec.talosConfig.machine.network", c.Machine.Network)...)

	if k := c.Machine.Kubelet; k != nil {
		out = append(out, validation.KubeletImage("spec.talosConfig.machine.kubelet.image", k.Image,
			t.cluster.Spec.KubernetesVersion)...)
	}

	return out
}

// templates checks the machine templates; static addresses are checked across all groups.
func (t topology) templates() validation.Failures {
	spec := &t.cluster.Spec

	out, claims := t.template("spec.controlPlane.machineTemplate.spec", spec.ControlPlane.MachineTemplate.Spec,
		spec.ControlPlane.Replicas+spec.ControlPlane.Spares, false)

	for i, g := range spec.Workers {
		more, owned := t.template(
			fmt.Sprintf("spec.workers[%d].machineTemplate.spec", i),
			g.MachineTemplate.Spec,
			g.Replicas+g.Spares,
			true,
		)
		out = append(out, more...)
		claims = append(claims, owned...)
	}

	return append(out, validation.Addresses(claims)...)
}

func (t topology) template(field string, m vitistackv1alpha1.MachineSpec, machines int32, worker bool,
) (validation.Failures, []validation.Claim) {
	labels := validation.NodeLabels
	if worker {
		labels = validation.WorkerLabels
	}

	out := labels(field+".nodeLabels", m.NodeLabels)
	out = append(out, validation.NodeTaints(field+".nodeTaints", m.NodeTaints)...)
	options := optionsOf(&m)
	out = append(out, validation.NodeOptions(field, &options, worker, netconfig.KubePrismPort(t.kubePrism()))...)
	out = append(out, validation.Patches([3]string{"", "", field + ".configPatches"},
		machineconfig.Patches{Machine: m.ConfigPatches})...)

	if m.Provider.Name == vitistackv1alpha1.ProviderStatic && len(m.Provider.Addresses) < int(machines) {
		out = append(out, validation.Failure{
			Field:   field + ".provider.addresses",
			Problem: fmt.Sprintf("has %d addresses for %d machines", len(m.Provider.Addresses), machines),
			Remedy:  "list one address for each replica and each spare",
		})
	}

	claims := make([]validation.Claim, 0, len(m.Provider.Addresses))
	for i, a := range m.Provider.Addresses {
		claims = append(claims, validation.Claim{
			Owner: fmt.Sprintf("%s[%d]", field, i), Field: fmt.Sprintf("%s.provider.addresses[%d]", field, i), Address: a,
		})
	}

	return out, claims
}
