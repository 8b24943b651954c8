package taloscontrolplane

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/patchsource"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// mayReboot is how long after its object was deleted a node may still begin the reboot that was requested before, or be
// unavailable because of it. After that only what the nodes report counts.
const mayReboot = 10 * time.Minute

// rollout maintains the plan of configuration changes and lets one machine after the other begin, if the safety package
// permits it. The plan reports what it waits for; it never blocks the rest of the reconciliation.
func (r *Reconciler) rollout(ctx context.Context, s *scope) (ctrl.Result, error) {
	if !rollout.Pending(s.machines) && s.cp.Status.Plan == nil {
		return ctrl.Result{}, nil
	}

	// The machines that have begun determine which ones may begin, so they are read live.
	machines, err := machineset.Reread(ctx, r.Reader, s.cp, s.machines)
	if err != nil {
		return ctrl.Result{}, err
	}

	machines = slices.DeleteFunc(machines, func(m v1alpha1.TalosMachine) bool { return slices.Contains(s.extra, m.Name) })

	patches, err := patchsource.Versions(ctx, r.Reader, s.cp, nil, machines)
	if err != nil {
		return ctrl.Result{}, err
	}

	out, err := group.Rollout{
		Client: r.Client, Recorder: r.Recorder, Owner: s.cp, Base: s.base,
		Input: rollout.Input{
			Options: rollout.OptionsOf(s.cp, nil), Machines: ordered(s.nodes, machines),
			ControlPlane: s.cp, Patches: patches, Plan: s.cp.Status.Plan, Now: r.Clock.Now(),
		},
	}.Assess(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.cp.Status.Plan, s.window = out.Plan, out.Again
	s.noteApproval(machines)

	return ctrl.Result{}, r.beginChange(ctx, s, machines, out)
}

// holdUnchecked removes upgrades from the candidates while a check of the cluster is not satisfied.
func (r *Reconciler) holdUnchecked(ctx context.Context, s *scope, out *rollout.Output) {
	upgrades := group.Upgrades{
		Of: s.key(), ControlPlane: s.cp, Clock: r.Clock, Verdicts: &r.checks,
		Connect: func(ctx context.Context) (*workload.Cluster, error) {
			return r.Workloads.Cluster(ctx, s.held.State.Bundle, s.addresses())
		},
	}

	if p := s.base.Status.Plan; p != nil {
		upgrades.Was = p.Check
	}

	out.Ready = upgrades.Hold(ctx, out.Ready, out)
	if out.Plan.Check != nil {
		s.window = earliest(s.window, out.Again)
	}
}

// meanwhile continues configuration changes while no etcd responds: a configuration may be what prevents etcd from
// running, and then only another one repairs it. It returns what the reconciliation waits for.
func (r *Reconciler) meanwhile(ctx context.Context, s *scope, wait error) error {
	if busy, err := r.continueDisruption(ctx, s); err != nil {
		return err
	} else if busy {
		return wait
	}

	// What is not known of the workers neither ends an upgrade nor begins the hooks after it.
	s.guard = guardOf(s.cp, nil, s.held.State.Runtime.Upgrade, s.cp.Status.Upgrade, s.machines)
	s.guard.Phase = ""

	if _, err := r.rollout(ctx, s); err != nil {
		return err
	}

	return wait
}

// ordered sorts machines into the order of their disruption.
func ordered(nodes []safety.Node, machines []v1alpha1.TalosMachine) []v1alpha1.TalosMachine {
	names := make([]string, 0, len(machines))
	for i := range machines {
		names = append(names, machines[i].Name)
	}

	names = safety.Order(nodes, names)
	out := slices.Clone(machines)

	slices.SortStableFunc(out, func(a, b v1alpha1.TalosMachine) int {
		return slices.Index(names, a.Name) - slices.Index(names, b.Name)
	})

	return out
}

// beginChange lets the next machine begin: one at a time, whatever the change.
func (r *Reconciler) beginChange(
	ctx context.Context, s *scope, machines []v1alpha1.TalosMachine, out rollout.Output,
) error {
	if len(out.Running) > 0 || len(out.Ready) == 0 {
		return nil
	}

	if d := s.held.State.Runtime.Disruption; d != nil {
		s.await(d, out)

		return nil
	}

	r.holdUnchecked(ctx, s, &out)

	for _, c := range r.notPulling(ctx, s, &out) {
		i := slices.IndexFunc(machines, func(m v1alpha1.TalosMachine) bool { return m.Name == c.Name })

		if staged := c.Change.Reboot && !c.Reboot; staged {
			// All machines with a staged configuration may be rebooted at any moment, so the first one has to succeed before the
			// next one is staged.
			if awaits := awaitsReboot(machines); awaits != "" && !out.Done {
				out.Hold("waiting for " + awaits + " to be rebooted manually")

				return nil
			}

			return machineset.Grant(ctx, r.Client, &machines[i], c)
		}

		if wait := s.waitsFor(machines, c); wait != "" {
			out.Hold(c.Name + ": waiting until " + wait)

			continue
		}

		if begun, err := r.grant(ctx, s, &machines[i], c, &out); err != nil || begun {
			return err
		}
	}

	return nil
}

// beginDisruptiveChange records the disruption of a node, and then permits it. The record fails if the state was
// written since it was read.
func (r *Reconciler) beginDisruptiveChange(
	ctx context.Context, s *scope, m *v1alpha1.TalosMachine, c rollout.Candidate,
) error {
	s.held.State.Runtime.Disruption = &clusterstate.Disruption{
		Machine: m.Name, Act: string(safety.ActReboot), Since: r.now(), Change: c.Change.ID, UID: string(m.UID),
	}

	if err := r.States.Update(ctx, s.held); err != nil {
		return fmt.Errorf("recording the reboot of %s: %w", m.Name, err)
	}

	return machineset.Grant(ctx, r.Client, m, c)
}

// waitsFor says what a candidate waits for besides the safety package; empty if nothing.
func (s *scope) waitsFor(machines []v1alpha1.TalosMachine, c rollout.Candidate) string {
	if sick := sickOther(machines, c); sick != "" {
		return sick + " is ready"
	}

	if c.Change.Kind == v1alpha1.ChangeKubernetes && !s.etcd.Healthy {
		return "etcd is healthy"
	}

	return ""
}

// sickOther returns a machine that is not ready, other than the candidate: a control plane may have one unavailable
// node at a time. That concerns changes that interrupt etcd or a component of Kubernetes. The safety package considers
// only etcd, but other components of a node may be unhealthy too. A NotReady machine may itself be updated: the update
// may repair it. One that gets another version of Kubernetes may be NotReady only if no other one is: nothing but this
// decides about it.
func sickOther(machines []v1alpha1.TalosMachine, c rollout.Candidate) string {
	kubernetes := c.Change.Kind == v1alpha1.ChangeKubernetes
	if !c.Change.Etcd && !kubernetes {
		return ""
	}

	sick := ""

	for i := range machines {
		switch m := &machines[i]; {
		case meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady):
		case m.Name == c.Name && unrendered(m):
		case m.Name == c.Name && !kubernetes:
			return ""
		case m.Name != c.Name && sick == "":
			sick = m.Name
		}
	}

	return sick
}

