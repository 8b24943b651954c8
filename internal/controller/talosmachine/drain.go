package talosmachine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

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

	ref := s.nodeRef()
	if ref.Name = s.kubeletName(); ref.Name == "" {
		return s.nodeUnclear(&workload.NodeUnclearError{
			Why:  "Talos does not report yet which name its kubelet registers with",
			Next: "let its kubelet start",
		}, late, o)
	}

	left, err := cluster.Drain(ctx, ref, workload.DrainOptions{
		GracePeriodSeconds: grace(o), Force: late && o.OnTimeout == v1alpha1.DrainForce,
		Running: func(ctx context.Context) ([]string, error) { return r.runningPods(ctx, s) },
	})

	var unclear *workload.NodeUnclearError

	switch {
	case errors.As(err, &unclear):
		return s.nodeUnclear(unclear, late, o)
	case err != nil:
		return fmt.Errorf("draining %s: %w", s.machine.Name, err)
	case len(left) == 0, late && o.OnTimeout == v1alpha1.DrainSkip:
		return nil
	case late && o.OnTimeout == v1alpha1.DrainHold:
		return failure.Waiting(v1alpha1.ReasonDrainHeld, fmt.Sprintf("%s is not drained after %s, because of %s; move these "+
			"pods, or set drain.onTimeout to Force or Skip", s.machine.Name, o.Timeout.Duration, change.List(left)), retryHeld)
	}

	return failure.Waiting(v1alpha1.ReasonDraining, fmt.Sprintf("waiting for %s to leave %s", change.List(left),
		s.machine.Name), pollDrain)
}

// runningPods queries the node for the pods that it runs, except static pods. It is asked only about a machine that has
// no Node and no pods in Kubernetes.
func (r *Reconciler) runningPods(ctx context.Context, s *scope) ([]string, error) {
	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	pods, err := node.RunningPods(ctx)
	if err == nil && len(pods) == 0 {
		// No condition or event tells why nothing was evicted.
		ctrl.LoggerFrom(ctx).Info("The machine counts as drained: it has no Node, and runs no pods but static ones",
			"node", s.kubeletName())
	}

	return pods, err
}

// nodeUnclear holds a drain for which it is unknown which pods run on the machine, so that no pod can be proven to be
// gone. Force does not continue either: it deletes pods and waits for their end, and here none can be found. What the
// machine cannot report will never be proven, so the message names Skip as the way out, which only a user may choose.
func (s *scope) nodeUnclear(e *workload.NodeUnclearError, late bool, o v1alpha1.DrainOptions) error {
	switch {
	case !late:
		return failure.Waiting(v1alpha1.ReasonDraining, fmt.Sprintf("%s cannot be drained yet: %s", s.machine.Name, e.Why),
			pollDrain)
	case o.OnTimeout != v1alpha1.DrainSkip:
		return failure.Waiting(v1alpha1.ReasonDrainHeld, fmt.Sprintf("%s is not drained after %s: %s; %s, or set "+
			"drain.onTimeout to Skip (Force does not help: it deletes only the pods of a known Node)", s.machine.Name,
			o.Timeout.Duration, e.Why, cmp.Or(e.Next, "let its kubelet register, delete the named Node if no machine runs "+
				"under that name")), retryHeld)
	}

	return nil
}

// kubeletName returns the name that the kubelet registers with, as the node reports it now, or else as it last did. The
// hostname is no substitute: a Node that is not found under it may exist under another name, with pods.
func (s *scope) kubeletName() string {
	if s.facts != nil && s.facts.NodeName != "" {
		return s.facts.NodeName
	}

	return s.machine.Status.NodeName
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

// nodeRef returns the Node of the machine for what does no harm if there is none of that name.
func (s *scope) nodeRef() workload.NodeRef {
	st := &s.machine.Status
	ref := workload.NodeRef{Name: cmp.Or(s.kubeletName(), st.Hostname), UUID: st.UUID, BootID: st.BootID}

	// A machine that was wiped has booted since, and its Node has the boot ID from before.
	if s.facts != nil && s.facts.BootID != "" {
		ref.BootID = s.facts.BootID
	}

	return ref
}

func grace(o v1alpha1.DrainOptions) int {
	if o.GracePeriodSeconds == nil {
		return -1
	}

	return int(*o.GracePeriodSeconds)
}
