package kubernetescluster

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/metrics"
)

// ensureMachines creates and updates the Machines, and deletes those above the replicas once their nodes are removed
// from the cluster.
func (r *Reconciler) ensureMachines(ctx context.Context, s *scope) error {
	s.tried = true

	wanted := s.machines()
	for _, m := range wanted {
		if s.created = r.ensureMachine(ctx, s, m); s.created != nil {
			return s.created
		}
	}

	for _, m := range s.have {
		if !slices.ContainsFunc(wanted, func(w *vitistackv1alpha1.Machine) bool { return w.Name == m.Name }) {
			s.extra = append(s.extra, m.Name)
		}
	}

	slices.Sort(s.extra)

	return r.releaseExtra(ctx, s)
}

func (r *Reconciler) ensureMachine(ctx context.Context, s *scope, want *vitistackv1alpha1.Machine) error {
	if err := controllerutil.SetControllerReference(s.cluster, want, r.Client.Scheme()); err != nil {
		return failure.Terminal(vitistackv1alpha1.ReasonOwnerReferenceError, "setting the owner of Machine "+want.Name, err)
	}

	i := slices.IndexFunc(s.have, func(m vitistackv1alpha1.Machine) bool { return m.Name == want.Name })
	if i >= 0 && equality.Semantic.DeepEqual(s.have[i].Spec, want.Spec) &&
		kube.EqualLabels(s.have[i].Labels, want.Labels) {
		return nil
	}

	if i < 0 {
		if err := r.refuseForeign(ctx, s, &vitistackv1alpha1.Machine{}, want.Name); err != nil {
			return err
		}
	}

	if err := kube.Apply(ctx, r.Client, want); err != nil {
		return failure.Transient(vitistackv1alpha1.ReasonMachineCreationError,
			fmt.Sprintf("Machine %s could not be written: %s; trying again",
				want.Name, kube.Cause(err)), err)
	}

	if i < 0 {
		metrics.Machines.WithLabelValues(s.name, want.Labels[vitistackv1alpha1.RoleLabel]).Inc()
		ctrl.LoggerFrom(ctx).Info("Successfully created machine", "machine", want.Name)
	}

	return nil
}