// unrendered reports whether the machine is not ready because its configuration cannot be made: that says nothing about
// its node, and no change repairs it.
func unrendered(m *v1alpha1.TalosMachine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)

	return c != nil && (c.Reason == v1alpha1.ReasonPatchSourceNotFound || c.Reason == v1alpha1.ReasonInvalidPatch)
}

func awaitsReboot(machines []v1alpha1.TalosMachine) string {
	for i := range machines {
		if c := machines[i].Status.Change; c != nil && c.Phase == v1alpha1.ChangeAwaitingReboot {
			return machines[i].Name
		}
	}

	return ""
}

// rebooting reports whether the configuration change that a disruption was recorded for is still in progress. It is
// read live: treating it as ended would permit the disruption of the next node.
func (r *Reconciler) rebooting(ctx context.Context, s *scope, d *clusterstate.Disruption) (bool, error) {
	m := &v1alpha1.TalosMachine{}

	err := r.Reader.Get(ctx, client.ObjectKey{Namespace: s.cp.Namespace, Name: d.Machine}, m)

	switch {
	case apierrors.IsNotFound(err):
		return r.mayStillReboot(ctx, s, d)
	case err != nil:
		return false, fmt.Errorf("reading TalosMachine %s: %w", d.Machine, err)
	}

	c := m.Status.Change
	if d.UID != "" && string(m.UID) != d.UID && (c == nil || c.ID != d.Change) {
		return r.mayStillReboot(ctx, s, d)
	}

	if c == nil || c.ID != d.Change || c.Phase == v1alpha1.ChangeFailed {
		return false, nil
	}

	if rollout.Granted(m) {
		return true, nil
	}

	// A crash occurred between the record and the grant.
	return true, machineset.Grant(ctx, r.Client, m, rollout.Candidate{Name: m.Name, Change: *c, Reboot: c.Reboot})
}

// mayStillReboot reports whether the node of a machine that was deleted during its reboot, or replaced by another
// object of the same name, may still become unavailable: nothing reports its progress any more. The drain before a
// reboot may take hours, so the time counts from when the object was first missing.
func (r *Reconciler) mayStillReboot(ctx context.Context, s *scope, d *clusterstate.Disruption) (bool, error) {
	if d.MissingSince == nil {
		now := r.now()
		d.MissingSince = &now

		return true, r.updateState(ctx, s, "that "+d.Machine+" was deleted during its reboot")
	}

	return r.Clock.Since(*d.MissingSince) < mayReboot, nil
}

// await has the rollout wait for the recorded disruption.
func (s *scope) await(d *clusterstate.Disruption, out rollout.Output) {
	out.Hold(cmp.Or(missing(d), "waiting until "+d.Machine+" is done"))

	if d.MissingSince != nil {
		s.window = earliest(s.window, d.MissingSince.Add(mayReboot))
	}
}

// missing describes what a disruption waits for whose object was deleted; empty if it was not.
func missing(d *clusterstate.Disruption) string {
	if d.MissingSince == nil {
		return ""
	}

	return fmt.Sprintf("waiting until %s UTC: %s was deleted while it was being rebooted, and may still be away",
		d.MissingSince.Add(mayReboot).UTC().Format(time.TimeOnly), d.Machine)
}

// earliest returns the earlier one of two times, of which the first one may be zero.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}

	return a
}
