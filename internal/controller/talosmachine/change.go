package talosmachine

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// maxSteps bounds the steps of one reconciliation; the longest sequence has six.
const maxSteps = 16

// errEndless is returned for a sequence of steps that does not end.
var errEndless = errors.New("the steps of the change do not end")

// change advances the configuration change of a machine that has its slot in the rollout. What is done is decided by
// package change; here it is recorded, performed and told.
func (r *Reconciler) change(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !s.compared || s.facts == nil {
		return ctrl.Result{}, nil
	}

	if s.unsourced != nil && !s.canEnd() {
		step, err := r.handBack(ctx, s)
		if err != nil {
			return ctrl.Result{}, err
		}

		s.record(step.Before)

		return requeue(step), nil
	}

	// Maintenance windows that cannot be read count as closed: they forbid reboots, and a change of Kubernetes that has
	// not begun waits again. The group reports them.
	open, reboots, err := s.rollout().Now(r.Clock.Now())
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The maintenance windows cannot be read, and count as closed")
	}

	for range maxSteps {
		in, next := r.input(s), change.Next
		if change.IsUpgrade(s.machine.Status.Change) {
			if s.systems == nil {
				return ctrl.Result{RequeueAfter: r.untilReported(s)}, nil // nothing is known about what runs
			}

			in, next = r.systemInput(s), change.NextTalos
		}

		in.Options.Reboots, in.Options.Closed = reboots && err == nil, s.closed(open)

		step := next(in)

		last, err := r.take(ctx, s, in, step)
		if last != nil || err != nil {
			return requeue(last), err
		}

		if step.Act == change.None || step.Again > 0 {
			return requeue(&step), nil
		}
	}

	return ctrl.Result{}, fmt.Errorf("changing %s: %w", s.machine.Name, errEndless)
}

func requeue(step *change.Step) ctrl.Result {
	if step == nil {
		return ctrl.Result{}
	}

	return ctrl.Result{RequeueAfter: step.Again}
}

// take records and performs one step. It returns another step if the act has not happened and the reconciliation ends
// with that.
func (r *Reconciler) take(ctx context.Context, s *scope, in change.Input, step change.Step) (*change.Step, error) {
	before, was := s.machine.Status.Intent, in.Record.Change
	s.record(step.Before)
	s.overwritePrevious(step.Act)

	if i := s.machine.Status.Intent; i != nil && (before == nil || i.Step != before.Step || i.Attempt != before.Attempt) {
		if err := r.claim(ctx, s); err != nil {
			return nil, fmt.Errorf("recording the step %s: %w", i.Step, err)
		}
	}

	in.Record = step.Before

	instead, err := r.perform(ctx, s, in, step.Act)
	if err != nil {
		return nil, err
	}

	if instead != nil {
		s.record(instead.Before)
		r.tell(s, instead.Event)

		return instead, nil
	}

	if step.After != nil {
		s.record(*step.After)
	}

	r.tell(s, step.Event)

	if was != nil && s.machine.Status.Change == nil {
		r.ended(ctx, s, was, in.Live)
	}

	if step.Completed {
		s.beginSoak(was, r.Clock.Now())
	}

	if step.Rest && s.mayRest() {
		r.rest(s)
	}

	return nil, nil
}

// ended notes the end of a change. What comes after a configuration is recorded with its end: the machine counts as
// compared, and workers that wait for the control plane would take it for one that is done. live is what runs.
func (r *Reconciler) ended(ctx context.Context, s *scope, was *v1alpha1.MachineChange, live string) {
	switch {
	case !change.IsUpgrade(was):
		r.recordSystem(ctx, s)
	case live == was.Target:
		s.machine.Status.WorkingSystem = live
	}
}

// rest remembers the comparison and what the machine runs. Where that cannot be told, the node is read again.
func (r *Reconciler) rest(s *scope) {
	if own, err := r.ownOf(s); err == nil {
		r.looks.settle(s.key().String(), s.look(), own, r.Clock.Now())
	}
}

// mayRest reports whether the machine need not be queried again before something changes. A comparison with what stands
// in for an unusable config is not one to trust.
func (s *scope) mayRest() bool { return !s.systems.mayChange() && !s.incomplete && s.unsourced == nil }

func (r *Reconciler) tell(s *scope, e *change.Event) {
	if e == nil {
		return
	}

	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}

	r.Recorder.Eventf(s.machine, nil, kind, e.Reason, e.Action, "%s", kube.Shorten(e.Message, longestMessage))
}

