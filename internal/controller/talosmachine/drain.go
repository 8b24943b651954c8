package talosmachine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// defaultDrainTimeout is the drain timeout if the spec sets none.
var defaultDrainTimeout = metav1.Duration{Duration: 5 * time.Minute}

// drain evicts the pods. It returns nil once the node is empty, or may be disrupted with its remaining pods.
func (r *Reconciler) drain(ctx context.Context, s *scope) error {
	if i := s.machine.Status.Intent; i != nil && (i.Step == v1alpha1.StepLeave || i.Step == v1alpha1.StepReset) {
		return nil
	}

	if err := r.intend(ctx, s, v1alpha1.MachineIntent{Step: v1alpha1.StepDrain}); err != nil {
		return err
	}

	cluster, err := r.cluster(ctx, s)
	if err != nil {
		return err
	}

	o := s.drainOptions()
	late := r.Clock.Since(s.machine.Status.Intent.Since.Time) > o.Timeout.Duration

	left, err := cluster.Drain(ctx, s.nodeRef(), workload.DrainOptions{
		GracePeriodSeconds: grace(o), Force: late && o.OnTimeout == v1alpha1.DrainForce,
	})
	if err != nil {
		return fmt.Errorf("draining %s: %w", s.machine.Name, err)
	}

	switch {
	case len(left) == 0, late && o.OnTimeout == v1alpha1.DrainSkip:
		return nil
	case late && o.OnTimeout == v1alpha1.DrainHold:
		return failure.Waiting(v1alpha1.ReasonDrainHeld, fmt.Sprintf("%s is not drained after %s, because of %s; move these "+
			"pods, or set drain.onTimeout to Force or Skip", s.machine.Name, o.Timeout.Duration, change.List(left)), retryHeld)
	}

	return failure.Waiting(v1alpha1.ReasonDraining, fmt.Sprintf("waiting for %s to leave %s", change.List(left),
		s.machine.Name), pollDrain)
}

// drainOptions returns the options of the machine, else those of its group, else the defaults.
func (s *scope) drainOptions() v1alpha1.DrainOptions {
	var out v1alpha1.DrainOptions

	for _, o := range []*v1alpha1.DrainOptions{s.machine.Spec.Drain, s.policy().Drain} {
		if o == nil {
			continue
		}

		out.OnTimeout = cmp.Or(out.OnTimeout, o.OnTimeout)
		out.Timeout = cmp.Or(out.Timeout, o.Timeout)
		out.GracePeriodSeconds = cmp.Or(out.GracePeriodSeconds, o.GracePeriodSeconds)
	}

	out.OnTimeout = cmp.Or(out.OnTimeout, v1alpha1.DrainHold)
	if out.Timeout == nil {
		out.Timeout = &defaultDrainTimeout
	}

	return out
}

func (s *scope) nodeRef() workload.NodeRef {
	return workload.NodeRef{Name: s.machine.Status.Hostname, UUID: s.machine.Status.UUID}
}

func grace(o v1alpha1.DrainOptions) int {
	if o.GracePeriodSeconds == nil {
		return -1
	}

	return int(*o.GracePeriodSeconds)
}
