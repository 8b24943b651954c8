package talosmachine

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// recordChange records how the live configuration becomes the desired one; it sends nothing but a dry run. The machine
// counts as compared only afterwards: a plan without the changes that a node rejects would be incomplete.
func (r *Reconciler) recordChange(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.compared {
		return ctrl.Result{}, nil
	}

	if s.unsourced != nil {
		if s.systems != nil && s.systems.reverting {
			r.recordSystem(ctx, s)
		}

		return ctrl.Result{}, nil
	}

	in := r.input(s)
	before := in.Record

	if change.IsUpgrade(before.Change) {
		in.Record.Change = nil
	}

	outcome, record := change.Compare(in)

	switch {
	case outcome == change.Unfinished:
		return ctrl.Result{}, nil
	case outcome == change.Described && change.MustFinish(before.Change, s.systems.runs()):
		r.recordSystem(ctx, s)

		// One that waits is never permitted to go on while its machine counts as not compared.
		if !change.MayBeDrained(s.machine.Status.Change) {
			s.noteCompared()
		}

		return ctrl.Result{}, r.endRetry(ctx, s)
	case change.IsUpgrade(before.Change) && outcome != change.Described:
		record.Change, record.Intent = before.Change, before.Intent
	}

	s.record(record)

	res, err := r.follow(ctx, s, outcome)
	if err != nil {
		return res, err
	}

	if outcome == change.Kept || outcome == change.Forgone {
		r.recordSystem(ctx, s)
	}

	s.noteCompared()

	return res, r.endRetry(ctx, s)
}

func (r *Reconciler) follow(ctx context.Context, s *scope, outcome change.Outcome) (ctrl.Result, error) {
	switch outcome {
	case change.Forgone:
		return ctrl.Result{}, r.forgo(ctx, s)
	case change.TakenOver:
		err := r.forgo(ctx, s)
		if err != nil || s.keeps() {
			return ctrl.Result{}, err
		}

		return ctrl.Result{RequeueAfter: change.Poll}, r.takeOver(ctx, s)
	case change.Described:
		return ctrl.Result{}, r.describeChange(ctx, s)
	case change.Kept, change.Unfinished, change.FellBack:
	}

	return ctrl.Result{}, nil
}

// forgo drops a change whose only purpose is gone. The node may have been made unschedulable for it; a dry run does not
// change that, and keeps the change.
func (r *Reconciler) forgo(ctx context.Context, s *scope) error {
	if c := s.machine.Status.Change; c == nil || change.IsUpgrade(c) || s.keeps() {
		return nil
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	if err := r.supersede(ctx, s, node); err != nil {
		return err
	}

	if err := r.uncordon(ctx, s); err != nil {
		return err
	}

	s.machine.Status.Change, s.machine.Status.Intent = nil, nil

	return nil
}

// describeChange records a new change, with its effect on the node as the node itself predicts it.
func (r *Reconciler) describeChange(ctx context.Context, s *scope) error {
	if s.keeps() && (r.input(s).MayBeStaged() || change.MayBeDrained(s.machine.Status.Change)) {
		return nil // the record is all that tells what has to be undone on the node
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	would, err := node.Apply(ctx, s.want, talos.ApplyOptions{Mode: talos.ApplyAuto, DryRun: true})
	if err != nil {
		return fmt.Errorf("asking %s what a config change would do: %w", s.machine.Name, s.unquoted(err))
	}

	if err := r.supersede(ctx, s, node); err != nil {
		return err
	}

	r.undrain(ctx, s)

	effect := change.Effect{
		Reboot: would.Mode == talos.ApplyReboot, Cuts: len(machineconfig.AffectsConnection(s.diff.Changes)) > 0,
		Etcd: machineconfig.AffectsEtcd(s.diff.Changes),
	}
	effect.Kind, effect.Image = s.kindOf()
	effect.Fields, effect.MoreFields = fieldsOf(s.diff.Changes)
	s.record(change.Describe(r.input(s), effect))

	return nil
}

// undrain makes a node schedulable again whose change is replaced after it was drained: the successor may wait long for
// its approval. An API that does not respond keeps no correction from a node; the end of the successor tries again.
func (r *Reconciler) undrain(ctx context.Context, s *scope) {
	if !change.MayBeDrained(s.machine.Status.Change) {
		return
	}

	if err := r.uncordon(ctx, s); err != nil {
		ctrl.LoggerFrom(ctx).Info("The node stays unschedulable until the next change ends", "error", err.Error())
	}
}

// supersede removes the configuration of a change from the disk that is dropped, or that another change replaces: the
// successor may wait long for its approval, and the configuration would take effect at any reboot. The live
// configuration takes its place. It is only sent while it is the one that the change started from: a different one may
// be on trial, and sending it would make it permanent.
func (r *Reconciler) supersede(ctx context.Context, s *scope, node *talos.Node) error {
	c := s.machine.Status.Change
	if !r.input(s).MayBeStaged() || c.Base != s.liveHash {
		return nil
	}

	state, err := node.ConfigState(ctx)
	if err != nil {
		return fmt.Errorf("looking for the staged config of %s: %w", s.machine.Name, err)
	}

	if state.NextBoot != talos.NextBootOther {
		return nil
	}

	err = node.ToItself(ctx, s.self(), func() error {
		_, err := node.Apply(ctx, s.live, talos.ApplyOptions{Mode: talos.ApplyNoReboot})

		return s.unquoted(err)
	})
	if err != nil {
		return fmt.Errorf("removing the staged config of %s, which is no longer desired: %w", s.machine.Name, err)
	}

	return nil
}

// endRetry removes the annotation after the status records the retry. In the reverse order, a crash would lose the
// request.
func (r *Reconciler) endRetry(ctx context.Context, s *scope) error {
	if _, asked := s.machine.Annotations[v1alpha1.RetryAnnotation]; !asked || s.keeps() || s.stalePath() {
		return nil
	}

	if err := r.claim(ctx, s); err != nil {
		return err
	}

	base := s.machine.DeepCopy()
	delete(s.machine.Annotations, v1alpha1.RetryAnnotation)

	if err := r.Client.Patch(ctx, s.machine, client.MergeFrom(base)); err != nil {
		return fmt.Errorf("removing the annotation %s from %s: %w", v1alpha1.RetryAnnotation, s.machine.Name, err)
	}

	s.base = s.machine.DeepCopy()

	return nil
}
