package taloscontrolplane

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/evidence"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// pollReplaced is how soon the machine list is reconciled again after a replacement was recorded.
const pollReplaced = 100 * time.Millisecond

// group returns the evidence for a decision about replacements.
func (r *Reconciler) group(s *scope) remediation.Group {
	return remediation.Group{
		Machines: s.cp.Spec.Machines, Spares: s.cp.Spec.Spares, Options: s.cp.Spec.Remediation,
		Replaced: s.held.State.Runtime.Replaced, Existing: s.machines, Now: r.Clock.Now(),
	}
}

// remediate replaces machines that do not come back, or whose replacement a user requested, with spare machines: one at
// a time, recorded first, and only if the safety package permits the removal of the old member.
func (r *Reconciler) remediate(ctx context.Context, s *scope) (ctrl.Result, error) {
	g := r.group(s)
	g.Held = func(m *v1alpha1.TalosMachine) bool { return pause.Holds(ctx, r.Client, m) }
	s.cp.Status.Replacements = remediation.Report(g.Replaced, g.Machines)

	if obsolete := g.Obsolete(); len(obsolete) > 0 {
		for _, machine := range obsolete {
			delete(s.held.State.Runtime.Replaced, machine)
		}

		return ctrl.Result{RequeueAfter: pollReplaced}, r.updateState(ctx, s, "that replacements ended")
	}

	if err := r.giveUpReplaced(ctx, s, g); err != nil {
		return ctrl.Result{}, err
	}

	choice, err := g.ChooseNow(remediation.Look{
		Unfit: func(spare v1alpha1.MachineEntry) (string, error) {
			return evidence.Unfit(ctx, r.Client, r.Nodes, s.cp.Namespace, spare)
		},
		Sign: func(m *v1alpha1.TalosMachine) (string, error) { return r.life(s).Sign(ctx, m) },
	})
	if choice.Machine == "" || err != nil {
		return ctrl.Result{}, err
	}

	if choice.Reason == "" {
		var err error
		if choice, err = r.permitReplacement(ctx, s, choice); err != nil {
			return ctrl.Result{}, err
		}
	}

	s.remedy = &choice

	if choice.Reason != "" {
		return ctrl.Result{}, nil
	}

	s.held.State.Runtime.Replaced = remediation.Replace(g.Replaced, choice.Machine, choice.Spare)
	if err := r.updateState(ctx, s, "the replacement of "+choice.Machine); err != nil {
		return ctrl.Result{}, err
	}

	r.Recorder.Eventf(s.cp, kube.RelatedMachine(s.cp, choice.Machine), corev1.EventTypeWarning, v1alpha1.ReasonReplacing,
		"Replace", "%s takes the place of %s", choice.Spare, choice.Machine)

	return ctrl.Result{RequeueAfter: pollReplaced}, nil
}

// life returns the source for signs of life of the control plane's machines.
func (r *Reconciler) life(s *scope) evidence.Life {
	return evidence.Life{
		Source: r.source(s),
		Cluster: func(ctx context.Context) (*workload.Cluster, error) {
			return r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
		},
	}
}

func (r *Reconciler) updateState(ctx context.Context, s *scope, what string) error {
	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording %s: %w", what, err)
	}

	return nil
}

// permitReplacement decides whether the machine may be replaced now.
func (r *Reconciler) permitReplacement(
	ctx context.Context, s *scope, c remediation.Choice,
) (remediation.Choice, error) {
	if d := s.held.State.Runtime.Disruption; d != nil && d.Machine != c.Machine {
		c.Reason, c.Message = v1alpha1.ReasonDisruptionInProgress, "waiting until "+d.Machine+" is done"

		return c, nil
	}

	if len(s.extra) > 0 {
		c.Reason, c.Message = v1alpha1.ReasonDisruptionInProgress, "waiting until "+s.extra[0]+" is taken out"

		return c, nil
	}

	verdict, err := r.permitRemoval(ctx, s, c.Machine, c.Gone)
	if err != nil {
		return c, err
	}

	if verdict.Action != safety.Proceed {
		c.Reason = verdict.Reason
		c.Message = fmt.Sprintf("%s is to be replaced by %s: %s", c.Machine, c.Spare, verdict.Message)
	}

	return c, nil
}

// giveUpReplaced sets, on machines that were replaced and have been unreachable for too long, the annotation with which
// a user declares that they will not come back.
func (r *Reconciler) giveUpReplaced(ctx context.Context, s *scope, g remediation.Group) error {
	sign := func(m *v1alpha1.TalosMachine) (string, error) { return r.life(s).Sign(ctx, m) }

	for _, m := range g.Abandoned(s.extra, sign) {
		if err := machineset.GiveUp(ctx, r.Client, m); err != nil {
			return err
		}
	}

	return nil
}
