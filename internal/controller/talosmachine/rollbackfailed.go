package talosmachine

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// rollBackFailed requests the rollback of a machine that booted another Talos and did not become healthy, as a user
// would: the annotation stays, so that the machine is not upgraded to the same again by itself.
func (r *Reconciler) rollBackFailed(ctx context.Context, s *scope) (ctrl.Result, error) {
	o, c := s.controlPlane.Spec.Upgrade, s.machine.Status.Change

	if o == nil || o.Rollback != v1alpha1.RollbackAutomatic || s.keeps() || s.systems == nil ||
		s.facts == nil || // a node of which nothing is known is not unhealthy
		!change.MustRollBack(r.systemInput(s), s.answersSince(), s.machine.Annotations[v1alpha1.RevertAnnotation]) {
		return ctrl.Result{}, nil
	}

	if s.systems.refused = s.systems.cannotRevert(s.machine); s.systems.refused != "" {
		s.systems.reverting = true

		return ctrl.Result{}, nil
	}

	if err := r.claim(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	base := s.machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&s.machine.ObjectMeta, v1alpha1.RevertAnnotation, c.Target)

	if err := r.Client.Patch(ctx, s.machine, client.MergeFrom(base)); err != nil {
		return ctrl.Result{}, fmt.Errorf("requesting the rollback of %s: %w", s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeWarning, v1alpha1.ReasonChangeFailed, "Rollback",
		"Rolling back to Talos %s: it did not become healthy with %s", s.machine.Status.PreviousSystem.TalosVersion, c.Image)

	return ctrl.Result{}, nil
}

// answersSince returns since when the machine has been reachable; zero if it is not known to be.
func (s *scope) answersSince() time.Time {
	c := meta.FindStatusCondition(s.machine.Status.Conditions, v1alpha1.ConditionReachable)
	if c == nil || c.Status != metav1.ConditionTrue {
		return time.Time{}
	}

	return c.LastTransitionTime.Time
}
