package talosworker

import (
	"context"
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
	"github.com/talos-operator/talos-operator/internal/validation"
)

// validate rejects an invalid spec before anything is changed.
func (r *Reconciler) validate(_ context.Context, s *scope) error {
	err := checkSpec(s.worker, &s.controlPlane.Spec, len(s.machines) == 0)
	s.valid = err == nil

	return err
}

// checkSpec is pure. The spec of a control plane that does not
// exist is empty. isNew is true for a group without machines.
func checkSpec(w *v1alpha1.TalosWorker, cp *v1alpha1.TalosControlPlaneSpec, isNew bool) error {
	spec, kubernetes := &w.Spec, cp.KubernetesVersion

	var kubePrism int32
	if kubernetes != "" {
		kubePrism = netconfig.KubePrismPort(cp.KubePrism)
	}

	failures := validation.WorkerLabels("spec.nodeLabels", spec.NodeLabels)
	failures = append(failures, validation.NodeTaints("spec.nodeTaints", spec.NodeTaints)...)
	failures = append(failures, validation.SharedNetwork("spec.machineNetwork", spec.MachineNetwork)...)
	failures = append(failures, validation.NodeOptions("spec", &spec.NodeOptions, true, kubePrism)...)

	if spec.Kubelet != nil && kubernetes != "" {
		failures = append(failures, validation.KubeletImage("spec.kubelet.image", spec.Kubelet.Image, kubernetes)...)
	}

	for field, m := range remediation.Listed(spec.Machines, spec.Spares) {
		failures = append(failures, validation.WorkerLabels(field+".nodeLabels", m.NodeLabels)...)
		failures = append(failures, validation.NodeTaints(field+".nodeTaints", m.NodeTaints)...)
		failures = append(failures, validation.NodeOptions(field, &m.NodeOptions, true, kubePrism)...)
		failures = append(failures, validation.CombinedStaticPods(field, spec.StaticPods, m.StaticPods, kubePrism)...)
	}

	// A group that runs is not stopped by it: only a machine whose image there is not gets no other configuration.
	if isNew {
		failures = append(failures, validation.Images(cp.TalosVersion,
			fmt.Sprintf("TalosControlPlane %s: spec.clusterImage", spec.ControlPlaneRef.Name), cp.ClusterImage, spec.Install,
			remediation.Listed(spec.Machines, spec.Spares))...)
	}

	if err := append(failures, remediation.Check(spec.Machines, spec.Spares)...).Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidSpec, err.Error(), nil)
	}

	if err := checkRollout("spec.rollout", spec.Rollout); err != nil {
		return err
	}

	patches := validation.Patches(
		[3]string{"", "spec.configPatches", ""},
		machineconfig.Patches{Group: spec.ConfigPatches},
	)
	if err := patches.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidPatch, err.Error(), nil)
	}

	return nil
}
