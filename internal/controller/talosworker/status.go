package talosworker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
)

// finish derives the status from this reconciliation, writes it once and maps the error to a result.
func (r *Reconciler) finish(ctx context.Context, s *scope, res ctrl.Result, err error) (ctrl.Result, error) {
	if s.released {
		return res, err
	}

	if s.hold.Disabled() {
		return ctrl.Result{}, s.hold.Settle(ctx, r.Client, s.worker, s.base, &s.worker.Status.Conditions)
	}

	return r.memory.Finish(ctx, frame.End{
		Client: r.Client, Recorder: r.Recorder, Now: r.Clock.Now(), Object: s.worker, Base: s.base,
		Conditions: &s.worker.Status.Conditions, Before: &s.base.Status.Conditions,
		Decided: computeStatus(s, err), Observed: observedConditions, Bound: condition.BoundOf(r.Resync),
		Weigh: s.weight, Details: r.Details, Undo: func() { s.worker.Status = *s.base.Status.DeepCopy() },
		Claim:  rollout.Moved(s.base.Status.Plan, s.worker.Status.Plan),
		Events: condition.Events(s.expectsOutage()), Cause: s.cause(r.Clock.Now()), Waits: condition.Waits,
		Resync: s.remedy.Again(r.group(s).Within(r.Resync)),
	}, res, err)
}

// weight returns the weight of the status changes of this reconciliation: the number of ready machines is a detail.
func (s *scope) weight() condition.Weight {
	st, was := s.worker.Status.DeepCopy(), &s.base.Status
	if equality.Semantic.DeepEqual(st, was) {
		return condition.Nothing
	}

	st.ReadyReplicas, st.Conditions = was.ReadyReplicas, was.Conditions

	return condition.Weigh(
		was.Conditions, s.worker.Status.Conditions, s.expectsOutage(), !equality.Semantic.DeepEqual(st, was))
}

// expectsOutage reports whether machines are unavailable because of a request of the operator, and no others are.
func (s *scope) expectsOutage() bool {
	expected := false

	for i := range s.machines {
		m := &s.machines[i]

		switch {
		case condition.ExpectsOutage(m):
			expected = true
		case meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable):
			return false
		}
	}

	return expected
}

// cause returns what explains that machines are not ready.
func (s *scope) cause(now time.Time) condition.Cause {
	if s.listed && (len(s.machines) < len(s.worker.Spec.Machines) || len(s.extra) > 0) {
		return condition.Notable
	}

	return condition.CauseOf(s.machines, now)
}

// observedConditions describe the current state of the machines.
var observedConditions = []string{
	v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate,
}

// computeStatus is pure. Conditions whose phase did not run keep their value, for as long as condition.Evidence
// permits.
func computeStatus(s *scope, err error) condition.Set {
	st := &s.worker.Status
	deleting := !s.worker.DeletionTimestamp.IsZero()

	if !deleting && !s.paused {
		st.ObservedGeneration = s.worker.Generation
	}

	set := condition.Begin(&st.Conditions, s.worker.Generation)
	set.IfMissing(v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate)

	st.Replicas = int32(len(s.worker.Spec.Machines))

	if s.listed {
		listed := s.staying()
		st.ReadyReplicas = int32(len(listed) - len(not(listed, v1alpha1.ConditionReady)))

		setReachable(s, listed, set)
		setUpToDate(s, err, listed, set)
	}

	if c := s.remedy; c != nil {
		set.True(v1alpha1.ConditionRemediating, cmp.Or(c.Reason, v1alpha1.ReasonReplacing),
			cmp.Or(c.Message, c.Spare+" takes the place of "+c.Machine))
	} else if s.listed {
		kube.RemoveCondition(set.Conditions, v1alpha1.ConditionRemediating)
	}

	s.setReady(set, err)
	set.Transient(s.paused, deleting, err)

	if !s.paused && !deleting {
		set.Lift(condition.MachinesOf(s.staying())...)
	}

	s.hold.Show(set)
	s.hold.ShowWould(set, s.would)

	return set
}

