package taloscontrolplane

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

// ownerInterval is how often a cluster is asked for its owner if nothing is disrupted.
const ownerInterval = 5 * time.Minute

// keepRecord reads the owner of a cluster periodically, because writes to workers do not check it themselves.
func (r *Reconciler) keepRecord(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !r.records.due(s.key(), r.Clock.Now()) {
		return ctrl.Result{}, nil
	}

	is, err := r.askOwner(ctx, s)
	if err != nil || is != ownerOther {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, ownedElsewhere(recordedRival, s.held.State.Runtime.RivalUID)
}

func (r *records) due(key types.NamespacedName, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()

	at, ok := r.asked[key]

	return !ok || now.Sub(at) >= ownerInterval || now.Before(at)
}
