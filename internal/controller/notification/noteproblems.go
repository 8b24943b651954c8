package notification

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/notification"
)

// noteProblems records what was found out about addresses, and tells each problem once, however often it is met.
func (r *Reconciler) noteProblems(ctx context.Context, s *scope) error {
	var found []notification.Target

	before := s.book
	s.book = before.Follow(notifications(s.cp), r.Clock.Now())

	for _, t := range s.targets {
		problem, checked := s.problems[t.Key()]

		known := s.book[t.Key()]
		if !checked || known.Problem == problem {
			continue
		}

		known.Problem = problem
		s.book[t.Key()] = known

		if problem != "" {
			found = append(found, t)
		}
	}

	if err := r.writeBook(ctx, s, before); err != nil {
		return err
	}

	for _, t := range found {
		r.Recorder.Eventf(s.cp, secretOf(s.cp, t), corev1.EventTypeWarning, v1alpha1.ReasonNotificationAddress, "Notify",
			"%s; notifications of type %s wait until it is corrected", s.problems[t.Key()], t.Type)
	}

	return nil
}

func secretOf(cp *v1alpha1.TalosControlPlane, t notification.Target) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: cp.Namespace, Name: t.SecretRef.Name}
}
