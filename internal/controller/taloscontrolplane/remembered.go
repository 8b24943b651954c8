package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// decideBootstrap decides about the bootstrap of etcd. Machines that are recorded but not listed are queried only if a
// node would be bootstrapped: usually there are none, or etcd runs.
func (r *Reconciler) decideBootstrap(ctx context.Context, s *scope) (safety.BootstrapDecision, error) {
	rec := r.bootstrapRecord(s)

	d := safety.Bootstrap(rec, s.nodes)
	if d.Action != safety.BootstrapNode {
		return d, nil
	}

	others, err := r.askRemembered(ctx, s)
	if err != nil || len(others) == 0 {
		return d, err
	}

	return safety.Bootstrap(rec, append(slices.Clone(s.nodes), others...)), nil
}

// askRemembered queries the control-plane machines that were configured once and are not listed now: the objects may
// have been deleted and applied again with another list, or come from an older backup. The disks of these machines are
// not affected by that.
func (r *Reconciler) askRemembered(ctx context.Context, s *scope) ([]safety.Node, error) {
	remembered, err := r.remembered(ctx, s)
	if err != nil {
		return nil, err
	}

	var machines []v1alpha1.TalosMachine

	// The connections have separate keys: another control plane's machine may have the same name by now.
	place := s.key().String()

	for _, n := range remembered {
		if m := s.held.State.Runtime.Machines[n.Name]; m.ConfiguredAt != nil || m.Imported {
			machines = append(machines, v1alpha1.TalosMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: place, Name: n.Name},
				Spec:       v1alpha1.TalosMachineSpec{Address: n.Address, Role: v1alpha1.RoleControlPlane},
			})
		}
	}

	nodes := r.source(s).Collect(ctx, machines)

	for i := range nodes {
		nodes[i].Unlisted, nodes[i].EverConfigured = true, true

		r.Nodes.Drop(place + "/" + nodes[i].Name)
	}

	return nodes, ctx.Err()
}

// forgetNamed drops the records of machines that the annotation declares wiped or destroyed. Only control-plane
// machines that are recorded but not listed can be forgotten: the entry of a machine in use, including workers,
// identifies its hardware. A machine that still has its object, because it is being removed, is forgotten if it is
// unreachable.
func (r *Reconciler) forgetNamed(ctx context.Context, s *scope) error {
	value, ok := s.cp.Annotations[v1alpha1.ForgetMachinesAnnotation]
	if !ok {
		return nil
	}

	remembered, err := r.remembered(ctx, s)
	if err != nil {
		return err
	}

	var forgotten, refused []string

	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)

		switch m, known := s.held.State.Runtime.Machines[name]; {
		case slices.ContainsFunc(remembered, func(n safety.Node) bool { return n.Name == name }):
			delete(s.held.State.Runtime.Machines, name)
		case known && s.isDepartingSilently(name):
			m.Forgotten = true
			s.held.State.Runtime.Machines[name] = m
		default:
			refused = append(refused, name)

			continue
		}

		forgotten = append(forgotten, name)
	}

	s.noteDeparting()

	if len(forgotten) > 0 {
		if err := r.States.Update(ctx, s.held); err != nil {
			return fmt.Errorf("forgetting %s: %w", strings.Join(forgotten, ", "), err)
		}

		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeNormal, v1alpha1.ReasonMachinesForgotten, "Forget",
			"Forgot %s: declared wiped or destroyed", strings.Join(forgotten, ", "))
	}

	if len(refused) > 0 {
		r.Recorder.Eventf(s.cp, nil, corev1.EventTypeWarning, v1alpha1.ReasonMachinesForgotten, "Forget",
			"Did not forget %s: not a remembered control-plane machine that is off the list", strings.Join(refused, ", "))
	}

	return kube.TakeAnnotation(ctx, r.Client, s.cp, s.base, v1alpha1.ForgetMachinesAnnotation)
}
