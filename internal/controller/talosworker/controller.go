// Package talosworker reconciles one group of workers: its machines, and their summary.
package talosworker

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/decide/remediation"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Reconciler reconciles TalosWorkers.
type Reconciler struct {
	Client client.Client
	// Reader reads machines live where a decision depends on them.
	Reader client.Reader
	// States reads and writes state Secrets.
	States *clusterstate.Store
	// Nodes queries spare machines for their suitability.
	Nodes *talos.Pool
	// Workloads asks the Kubernetes API of the cluster whether the Node of a machine still reports.
	Workloads *workload.Clients
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// Resync is how often a group is reconciled when no event reports a change.
	Resync time.Duration
	// Pass limits how long one reconciliation may query machines and API servers; zero means no limit.
	Pass time.Duration
	// Details is how long details of a status are collected before they are written together; zero means not at all.
	Details time.Duration

	memory frame.Memory
	// checks are the last checks before machines that were not satisfied.
	checks group.Verdicts
}

// Reconcile reconciles one TalosWorker. It keeps no state between calls.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	w := &v1alpha1.TalosWorker{}
	if err := r.Client.Get(ctx, req.NamespacedName, w); err != nil {
		if failure.Gone(err) {
			r.memory.Forget(req.NamespacedName)
			r.checks.Forget(req.NamespacedName)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	s := &scope{worker: w, base: w.DeepCopy(), controlPlane: &v1alpha1.TalosControlPlane{}}
	whole := ctx // the status is written even if the time limit of the reconciliation has expired

	defer func() { res, err = r.finish(whole, s, res, err) }()

	ctx, cancel := talos.Pass(ctx, r.Pass)
	defer cancel()

	if s.machines, err = machineset.List(ctx, r.Client, w); err != nil {
		return ctrl.Result{}, err
	}

	s.listed = true
	s.sift(r.group(s))

	if err := client.IgnoreNotFound(r.Client.Get(ctx, s.controlPlaneKey(), s.controlPlane)); err != nil {
		return ctrl.Result{}, fmt.Errorf("reading TalosControlPlane %s: %w", w.Spec.ControlPlaneRef.Name, err)
	}

	if s.hold, err = pause.Find(ctx, r.Client, w, s.controlPlane); err != nil {
		return ctrl.Result{}, err
	}

	s.paused = s.hold.Any()

	switch {
	case s.paused:
		return ctrl.Result{}, r.observeOnly(ctx, s)
	case !w.DeletionTimestamp.IsZero():
		return ctrl.Result{}, r.delete(ctx, s)
	}

	return r.converge(ctx, s)
}

// converge takes the next steps towards the spec.
func (r *Reconciler) converge(ctx context.Context, s *scope) (ctrl.Result, error) {
	return frame.Run(ctx, s,
		frame.Always(r.ensureFinalizer),
		frame.Always(r.validate),
		frame.Always(r.loadReplaced),
		frame.Always(r.awaitOwner),
		frame.Always(r.ensureMachines),
		frame.Always(r.scaleDown),
		r.remediate,
		r.rollout,
	)
}

// sift separates the machines that are listed from those that are not. A reconciliation may end before the replacements
// are known; until then, the last reported ones apply.
func (s *scope) sift(g remediation.Group) {
	g.Replaced = map[string]string{}
	for _, p := range s.worker.Status.Replacements {
		g.Replaced[p.Machine] = p.Spare
	}

	s.extra, s.scaling = machineset.Extra(g.Entries(), s.machines), "no machine was removed in the last reconciliation"
}

// observeOnly keeps the status of a paused group up to date, and writes nothing else.
func (r *Reconciler) observeOnly(ctx context.Context, s *scope) error {
	// Without the state, no machine has been replaced.
	if err := r.loadReplaced(ctx, s); err != nil && failure.ClassOf(err) == failure.ClassTransient {
		return err
	}

	entries := r.group(s).Entries()
	s.extra, s.scaling = machineset.Extra(entries, s.machines), pause.Untouched
	s.would = machineset.Would(!s.worker.DeletionTimestamp.IsZero(), entries, s.machines)

	return r.validate(ctx, s)
}
