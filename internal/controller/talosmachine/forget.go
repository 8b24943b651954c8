package talosmachine

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// forgetAdopted drops the adopted changes of the machine at the request of a user: the resulting difference to the live
// configuration is planned like any other change. The annotation is removed last, so that a crash in between starts
// over.
func (r *Reconciler) forgetAdopted(ctx context.Context, s *scope) error {
	if !kube.AnnotationTrue(s.machine, v1alpha1.ForgetAdoptedAnnotation) || s.paused {
		return nil
	}

	stored, err := r.Configs.Load(ctx, s.machine)
	if err != nil {
		return err
	}

	if len(stored.Adopted) > 0 {
		stored.Adopted = nil

		if err := r.Configs.Save(ctx, s.machine, stored); err != nil {
			return err
		}
	}

	s.machine.Status.AdoptedFields = nil

	if err := kube.PatchStatus(ctx, r.Client, s.machine, s.base); err != nil {
		return err
	}

	base := s.machine.DeepCopy()
	delete(s.machine.Annotations, v1alpha1.ForgetAdoptedAnnotation)

	if err := r.Client.Patch(ctx, s.machine, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("removing the annotation %s from TalosMachine %s: %w", v1alpha1.ForgetAdoptedAnnotation,
			s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()

	return nil
}
