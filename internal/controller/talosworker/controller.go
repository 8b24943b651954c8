// Package talosworker reconciles one group of workers: its machines, and their summary.
package talosworker

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/validation"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// pollReplaced is how soon the machine list is reconciled again after a replacement was recorded.
const pollReplaced = 100 * time.Millisecond

// pollDelete is how often a deletion is reconciled; deleted child objects trigger it as well.
const pollDelete = 5 * time.Second

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

	s := &scope{worker: w, base: w.DeepCopy()}
	whole := ctx // the status is written even if the time limit of the reconciliation has expired

	defer func() { res, err = r.finish(whole, s, res, err) }()

	ctx, cancel := talos.Pass(ctx, r.Pass)
	defer cancel()

	if s.machines, err = machineset.List(ctx, r.Client, w); err != nil {
		return ctrl.Result{}, err
	}

	s.listed = true
	s.sift(r.group(s))

	cp := &v1alpha1.TalosControlPlane{}

	err = r.Client.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: w.Spec.ControlPlaneRef.Name}, cp)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading TalosControlPlane %s: %w", w.Spec.ControlPlaneRef.Name, err)
	}

	if s.hold, err = pause.Find(ctx, r.Client, w, cp); err != nil {
		return ctrl.Result{}, err
	}

	s.paused = s.hold.Any()

	switch {
	case s.paused:
		return ctrl.Result{}, r.observeOnly(ctx, s, cp)
	case !w.DeletionTimestamp.IsZero():
		return ctrl.Result{}, r.delete(ctx, s)
	}

	return r.converge(ctx, s, cp)
}

