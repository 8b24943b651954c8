package talosmachine

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// lack handles a source of patches that cannot be used: the desired configuration is unknown. It returns nil if a
// change has begun, which ends without it. Otherwise the machine counts as not compared, so that its group begins
// nothing with it, and it returns a grant that it cannot use: that would keep all others from being disrupted.
func (r *Reconciler) lack(ctx context.Context, s *scope, err error) error {
	// What was compared last may be the same when the source is back, and would count as compared already.
	r.looks.forget(s.key().String())

	held := failure.ClassOf(err) == failure.ClassTerminal || isRefusal(err)
	if !held || s.answer != talos.StateMember {
		return err
	}

	s.unsourced = err
	if s.mustEnd() {
		return nil
	}

	s.machine.Status.ComparedTo = ""

	if !rollout.Granted(s.machine) || s.keeps() {
		return err
	}

	step, failed := r.handBack(ctx, s)
	if failed != nil {
		return failed
	}

	s.record(step.Before)

	return err
}

// mustEnd reports whether a change is not left as it is while the desired configuration is unknown: one that has begun,
// one that has failed, with which a node may become healthy all the same, and the rollback of an operating system.
func (s *scope) mustEnd() bool {
	switch c := s.machine.Status.Change; {
	case c == nil:
		return false
	case s.machine.Status.Intent != nil, change.MayBeDrained(c):
		return true
	default:
		return change.IsUpgrade(c) && c.Cause == v1alpha1.CauseRevert
	}
}

// canEnd reports whether the change ends without a configuration being sent that is unknown.
func (s *scope) canEnd() bool {
	c := s.machine.Status.Change

	return c == nil || change.IsUpgrade(c) || c.Phase == v1alpha1.ChangeFailed || s.liveHash == c.Target ||
		s.intends(v1alpha1.StepTry) || s.intends(v1alpha1.StepReboot)
}

// handBack makes the node schedulable again and returns the step that gives the grant back.
func (r *Reconciler) handBack(ctx context.Context, s *scope) (*change.Step, error) {
	if change.MayBeDrained(s.machine.Status.Change) {
		if err := r.uncordon(ctx, s); err != nil {
			return nil, err
		}
	}

	s.pass.Uncordoned, s.machine.Status.ComparedTo = true, ""
	step := change.GiveBack(r.input(s), failure.Message(s.unsourced))

	return &step, nil
}

// standIn has the live configuration stand in for the desired one, as far as the change goes that ends.
func (r *Reconciler) standIn(s *scope) {
	s.want, s.wantHash = s.live, s.liveHash

	if c := s.machine.Status.Change; !change.IsUpgrade(c) {
		s.wantHash = c.Target
	}
}

// endSystems returns what a node runs, and what its upgrade brings: the image in the desired configuration, which both
// follow from otherwise, is unknown.
func endSystems(s *scope, runs running) systems {
	c, out := s.machine.Status.Change, systems{live: runs.system, want: runs.system, config: runs.config}
	if !change.IsUpgrade(c) {
		return out
	}

	if out.image, out.old = c.Image, c.OldImage; out.live.hash() != c.Target {
		for _, f := range c.Fields {
			switch f.Field {
			case upgrade.FieldTalos:
				out.want.version = f.New
			case upgrade.FieldSchematic:
				out.want.schematic = f.New
			}
		}
	}

	if unwanted := s.machine.Annotations[v1alpha1.RevertAnnotation]; unwanted != "" &&
		(unwanted == out.want.hash() || unwanted == out.live.hash()) {
		out.revert(s.machine, runs, c.Image, s.controlPlane.Spec.TalosVersion)
	}

	if out.refused != "" {
		out.want = out.live
	}

	return out
}

// blame ends a reconciliation that has done what goes without the sources of patches with why the rest was not done.
func (s *scope) blame(res ctrl.Result, err error) (ctrl.Result, error) {
	if err == nil && s.unsourced != nil {
		s.again, err = res.RequeueAfter, s.unsourced
		res = ctrl.Result{}
	}

	return res, err
}
