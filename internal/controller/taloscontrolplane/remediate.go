package taloscontrolplane

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/evidence"
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

// remediate replaces machines, if the safety package permits the removal of the old member.
func (r *Reconciler) remediate(ctx context.Context, s *scope) (ctrl.Result, error) {
	g := r.group(s)
	s.cp.Status.Replacements = remediation.Report(g.Replaced, g.Machines)
	life := r.life(s)

	due, changed, err := group.Replacement{
		Client: r.Client, Recorder: r.Recorder, Owner: s.cp, Group: g, Extra: s.extra,
		Look: remediation.Look{
			Unfit: func(spare v1alpha1.MachineEntry) (string, error) {
				return evidence.Unfit(ctx, r.Client, r.Nodes, s.cp.Namespace, spare)
			},
			Sign: func(m *v1alpha1.TalosMachine) (string, error) { return life.Sign(ctx, m) },
		},
		Permit: func(ctx context.Context, c remediation.Choice) (remediation.Choice, error) {
			return r.permitReplacement(ctx, s, c)
		},
		Record: func(ctx context.Context, what string, change func(map[string]string) map[string]string) error {
			s.held.State.Runtime.Replaced = change(s.held.State.Runtime.Replaced)

			return r.updateState(ctx, s, what)
		},
	}.Next(ctx)

	if s.remedy = due; changed && err == nil {
		return ctrl.Result{RequeueAfter: pollReplaced}, nil
	}

	return ctrl.Result{}, err
}

// life returns the source for signs of life of the control plane's machines in this pass.
func (r *Reconciler) life(s *scope) evidence.Life {
	return evidence.Life{
		Source: r.source(s),
		Nodes: evidence.NodesOnce(func(ctx context.Context) (*workload.Cluster, error) {
			return r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
		}),
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
