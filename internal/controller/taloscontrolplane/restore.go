package taloscontrolplane

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/plan"
)

// leaveToRestore lets nobody but a restore touch the nodes while one works on the cluster. It is recorded in the state,
// and every disruption begins with a write of the state, which fails when the record came in between.
func (r *Reconciler) leaveToRestore(ctx context.Context, s *scope) (ctrl.Result, error) {
	restore := s.held.State.Runtime.Restore
	if restore == nil {
		return ctrl.Result{}, nil
	}

	d := plan.Bootstrap(r.bootstrapRecord(s), s.nodes)
	s.bootstrap = &d

	waiting := failure.Waiting(v1alpha1.ReasonRestoring,
		fmt.Sprintf("TalosEtcdRestore %s works on the cluster", restore.Name), pollEvidence)
	if !s.etcd.Quorum {
		return ctrl.Result{}, waiting
	}

	if _, err := r.ensureKubeconfig(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if _, err := r.askAPI(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, waiting
}

// awaitRestore keeps a new PKI from a cluster that is to be brought back from a backup. It reads live: the restore may
// have been made a moment ago.
func (r *Reconciler) awaitRestore(ctx context.Context, s *scope) error {
	list := &v1alpha1.TalosEtcdRestoreList{}
	if err := r.Reader.List(ctx, list, client.InNamespace(s.cp.Namespace)); err != nil {
		return fmt.Errorf("looking for restores of %s: %w", s.cp.Name, err)
	}

	for i := range list.Items {
		if restore := &list.Items[i]; restore.Spec.ControlPlaneRef.Name == s.cp.Name {
			return failure.Waiting(v1alpha1.ReasonRestoring, fmt.Sprintf("waiting for TalosEtcdRestore %s to bring the PKI "+
				"from a backup; delete it to begin with a new one", restore.Name), r.Resync)
		}
	}

	return nil
}

// byRestore wakes the control plane that a restore names.
func byRestore(_ context.Context, o client.Object) []reconcile.Request {
	restore, ok := o.(*v1alpha1.TalosEtcdRestore)
	if !ok {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: restore.Namespace, Name: restore.Spec.ControlPlaneRef.Name,
	}}}
}
