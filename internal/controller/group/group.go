// Package group is what control planes and worker groups do alike: keep TalosMachines in line with a list, replace
// machines by spares, and keep the plan of a rollout. Each has its own permission: the safety kernel for a control
// plane, a budget for workers.
package group

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// Sync makes the TalosMachines of a group what its entries say. It returns the machines that count, and the names of
// those of them that are no longer listed, which are not touched.
//
// The objects of machines that are now listed under another name are released: they are no longer evidence. Two objects
// of the same node contradict each other and would block everything while both count.
func Sync(ctx context.Context, c client.Client, g machineset.Group, existing []v1alpha1.TalosMachine,
) (machines []v1alpha1.TalosMachine, extra []string, err error) {
	machines, extra = existing, machineset.Extra(g.Entries, existing)

	if err := machineset.Ensure(ctx, c, g, existing); err != nil {
		return machines, extra, err
	}

	for _, name := range machineset.Renamed(g.Entries, existing) {
		i := slices.IndexFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Name == name })
		if err := machineset.Release(ctx, c, &machines[i]); err != nil {
			return machines, extra, err
		}

		machines = slices.Delete(slices.Clone(machines), i, i+1)
		extra = slices.DeleteFunc(extra, func(n string) bool { return n == name })
	}

	return machines, extra, nil
}

// Replacement replaces the machines of one group.
type Replacement struct {
	Client   client.Client
	Recorder events.EventRecorder
	// Owner of the group.
	Owner client.Object
	// Group is the evidence, and Extra the machines that are no longer listed.
	Group remediation.Group
	Extra []string
	// Look queries spares and machines.
	Look remediation.Look
	// Permit decides whether a machine may be replaced now. It sets the reason of the choice if not.
	Permit func(context.Context, remediation.Choice) (remediation.Choice, error)
	// Record changes, in the state, which spares replace which machines.
	Record func(ctx context.Context, what string, change func(map[string]string) map[string]string) error
}

// Next replaces machines that do not come back, or whose replacement a user requested, with spare machines: one at a
// time, recorded first. It returns the replacement that is due, nil if none is, and whether the record has changed, so
// that the list has to be made anew.
func (r Replacement) Next(ctx context.Context) (due *remediation.Choice, changed bool, err error) {
	g := r.Group
	g.Held = func(m *v1alpha1.TalosMachine) bool { return pause.Holds(ctx, r.Client, m) }

	if obsolete := g.Obsolete(); len(obsolete) > 0 {
		return nil, true, r.Record(ctx, "that replacements ended", func(replaced map[string]string) map[string]string {
			for _, machine := range obsolete {
				delete(replaced, machine)
			}

			return replaced
		})
	}

	// Machines that were replaced and have been unreachable for too long are abandoned, as a user would do.
	for _, m := range g.Abandoned(r.Extra, r.Look.Sign) {
		if err := machineset.GiveUp(ctx, r.Client, m); err != nil {
			return nil, false, err
		}
	}

	choice, err := g.ChooseNow(r.Look)
	if choice.Machine == "" || err != nil {
		return nil, false, err
	}

	if choice.Reason == "" {
		if choice, err = r.Permit(ctx, choice); err != nil {
			return nil, false, err
		}
	}

	if choice.Reason != "" {
		return &choice, false, nil
	}

	err = r.Record(ctx, "the replacement of "+choice.Machine, func(replaced map[string]string) map[string]string {
		return remediation.Replace(replaced, choice.Machine, choice.Spare)
	})
	if err != nil {
		return &choice, false, err
	}

	r.Recorder.Eventf(r.Owner, kube.RelatedMachine(r.Owner, choice.Machine), corev1.EventTypeWarning,
		v1alpha1.ReasonReplacing, "Replace", "%s takes the place of %s", choice.Spare, choice.Machine)

	return &choice, true, nil
}

// Rollout keeps the plan of one group.
type Rollout struct {
	Client   client.Client
	Recorder events.EventRecorder
	// Owner of the group, and Base, as it was read.
	Owner, Base client.Object
	// Input of the decision; Machines are in the order of their disruption, read live.
	Input rollout.Input
}

// Assess updates the plan and determines which machines are next. The approval of a plan that has ended is removed.
func (r Rollout) Assess(ctx context.Context) (rollout.Output, error) {
	before := r.Input.Plan
	r.Input.Approved = r.Owner.GetAnnotations()[v1alpha1.ApprovedAnnotation]

	out, err := rollout.Assess(r.Input)
	if err != nil {
		return out, err
	}

	if err := machineset.EndApproval(ctx, r.Client, r.Owner, r.Base, before, out.Plan); err != nil {
		return out, err
	}

	if now := out.Plan; now != nil && (before == nil || before.ID != now.ID) {
		related := &corev1.ObjectReference{Kind: "Plan", Name: now.ID}
		r.Recorder.Eventf(r.Owner, related, corev1.EventTypeNormal, v1alpha1.ReasonRollingOut, "Plan",
			"Plan %s changes the configs of %s", now.ID, affected(now))
	}

	return out, nil
}

// affected names the machines of a plan, or counts them where they are many.
func affected(p *v1alpha1.PlanStatus) string {
	const few = 5

	names := make([]string, 0, len(p.Machines))
	for _, m := range p.Machines {
		names = append(names, m.Name)
	}

	if len(names) > few {
		return fmt.Sprintf("%d machines", len(names))
	}

	return strings.Join(names, ", ")
}
