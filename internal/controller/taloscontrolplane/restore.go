package taloscontrolplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// orphans are restores that block a cluster and whose objects are gone, and when that was first observed. A restart
// loses them, which only causes a delay.
type orphans struct {
	mu   sync.Mutex
	seen map[types.NamespacedName]orphan
}

type orphan struct {
	uid   string
	since time.Time
}

func (o *orphans) forget(key types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()

	delete(o.seen, key)
}

// awaitRestore prevents the creation of a new PKI for a cluster that is about to be restored from a backup. It reads
// live, because the restore may just have been created.
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

// byRestore triggers the control plane that a restore names.
func byRestore(_ context.Context, o client.Object) []reconcile.Request {
	restore, ok := o.(*v1alpha1.TalosEtcdRestore)
	if !ok {
		return nil
	}

	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: restore.Namespace, Name: restore.Spec.ControlPlaneRef.Name,
	}}}
}