// perform does what a step asks for, and notes it in s.pass. It returns another step if that has not happened.
func (r *Reconciler) perform(ctx context.Context, s *scope, in change.Input, act change.Act) (*change.Step, error) {
	switch act {
	case change.AskStaged:
		return nil, r.askStaged(ctx, s)
	case change.Drain:
		return nil, r.drainForChange(ctx, s, in)
	case change.Permit:
		return nil, r.permitChange(ctx, s)
	case change.Prove:
		return r.prove(ctx, s)
	case change.Try:
		return r.send(ctx, s, in, talos.ApplyOptions{Mode: talos.ApplyTry, TryTimeout: in.Options.TryTimeout})
	case change.Apply:
		s.pass.Sent = true

		return r.send(ctx, s, in, talos.ApplyOptions{Mode: talos.ApplyNoReboot})
	case change.Stage:
		s.pass.Staged = true

		return r.send(ctx, s, in, talos.ApplyOptions{Mode: talos.ApplyStaged})
	case change.Pull, change.Install, change.Uninstall, change.Upgrade, change.Rollback:
		return r.performSystem(ctx, s, in, act)
	case change.Reboot:
		return nil, r.reboot(ctx, s)
	case change.Uncordon:
		s.pass.Uncordoned = true

		err := r.uncordon(ctx, s)
		if in.DrainsWithoutAPI() && failure.Reason(err) == v1alpha1.ReasonAPIServerUnavailable {
			return nil, nil // the next change of this node may be what brings the API back
		}

		return nil, err
	case change.Remember:
		s.pass.Remembered = true

		return nil, r.remember(ctx, s)
	case change.None:
	}

	return nil, nil
}

// send applies the desired configuration. A rejection ends the change: only another configuration helps.
func (r *Reconciler) send(ctx context.Context, s *scope, in change.Input, o talos.ApplyOptions) (*change.Step, error) {
	if s.unsourced != nil && s.liveHash != s.wantHash {
		return r.handBack(ctx, s)
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		_, err := node.Apply(ctx, s.want, o)

		return s.unquoted(err)
	})

	switch {
	case err == nil:
		return nil, nil
	case failure.ClassOf(err) == failure.ClassTerminal:
		refused := change.Refuse(in, failure.Message(err))

		return &refused, nil
	}

	return nil, fmt.Errorf("sending a config to %s: %w", s.machine.Name, err)
}

// askStaged asks the node whether the staged configuration is still there: any configuration that is sent replaces it.
// A trial that was started outside of the operator is not disturbed, because sending anything would end it.
func (r *Reconciler) askStaged(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	state, err := node.ConfigState(ctx)
	if err != nil {
		return fmt.Errorf("looking for the staged config of %s: %w", s.machine.Name, err)
	}

	s.pass.Asked, s.pass.Holds = true, state.NextBoot != talos.NextBootLive

	return nil
}

// prove checks a node on trial over a new connection. The response counts only if the change was still on trial at that
// time: a node that had rolled the change back responds as well, and confirming would send the change again,
// permanently.
func (r *Reconciler) prove(ctx context.Context, s *scope) (*change.Step, error) {
	st := &s.machine.Status
	later := &change.Step{
		Before: change.Record{Change: st.Change, Intent: st.Intent, Sent: st.ConfigHash}, Again: change.Poll,
	}

	ctrl.LoggerFrom(ctx).V(1).Info("Checking the change on trial", "since", r.Clock.Since(st.Intent.Since.Time))

	if probe, err := r.Nodes.Probe(ctx, s.address, &s.creds); err != nil || probe.State != talos.StateMember {
		return later, nil // that is what the trial is for
	}

	node, err := r.node(ctx, s)
	if err != nil {
		return nil, err
	}

	live, err := node.MachineConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	hash, err := r.Hashes.Hash(live)
	if err != nil {
		return nil, fmt.Errorf("reading the live config of %s: %w", s.machine.Name, err)
	}

	if hash != st.Change.Target {
		return later, nil
	}

	s.pass.Proven = true

	return nil, nil
}

// reboot requests the recorded reboot.
func (r *Reconciler) reboot(ctx context.Context, s *scope) error {
	node, err := r.node(ctx, s)
	if err != nil {
		return err
	}

	err = node.ToItself(ctx, s.self(), func() error {
		r.noteAsked(s)
		r.forfeit(ctx, s, node)

		return node.Reboot(ctx)
	})
	if err != nil {
		return fmt.Errorf("rebooting %s: %w", s.machine.Name, err)
	}

	return nil
}

// forfeit moves the leadership of etcd away from a node that is about to reboot. A leader that stops without that costs
// the cluster only one election timeout.
func (r *Reconciler) forfeit(ctx context.Context, s *scope, node *talos.Node) {
	if s.machine.Spec.Role != v1alpha1.RoleControlPlane || s.facts.EtcdMemberID == "" {
		return
	}

	if err := node.ForfeitLeadership(ctx); err != nil {
		ctrl.LoggerFrom(ctx).Info("Moving the leadership of etcd failed; rebooting all the same", "error", err.Error())
	}
}
