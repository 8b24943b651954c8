package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// scaleDown removes machines that were removed from the list from the cluster, one after the other, if the safety
// package permits it. The condition UpToDate reports what it waits for; it never blocks the rest of the reconciliation.
func (r *Reconciler) scaleDown(ctx context.Context, s *scope) (ctrl.Result, error) {
	if busy, err := r.continueDisruption(ctx, s); busy || err != nil {
		return ctrl.Result{}, err
	}

	if len(s.extra) == 0 {
		return ctrl.Result{}, nil
	}

	for _, name := range s.leaving() {
		// The removal of the other machines must not wait until this one is resumed.
		if r.isHeld(ctx, s, name) {
			s.scaling = "the removal of " + name + " is paused"

			continue
		}

		if held := rollout.HoldRemoval(s.machines, name); held != "" {
			s.scaling = name + ": " + held

			continue
		}

		verdict, err := r.permitRemoval(ctx, s, name, false)
		if err != nil {
			return ctrl.Result{}, err
		}

		s.scaling = name + ": " + verdict.Message

		if verdict.Action == safety.Proceed {
			return ctrl.Result{}, r.beginRemoval(ctx, s, name)
		}
	}

	return ctrl.Result{}, nil
}

// leaving returns the machines that were removed from the list, in the order of their removal: those with a broken
// etcd, the most broken ones, outdated ones, those with the highest index. The etcd leader is last, so that the
// leadership moves only once.
func (s *scope) leaving() []string {
	candidates := make([]safety.Candidate, 0, len(s.extra))
	for _, name := range s.extra {
		candidates = append(candidates, machineset.Candidate(name, s.machine(name)))
	}

	return safety.Order(s.nodes, safety.Victims(candidates, len(candidates)))
}

// continueDisruption continues the recorded disruption, also after a crash between the record and the act. It returns
// false once none is in progress.
func (r *Reconciler) continueDisruption(ctx context.Context, s *scope) (bool, error) {
	d := s.held.State.Runtime.Disruption
	if d == nil {
		return false, nil
	}

	m := s.machine(d.Machine)

	if d.Act == string(safety.ActReboot) {
		if busy, err := r.rebooting(ctx, s, d); busy || err != nil {
			s.scaling = cmp.Or(missing(d), d.Machine+" is being rebooted")

			return true, err
		}
	}

	switch {
	case d.Act == string(safety.ActReboot):
	case m != nil && !m.DeletionTimestamp.IsZero():
		s.scaling = m.Name + " is being taken out" + machineset.DeletingMessage(m)

		return true, nil
	case m != nil && slices.Contains(s.extra, d.Machine):
		return true, r.remove(ctx, s, m)
	}

	// The disruption is complete, the machine is gone, or it was listed again before it was changed.
	s.held.State.Runtime.Disruption = nil

	if err := r.States.Update(ctx, s.held); err != nil {
		return false, fmt.Errorf("recording that %s is done: %w", d.Machine, err)
	}

	return false, nil
}

// permitRemoval consults the safety package about the removal of one machine. Gone: it has been unreachable for too
// long.
func (r *Reconciler) permitRemoval(ctx context.Context, s *scope, name string, gone bool) (safety.Verdict, error) {
	id := safety.MemberOf(s.nodes, name)
	if id == 0 && safety.Gone(s.nodes, name) {
		if owner, err := r.ownerPermits(ctx, s); err != nil || owner.Action != safety.Proceed {
			return owner, err
		}

		return safety.Verdict{Action: safety.Proceed, Reason: v1alpha1.ReasonSafe, Message: "it has no member in etcd"}, nil
	}

	want := safety.Disruption{Act: safety.ActRemove, Machine: name}

	for _, n := range s.nodes {
		if n.Name == name && n.Answer != safety.AnswerMember {
			m := s.machine(name)
			want = safety.Disruption{
				Act: safety.ActReplace, Machine: name, Member: id,
				Gone: gone || m != nil && kube.AnnotationTrue(m, v1alpha1.SkipResetAnnotation),
			}
		}
	}

	return r.permit(ctx, s, want)
}

// beginRemoval records the disruption, and then begins it. The record fails if the state was written since it was read,
// for example by another replica of the operator.
func (r *Reconciler) beginRemoval(ctx context.Context, s *scope, name string) error {
	s.held.State.Runtime.Disruption = &clusterstate.Disruption{
		Machine: name, Act: string(safety.ActRemove), Since: r.now(),
	}

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording the removal of %s: %w", name, err)
	}

	r.Recorder.Eventf(s.cp, kube.RelatedMachine(s.cp, name), corev1.EventTypeNormal, v1alpha1.ReasonScalingDown, "Remove",
		"Taking %s out of the cluster", name)

	return r.remove(ctx, s, s.machine(name))
}

func (r *Reconciler) remove(ctx context.Context, s *scope, m *v1alpha1.TalosMachine) error {
	s.scaling = m.Name + " is being taken out"

	return machineset.Decommission(ctx, r.Client, m)
}

// machine returns the control plane's machine with the name; nil if there is none.
func (s *scope) machine(name string) *v1alpha1.TalosMachine {
	for i := range s.machines {
		if s.machines[i].Name == name {
			return &s.machines[i]
		}
	}

	return nil
}
