package talosworker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/patchsource"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// rollout maintains the plan of configuration changes and lets machines begin: a canary first, then as many as the
// budget allows.
func (r *Reconciler) rollout(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !rollout.Pending(s.machines) && s.worker.Status.Plan == nil {
		return ctrl.Result{}, nil
	}

	// The machines that have begun determine which ones may begin, so they are read live.
	machines, err := machineset.Reread(ctx, r.Reader, s.worker, s.machines)
	if err != nil {
		return ctrl.Result{}, err
	}

	evidence := r.group(s)
	machines = slices.DeleteFunc(machines, func(m v1alpha1.TalosMachine) bool {
		return slices.Contains(s.extra, m.Name) || lost(evidence, &m)
	})
	cp, was := s.controlPlane, s.worker.Status.Plan
	options := rollout.OptionsOf(cp, s.worker)

	first, err := r.soakFirst(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}

	patches, err := patchsource.Versions(ctx, r.Reader, cp, s.worker, machines)
	if err != nil {
		return ctrl.Result{}, err
	}

	out, err := group.Rollout{
		Client: r.Client, Recorder: r.Recorder, Owner: s.worker, Base: s.base,
		Input: rollout.Input{
			Options: options, Machines: machines, ControlPlane: cp, Worker: s.worker, Patches: patches, First: first, Plan: was,
			Now: r.Clock.Now(),
		},
	}.Assess(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.worker.Status.Plan = out.Plan

	for _, c := range r.checked(ctx, s, cp, was, &out, next(machines, options, &out)) {
		i := slices.IndexFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Name == c.Name })

		if err := machineset.Grant(ctx, r.Client, &machines[i], c); err != nil {
			return ctrl.Result{}, err
		}
	}

	if out.Again.IsZero() {
		return ctrl.Result{}, nil
	}

	// No event reports that a maintenance window opens.
	return ctrl.Result{RequeueAfter: min(max(out.Again.Sub(r.Clock.Now()), time.Second), r.Resync)}, nil
}

// soakFirst returns the machines of the control plane, read live, if those have to soak before workers begin.
func (r *Reconciler) soakFirst(ctx context.Context, s *scope) ([]v1alpha1.TalosMachine, error) {
	if rollout.OptionsOf(s.controlPlane, nil).SoakTime <= 0 {
		return nil, nil
	}

	return machineset.ControlPlane(ctx, r.Reader, s.controlPlaneKey())
}

// lost reports whether the machine has been unreachable for longer than the remediation timeout, or a user has
// abandoned it. Its required change cannot be determined, and the others do not wait for it: once it is back, it gets
// the same configuration as they did.
func lost(g remediation.Group, m *v1alpha1.TalosMachine) bool {
	return g.Gone(m) || kube.AnnotationTrue(m, v1alpha1.SkipResetAnnotation) &&
		meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable)
}

// next selects the machines that may begin now. It is pure.
func next(machines []v1alpha1.TalosMachine, options rollout.Options, out *rollout.Output) []rollout.Candidate {
	budget := safety.Budget(options.Budget, len(machines))
	candidates := make([]safety.Candidate, 0, len(machines))

	var staged []string

	for i := range machines {
		m := &machines[i]
		c := machineset.Candidate(m.Name, m)
		c.Outdated = slices.ContainsFunc(out.Ready, func(r rollout.Candidate) bool { return r.Name == m.Name })

		c.Busy = slices.Contains(out.Running, m.Name)

		if slices.Contains(out.Tolerated, m.Name) && !c.Outdated && !c.Busy {
			continue // it would use up the budget for ever
		}

		candidates = append(candidates, c)

		if ch := m.Status.Change; ch != nil && ch.Phase == v1alpha1.ChangeAwaitingReboot && !c.Busy && !c.Outdated {
			staged = append(staged, m.Name)
		}
	}

	names := safety.NextWorkers(candidates, budget, out.Done)

	// All machines with a staged configuration may be rebooted at any moment, so the first one has to succeed before
	// others are staged.
	if len(staged) > 0 && !out.Done {
		out.Hold("waiting for " + strings.Join(staged, ", ") + " to be rebooted manually")

		names = nil
	}

	picked := slices.DeleteFunc(slices.Clone(out.Ready), func(c rollout.Candidate) bool {
		return !slices.Contains(names, c.Name) && !repairs(machines, c)
	})

	if len(picked) == 0 && len(out.Ready) > 0 {
		out.Hold(fmt.Sprintf("as many machines are unavailable as the budget of %d allows", budget))
	}

	return picked
}

// repairs reports whether a change takes back what a user does not want from a machine that is out of order anyway: it
// waits for no others. A healthy machine that is rolled back to an earlier Talos reboots like any other.
func repairs(machines []v1alpha1.TalosMachine, c rollout.Candidate) bool {
	return c.Change.Cause == v1alpha1.CauseRevert && (c.Change.Kind != v1alpha1.ChangeTalos ||
		slices.ContainsFunc(machines, func(m v1alpha1.TalosMachine) bool {
			return m.Name == c.Name && !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady)
		}))
}

// checkRollout rejects options that cannot be fulfilled. It is pure.
func checkRollout(field string, o *v1alpha1.RolloutOptions) error {
	if err := rollout.Validate(o); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidSpec, fmt.Sprintf("%s.%s", field, err), err)
	}

	return nil
}
