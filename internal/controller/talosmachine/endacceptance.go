package talosmachine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// endAcceptance removes the confirmation of a machine without a UUID once that runs under the PKI of the cluster:
// nothing tells it from the next one without a UUID, which would get the keys of the cluster by it.
func (r *Reconciler) endAcceptance(ctx context.Context, s *scope) (ctrl.Result, error) {
	joined := s.answer == talos.StateMember && s.facts != nil && s.facts.UUID == "" && s.everConfigured() && s.uuid() == ""
	if !joined || s.machine.Annotations[v1alpha1.AcceptMachineAnnotation] != v1alpha1.AcceptNoUUID {
		return ctrl.Result{}, nil
	}

	return ctrl.Result{}, kube.TakeAnnotation(ctx, r.Client, s.machine, s.base, v1alpha1.AcceptMachineAnnotation)
}