func (s *scope) setReady(set condition.Set, err error) {
	st := &s.worker.Status

	switch {
	case !s.worker.DeletionTimestamp.IsZero():
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonDeleting, "the object is being deleted")
	case err != nil && failure.Reason(err) != "":
		set.False(v1alpha1.ConditionReady, failure.Reason(err), failure.Message(err))
	case s.listed && st.ReadyReplicas < st.Replicas:
		set.False(v1alpha1.ConditionReady, v1alpha1.ReasonWaitingForMachines, fmt.Sprintf(
			"%d of %d machines are ready, waiting for %s", st.ReadyReplicas, st.Replicas, s.waitingFor()))
	case err != nil, !s.listed:
	default:
		set.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "all machines are ready")
	}
}

// waitingFor names the listed machines that are not ready, and says that there are some without an object.
func (s *scope) waitingFor() string {
	staying := s.staying()
	out := not(staying, v1alpha1.ConditionReady)

	if len(staying) < len(s.worker.Spec.Machines) {
		out = append(out, "machines that are being created")
	}

	return strings.Join(out, ", ")
}

func setUpToDate(s *scope, err error, listed []v1alpha1.TalosMachine, set condition.Set) {
	switch {
	case err != nil && failure.ClassOf(err) == failure.ClassTerminal:
		set.False(v1alpha1.ConditionUpToDate, failure.Reason(err), failure.Message(err))
	case len(s.extra) > 0:
		set.False(v1alpha1.ConditionUpToDate, v1alpha1.ReasonScalingDown, strings.Join(s.extra, ", ")+
			" left the list; "+s.scaling)
	default:
		// Whether a spec that was not checked can be applied is unknown.
		status, reason, message := rollout.Report(
			s.controlPlane, s.worker, s.worker.Status.Plan, len(s.worker.Spec.Machines), listed)
		if s.valid || status != metav1.ConditionTrue {
			set.Put(v1alpha1.ConditionUpToDate, status, reason, message)
		}
	}
}

// staying returns the machines that are listed.
func (s *scope) staying() []v1alpha1.TalosMachine {
	return slices.DeleteFunc(slices.Clone(s.machines), func(m v1alpha1.TalosMachine) bool {
		return slices.Contains(s.extra, m.Name)
	})
}

// setReachable summarizes the state of the machines. A machine that was never queried is neither reachable nor
// unreachable.
func setReachable(s *scope, listed []v1alpha1.TalosMachine, set condition.Set) {
	const kind = v1alpha1.ConditionReachable

	var silent, unknown []string

	for i := range listed {
		switch c := meta.FindStatusCondition(listed[i].Status.Conditions, kind); {
		case c == nil || c.Status == metav1.ConditionUnknown:
			unknown = append(unknown, listed[i].Name)
		case c.Status == metav1.ConditionFalse:
			silent = append(silent, listed[i].Name)
		}
	}

	switch {
	case len(silent) > 0:
		set.False(kind, v1alpha1.ReasonNodeUnreachable, strings.Join(silent, ", ")+" unreachable")
	case len(unknown) > 0:
		set.Unknown(kind, v1alpha1.ReasonWaitingForMachines, "not yet observed: "+strings.Join(unknown, ", "))
	case len(listed) < len(s.worker.Spec.Machines):
		set.Unknown(kind, v1alpha1.ReasonWaitingForMachines, "machines are being created")
	default:
		set.True(kind, v1alpha1.ReasonReachable, "all machines are reachable")
	}
}

// not returns the names of the machines whose condition is not True.
func not(machines []v1alpha1.TalosMachine, kind string) []string {
	var out []string

	for _, m := range machines {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, kind) {
			out = append(out, m.Name)
		}
	}

	return out
}
