package talosmachine

import (
	"context"
	"fmt"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// drainForChange evicts the pods of the node.
func (r *Reconciler) drainForChange(ctx context.Context, s *scope, in change.Input) error {
	err := r.drain(ctx, s)

	switch {
	case err == nil,
		in.DrainsWithoutAPI() && failure.Reason(err) == v1alpha1.ReasonAPIServerUnavailable:
		s.pass.Drained = true
	case failure.ClassOf(err) == failure.ClassWaiting:
		s.pass.Held = failure.Message(err)
	default:
		return err
	}

	return nil
}

// permitChange consults the safety package, with live evidence, right before a control-plane node is disrupted.
func (r *Reconciler) permitChange(ctx context.Context, s *scope) error {
	machines, err := r.controlPlaneMachines(ctx, s)
	if err != nil {
		return err
	}

	busy := ""
	if d := s.held.State.Runtime.Disruption; d != nil {
		busy = d.Machine
	}

	if busy != s.machine.Name {
		s.pass.Unrecorded = true

		return nil
	}

	nodes := r.evidence(s).Collect(ctx, machines)

	verdict, err := r.permitNow(ctx, s, nodes, busy, safety.ActReboot)
	if err != nil {
		return err
	}

	if s.pass.Permitted = verdict.Action == safety.Proceed; !s.pass.Permitted {
		s.pass.Held = verdict.Message
	}

	return nil
}

// permitNow consults the safety package about the act itself. The grant may be hours old, so the demanded backup has to
// be fresh now.
func (r *Reconciler) permitNow(ctx context.Context, s *scope, nodes []safety.Node, busy string, act safety.Act,
) (safety.Verdict, error) {
	verdict, made, err := scheduled.Permit(ctx, r.Client, r.Reader, s.controlPlane, r.Clock.Now(),
		func(b safety.Backup) safety.Verdict {
			return safety.Permit(nodes, busy, safety.Disruption{Act: act, Machine: s.machine.Name, Backup: b})
		})
	if err != nil {
		return safety.Verdict{}, fmt.Errorf("looking for the backup before %s goes away: %w", s.machine.Name, err)
	}

	if made != nil {
		r.event(s, v1alpha1.ReasonWaitingForBackup, "Backup", "Taking TalosEtcdBackup %s before %s goes away", made.Name,
			s.machine.Name)
	}

	return verdict, nil
}
