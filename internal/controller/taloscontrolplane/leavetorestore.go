package taloscontrolplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// orphanPatience is how long a cluster remains blocked by a restore whose object is gone: a node may still be reading
// the snapshot that it received.
const orphanPatience = 10 * time.Minute

// leaveToRestore lets only the restore change nodes while it is working on the cluster. The restore is recorded in the
// state, and every disruption begins with a write of the state, which fails if the restore was recorded in the
// meantime.
func (r *Reconciler) leaveToRestore(ctx context.Context, s *scope) (ctrl.Result, error) {
	restore := s.held.State.Runtime.Restore
	if restore == nil {
		r.orphans.forget(s.key())

		return ctrl.Result{}, nil
	}

	if over, err := r.releaseOrphan(ctx, s, s.held); over || err != nil {
		return ctrl.Result{}, err
	}

	d := safety.Bootstrap(r.bootstrapRecord(s), s.nodes)
	s.bootstrap = &d

	waiting := failure.Waiting(v1alpha1.ReasonRestoring,
		fmt.Sprintf("TalosEtcdRestore %s is restoring the cluster", restore.Name), pollEvidence)
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

// leaveOrphan releases a cluster that is being deleted from a restore whose object is gone: its machines would wait for
// that restore for ever.
func (r *Reconciler) leaveOrphan(ctx context.Context, s *scope) error {
	held, err := r.States.Load(ctx, s.key())
	if err != nil {
		return ignoreUnusable(err)
	}

	if held.State.Runtime.Restore == nil {
		return nil
	}

	_, err = r.releaseOrphan(ctx, s, held)

	return err
}

// over reports whether the restore has been gone for long enough.
func (o *orphans) over(key types.NamespacedName, uid string, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()

	if o.seen == nil {
		o.seen = map[types.NamespacedName]orphan{}
	}

	if have, ok := o.seen[key]; !ok || have.uid != uid || have.since.After(now) {
		o.seen[key] = orphan{uid: uid, since: now}

		return false
	}

	return now.Sub(o.seen[key].since) >= orphanPatience
}

// releaseOrphan unblocks a cluster whose restore ended without cleanup, because its finalizer was removed manually.
// Only a live read of the API server proves that. Everything else is decided by the data on the nodes: data that the
// restore brought there is found, and without data a user is asked, as after every loss.
func (r *Reconciler) releaseOrphan(ctx context.Context, s *scope, held *clusterstate.Held) (bool, error) {
	mark := *held.State.Runtime.Restore
	o := &v1alpha1.TalosEtcdRestore{}

	err := r.Reader.Get(ctx, types.NamespacedName{Namespace: s.cp.Namespace, Name: mark.Name}, o)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading TalosEtcdRestore %s: %w", mark.Name, err)
	}

	if err == nil && string(o.UID) == mark.UID {
		r.orphans.forget(s.key())

		return false, nil
	}

	if !r.orphans.over(s.key(), mark.UID, r.Clock.Now()) {
		return false, nil
	}

	held.State.Runtime.Restore = nil
	if err := r.States.Update(ctx, held); err != nil {
		return false, fmt.Errorf("giving the cluster %s back: %w", s.cp.Name, err)
	}

	r.orphans.forget(s.key())
	r.Recorder.Eventf(s.cp, nil, corev1.EventTypeWarning, v1alpha1.ReasonRestoring, "Release",
		"TalosEtcdRestore %s does not exist any more; the cluster is no longer left to it", mark.Name)

	return true, nil
}
