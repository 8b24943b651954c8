package taloscontrolplane

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/plan"
)

// decideBootstrap decides about the bootstrap of etcd. Machines that are remembered and not listed are asked only where
// one would be bootstrapped: nearly always there are none, or etcd runs.
func (r *Reconciler) decideBootstrap(ctx context.Context, s *scope) (plan.BootstrapDecision, error) {
	rec := r.bootstrapRecord(s)

	d := plan.Bootstrap(rec, s.nodes)
	if d.Action != plan.BootstrapNode {
		return d, nil
	}

	others, err := r.askRemembered(ctx, s)
	if err != nil || len(others) == 0 {
		return d, err
	}

	return plan.Bootstrap(rec, append(slices.Clone(s.nodes), others...)), nil
}

// askRemembered asks the control-plane machines that ever got a config of the cluster and are not listed now: the
// objects may have been deleted and applied again with another list, or come from an older backup. Their disks know
// nothing of that.
func (r *Reconciler) askRemembered(ctx context.Context, s *scope) ([]plan.Node, error) {
	remembered, err := r.remembered(ctx, s)
	if err != nil {
		return nil, err
	}

	var machines []v1alpha1.TalosMachine

	for _, n := range remembered {
		if m := s.held.State.Runtime.Machines[n.Name]; m.ConfiguredAt != nil || m.Imported {
			machines = append(machines, v1alpha1.TalosMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.cp.Namespace, Name: n.Name},
				Spec:       v1alpha1.TalosMachineSpec{Address: n.Address, Role: v1alpha1.RoleControlPlane},
			})
		}
	}

	nodes := r.source(s).Collect(ctx, machines)

	for i := range nodes {
		nodes[i].Unlisted, nodes[i].EverConfigured = true, true

		r.Nodes.Drop(s.cp.Namespace + "/" + nodes[i].Name)
	}

	return nodes, ctx.Err()
}

// forgetNamed forgets the machines of which a person says that they are wiped or destroyed. Those that are listed stay.
func (r *Reconciler) forgetNamed(ctx context.Context, s *scope) error {
	value, ok := s.cp.Annotations[v1alpha1.ForgetMachinesAnnotation]
	if !ok {
		return nil
	}

	var forgotten, listed []string

	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)

		switch _, known := s.held.State.Runtime.Machines[name]; {
		case s.machine(name) != nil:
			listed = append(listed, name)
		case known:
			delete(s.held.State.Runtime.Machines, name)

			forgotten = append(forgotten, name)
		}
	}

	if len(forgotten) > 0 {
		if err := r.States.Update(ctx, s.held); err != nil {
			return fmt.Errorf("forgetting %s: %w", strings.Join(forgotten, ", "), err)
		}

		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonMachinesForgotten, "Forget",
			"Forgot %s: they are wiped or destroyed, as the annotation says", strings.Join(forgotten, ", "))
	}

	if len(listed) > 0 {
		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeWarning, v1alpha1.ReasonMachinesForgotten, "Forget",
			"Did not forget %s: take them off the list first", strings.Join(listed, ", "))
	}

	return r.consume(ctx, s, v1alpha1.ForgetMachinesAnnotation)
}

// consume takes an annotation off that was a person's word for one step. The state is written before.
func (r *Reconciler) consume(ctx context.Context, s *scope, annotation string) error {
	if _, ok := s.cp.Annotations[annotation]; !ok {
		return nil
	}

	without := s.cp.DeepCopy()
	delete(without.Annotations, annotation)

	err := r.Client.Patch(ctx, without, client.MergeFromWithOptions(s.cp, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("taking the annotation %s off TalosControlPlane %s: %w", annotation, s.cp.Name, err)
	}

	for _, kept := range []client.Object{s.cp, s.base} {
		kept.SetAnnotations(maps.Clone(without.Annotations))
		kept.SetResourceVersion(without.ResourceVersion)
	}

	return nil
}
