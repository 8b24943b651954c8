package talosmachine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// missPatience ends the change of a node that became unreachable during it and does not come back. How long it has been
// away is known from the status. An operator that was away itself may fail to reach a machine for reasons of its own at
// first, such as a client certificate that has expired meanwhile, so it gives each machine the time anew.
func (r *Reconciler) missPatience(s *scope) {
	in := r.input(s)
	if s.paused || in.Now.Sub(r.known.since(s.key().String(), in.Now)) < in.Options.HealthTimeout {
		return
	}

	if step, ends := change.Silent(in, s.answer == talos.StateUnreachable, r.silence(s)); ends {
		s.record(step.Before)
		r.tell(s, step.Event)
	}
}

// silence returns for how long the status has reported that the node is unreachable.
func (r *Reconciler) silence(s *scope) time.Duration {
	c := meta.FindStatusCondition(s.machine.Status.Conditions, v1alpha1.ConditionReachable)
	if c == nil || c.Status != metav1.ConditionFalse {
		return 0
	}

	return r.Clock.Since(c.LastTransitionTime.Time)
}

// uncordon makes a node schedulable again if the operator made it unschedulable. It waits for an unreachable API only
// if pods had to be evicted for the change.
func (r *Reconciler) uncordon(ctx context.Context, s *scope) error {
	cluster, err := r.cluster(ctx, s)
	if err == nil {
		err = cluster.Uncordon(ctx, s.nodeRef())
	}

	if err != nil && !s.machine.Status.Change.Drain {
		ctrl.LoggerFrom(ctx).Info("It is unknown whether the node is cordoned", "error", err.Error())

		return nil
	}

	return err
}

// remember records the live configuration as one with which the node is healthy.
func (r *Reconciler) remember(ctx context.Context, s *scope) error {
	st := &s.machine.Status
	if st.WorkingHash == s.liveHash {
		return nil
	}

	if err := r.loadStored(ctx, s); err != nil {
		return err
	}

	s.stored.Working = s.live

	// No earlier version of a Secret is left, neither on the node nor in the record.
	if s.compared && s.diff.Equal() && !s.reverting && s.unsourced == nil {
		s.stored.Hidden = s.secretFields
	}

	if err := r.Configs.Save(ctx, s.machine, s.stored); err != nil {
		return err
	}

	st.WorkingHash = s.liveHash

	return nil
}

func (r *Reconciler) loadStored(ctx context.Context, s *scope) error {
	if len(s.stored.Working) > 0 {
		return nil
	}

	stored, err := r.Configs.Load(ctx, s.machine)
	if err != nil {
		return err
	}

	s.stored = stored

	return nil
}