// converge takes the next steps towards the spec.
func (r *Reconciler) converge(
	ctx context.Context, s *scope, cp *v1alpha1.TalosControlPlane,
) (ctrl.Result, error) {
	if err := r.ensureFinalizer(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := s.check(cp); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.loadReplaced(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.awaitOwner(ctx, s, cp); err != nil {
		return ctrl.Result{}, err
	}

	if err := r.ensureMachines(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	if changed, err := r.remediate(ctx, s); changed || err != nil {
		return ctrl.Result{RequeueAfter: pollReplaced}, err
	}

	return r.rollout(ctx, s, cp)
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
func (r *Reconciler) observeOnly(ctx context.Context, s *scope, cp *v1alpha1.TalosControlPlane) error {
	// Without the state, no machine has been replaced.
	if err := r.loadReplaced(ctx, s); err != nil && failure.ClassOf(err) == failure.ClassTransient {
		return err
	}

	entries := r.group(s).Entries()
	s.extra, s.scaling = machineset.Extra(entries, s.machines), pause.Untouched
	s.would = machineset.Would(!s.worker.DeletionTimestamp.IsZero(), entries, s.machines)

	return s.check(cp)
}

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (err error) {
	s.base, err = frame.EnsureFinalizer(ctx, r.Client, s.worker, s.base, v1alpha1.Finalizer)

	return err
}

func (s *scope) check(cp *v1alpha1.TalosControlPlane) error {
	err := checkSpec(s.worker, &cp.Spec, len(s.machines) == 0)
	s.valid = err == nil

	return err
}

// checkSpec rejects an invalid spec before anything is changed. It is pure. The spec of a control plane that does not
// exist is empty. isNew is true for a group without machines.
func checkSpec(w *v1alpha1.TalosWorker, cp *v1alpha1.TalosControlPlaneSpec, isNew bool) error {
	spec, kubernetes := &w.Spec, cp.KubernetesVersion

	failures := validation.WorkerLabels("spec.nodeLabels", spec.NodeLabels)
	failures = append(failures, validation.NodeTaints("spec.nodeTaints", spec.NodeTaints)...)
	failures = append(failures, validation.ExtensionServices("spec", spec.ExtensionServices)...)
	failures = append(failures, validation.StaticPods("spec", spec.StaticPods)...)
	failures = append(failures, validation.Kernel("spec", spec.Kernel, spec.Sysctls, spec.Sysfs)...)
	failures = append(failures, validation.Volumes("spec", spec.Volumes)...)
	failures = append(failures, validation.IngressFirewall("spec", spec.IngressFirewall)...)

	if spec.Kubelet != nil && kubernetes != "" {
		failures = append(failures, validation.KubeletImage("spec.kubelet.image", spec.Kubelet.Image, kubernetes)...)
	}

	for field, m := range remediation.Listed(spec.Machines, spec.Spares) {
		failures = append(failures, validation.WorkerLabels(field+".nodeLabels", m.NodeLabels)...)
		failures = append(failures, validation.NodeTaints(field+".nodeTaints", m.NodeTaints)...)
		failures = append(failures, validation.ExtensionServices(field, m.ExtensionServices)...)
		failures = append(failures, validation.StaticPods(field, m.StaticPods)...)
		failures = append(failures, validation.Kernel(field, m.Kernel, m.Sysctls, m.Sysfs)...)
		failures = append(failures, validation.Volumes(field, m.Volumes)...)
		failures = append(failures, validation.IngressFirewall(field, m.IngressFirewall)...)
		failures = append(failures, validation.CombinedStaticPods(field, spec.StaticPods, m.StaticPods)...)
	}

	// A group that runs is not stopped by it: only a machine whose image there is not gets no other configuration.
	if isNew {
		failures = append(failures, validation.Images(cp.TalosVersion,
			fmt.Sprintf("TalosControlPlane %s: spec.clusterImage", spec.ControlPlaneRef.Name), cp.ClusterImage, spec.Install,
			remediation.Listed(spec.Machines, spec.Spares))...)
	}

	if err := append(failures, remediation.Check(spec.Machines, spec.Spares)...).Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidSpec, err.Error(), nil)
	}

	if err := checkRollout("spec.rollout", spec.Rollout); err != nil {
		return err
	}

	patches := validation.Patches(
		[3]string{"", "spec.configPatches", ""},
		machineconfig.Patches{Group: spec.ConfigPatches},
	)
	if err := patches.Err(); err != nil {
		return failure.Terminal(v1alpha1.ReasonInvalidPatch, err.Error(), nil)
	}

	return nil
}

func (r *Reconciler) ensureMachines(ctx context.Context, s *scope) (err error) {
	s.machines, s.extra, err = group.Sync(ctx, r.Client, machineset.Group{
		Owner:          s.worker,
		ControlPlane:   s.worker.Spec.ControlPlaneRef.Name,
		Worker:         s.worker.Name,
		DeletionPolicy: s.worker.Spec.DeletionPolicy,
		Entries:        r.group(s).Entries(),
	}, s.machines)
	if err != nil || len(s.extra) == 0 {
		return err
	}

	return r.scaleDown(ctx, s)
}

// scaleDown removes machines that are no longer listed from the cluster, one after the other, the most broken one
// first.
func (r *Reconciler) scaleDown(ctx context.Context, s *scope) error {
	var candidates []safety.Candidate

	for i := range s.machines {
		m := &s.machines[i]

		switch {
		case !slices.Contains(s.extra, m.Name):
			continue
		case !m.DeletionTimestamp.IsZero():
			s.scaling = m.Name + " is being taken out" + machineset.DeletingMessage(m)

			return nil
		}

		candidates = append(candidates, machineset.Candidate(m.Name, m))
	}

	for _, name := range safety.Victims(candidates, 1) {
		for i := range s.machines {
			if s.machines[i].Name == name {
				s.scaling = name + " is being taken out"

				return machineset.Decommission(ctx, r.Client, &s.machines[i])
			}
		}
	}

	return nil
}

// delete deletes the group, all machines at once: workers are not part of a quorum.
func (r *Reconciler) delete(ctx context.Context, s *scope) error {
	var waiting []string

	for i := range s.machines {
		if err := machineset.Delete(ctx, r.Client, &s.machines[i], s.worker.Spec.DeletionPolicy); err != nil {
			return err
		}

		waiting = append(waiting, s.machines[i].Name+machineset.DeletingMessage(&s.machines[i]))
	}

	if len(waiting) > 0 {
		return failure.Waiting(v1alpha1.ReasonDeleting, "waiting for "+strings.Join(waiting, "; "), pollDelete)
	}

	s.released = true

	return frame.RemoveFinalizer(ctx, r.Client, s.worker, s.base, v1alpha1.Finalizer)
}
