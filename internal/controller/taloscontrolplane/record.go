package taloscontrolplane

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// records track when clusters last named this control plane as their owner. A restart asks again.
type records struct {
	mu    sync.Mutex
	asked map[types.NamespacedName]time.Time
}

func (r *records) note(key types.NamespacedName, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.asked == nil {
		r.asked = map[types.NamespacedName]time.Time{}
	}

	r.asked[key] = now
}

func (r *records) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()

	delete(r.asked, key)
}

// ownership is what a cluster records about its owner.
type ownership int

const (
	// ownerSilent: no API server responds, so only the state decides.
	ownerSilent ownership = iota
	ownerConfirmed
	// ownerUnknown: an API server responds, but this query failed.
	ownerUnknown
	ownerOther
)

// askOwner reads the owner that the cluster records, and records this control plane if there is none. Another owner is
// written to the state, so that everything that reads the state stops.
func (r *Reconciler) askOwner(ctx context.Context, s *scope) (ownership, error) {
	rt := &s.held.State.Runtime

	cluster, err := r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
	if err != nil {
		return ownerSilent, ctx.Err()
	}

	owner, err := cluster.Own(ctx, workload.Claim{
		UID: string(s.cp.UID), Name: s.key().String(), Former: rt.FormerOwnerUID,
	})
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The record of the owner in the cluster cannot be kept")
	}

	switch {
	case owner == "":
		return ownerUnknown, ctx.Err()
	case owner != string(s.cp.UID):
		r.records.forget(s.key())

		rt.RivalUID = owner
		if err := r.States.Update(ctx, s.held); err != nil {
			return ownerOther, fmt.Errorf("recording another owner of %s: %w", s.cp.Name, err)
		}

		return ownerOther, nil
	}

	r.records.note(s.key(), r.Clock.Now())

	return ownerConfirmed, nil
}

// disownTimeout limits how long a deletion waits for a cluster that may be gone.
const disownTimeout = 5 * time.Second

// disown removes the record of the owner from a cluster that continues to run, so that the next owner need not ask. A
// cluster that does not respond keeps the record, and then the state names the former owner.
func (r *Reconciler) disown(ctx context.Context, s *scope) {
	held, err := r.States.Load(ctx, s.key())
	if err != nil || held.State.Runtime.OwnerUID != string(s.cp.UID) {
		return
	}

	var addresses []string

	for _, name := range held.State.Runtime.Configured() {
		if m := held.State.Runtime.Machines[name]; m.Role != string(v1alpha1.RoleWorker) && m.Address != "" {
			addresses = append(addresses, m.Address)
		}
	}

	if len(addresses) == 0 {
		return
	}

	ctx, cancel := context.WithTimeout(ctx, disownTimeout)
	defer cancel()

	cluster, err := r.Workloads.Cluster(ctx, held.State.Bundle, addresses)
	if err == nil {
		err = cluster.Disown(ctx, string(s.cp.UID))
	}

	if err != nil {
		ctrl.LoggerFrom(ctx).Info("The cluster keeps the record of its owner", "error", err.Error())
	}
}

// ownedElsewhere asks a user to decide who manages a cluster: witness names another owner.
func ownedElsewhere(witness, other string) error {
	return failure.Terminal(v1alpha1.ReasonOwnedElsewhere, fmt.Sprintf("%s: make sure that nothing else manages the "+
		"cluster, then annotate the object with %s=%s", witness, v1alpha1.TakeOverAnnotation, other), nil)
}

// recordedRival describes that the cluster itself names another owner.
const recordedRival = ownerRecord + " names another TalosControlPlane as the owner of the cluster"

const ownerRecord = "ConfigMap " + metav1.NamespaceSystem + "/" + workload.OwnerConfigMap + " of the cluster"

// ownerPermits checks the owner right before a disruption. A cluster whose API is down cannot report its owner, and may
// need exactly this step to recover: then the state decides, which names this control plane.
func (r *Reconciler) ownerPermits(ctx context.Context, s *scope) (safety.Verdict, error) {
	is, err := r.askOwner(ctx, s)
	if err != nil {
		return safety.Verdict{}, err
	}

	switch is {
	case ownerUnknown:
		return safety.Verdict{
			Action: safety.Wait, Reason: v1alpha1.ReasonWaitingForEvidence,
			Message: "the API of the cluster responds, but does not tell which object manages the cluster: see " + ownerRecord,
		}, nil
	case ownerOther:
		return safety.Verdict{
			Action: safety.Wait, Reason: v1alpha1.ReasonOwnedElsewhere,
			Message: failure.Message(ownedElsewhere(recordedRival, s.held.State.Runtime.RivalUID)),
		}, nil
	case ownerSilent, ownerConfirmed:
	}

	return safety.Verdict{Action: safety.Proceed}, nil
}
