// Package talosmachine reconciles one Talos node: it sends the initial configuration to the right machine and to no
// other one, watches the node, reports its state, and wipes it when its cluster is deleted with the Reset policy.
package talosmachine

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Reconciler reconciles TalosMachines.
type Reconciler struct {
	Client client.Client
	// Reader reads backups live, right before a node is disrupted, and the sources of config patches.
	Reader client.Reader
	// States reads and writes state Secrets.
	States *clusterstate.Store
	// Configs reads and writes the records about machine configurations.
	Configs *configstore.Store
	// Nodes opens connections to nodes.
	Nodes *talos.Pool
	// Workloads opens connections to the Kubernetes APIs of the clusters.
	Workloads *workload.Clients
	// Installs runs installers.
	Installs *Installs
	// Hashes remembers the hashes of configurations that were compared before; nil remembers none.
	Hashes *machineconfig.Hashes
	// Watcher reports changes of nodes.
	Watcher  *nodewatch.Watcher
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Resync is how often a machine is reconciled when no event reports a change.
	Resync time.Duration
	// Pass limits how long one reconciliation may query a machine; zero means no limit.
	Pass time.Duration
	// Details is how long details of a status are collected before they are written together; zero means not at all.
	Details time.Duration

	looks   looks
	bare    sightings
	memory  frame.Memory
	outages condition.Outages
	// verdicts are checks of machines that settle and were not satisfied: such a machine is reconciled every second.
	verdicts group.Verdicts
	// members are what etcd members of machines that settle lack: asking takes seconds where another machine is
	// unreachable.
	members group.Verdicts
	// faults are what does not run, and may only need more time.
	faults sightings
	// known is since when machines are observed at all.
	known sightings
	// asked is since when machines were asked for the step that is recorded.
	asked sightings
	// networks are what nodes reported about their networks.
	networks networks
	// booted are the images that nodes have reported, unreported since when one has not reported all of it, or was booted
	// from a medium that it is not installed from.
	booted     booted
	unreported sightings
	// volumes are the boots and configurations, by machine, whose volumes were read.
	volumes sync.Map
}

// Reconcile reconciles one TalosMachine. It keeps no state between calls.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	m := &v1alpha1.TalosMachine{}
	if err := r.Client.Get(ctx, req.NamespacedName, m); err != nil {
		// One with the label of another shard is not this one's any more, before the whole cluster is there. A wrong label
		// on its control plane only stops what would begin.
		if failure.Gone(err) || failure.Left(err) {
			r.forgetAll(req)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	s := newScope(m, r.Clock.Now())
	whole := ctx // the status is written even if the time limit of the reconciliation has expired

	defer func() { res, err = r.finish(whole, s, res, err) }()

	ctx, cancel := talos.Pass(ctx, r.Pass)
	defer cancel()

	if err := r.loadOwners(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	s.soak()

	if err := r.findPause(ctx, s); err != nil {
		return ctrl.Result{}, err
	}

	// What is paused or taken out gets no other system meanwhile: the record begins it again.
	if s.paused || deleting(m) {
		r.Installs.Drop(req.NamespacedName)
	}

	switch {
	case s.hold.Disabled():
		r.Watcher.Remove(s.key().String())

		return ctrl.Result{}, nil
	case s.paused:
		return r.observeOnly(ctx, s)
	case deleting(m):
		return frame.Run(ctx, s, r.loadState, r.resolveAddress, r.watch, r.awaitOwner, r.leaveToRestore, r.delete)
	}

	return s.blame(frame.Run(ctx, s,
		r.ensureFinalizer,
		r.requireCluster,
		r.loadState,
		r.resolveAddress,
		r.refuseConflict,
		r.watch,
		r.noteTrial,
		r.observe,
		r.awaitOwner,
		r.fence,
		r.recordPlace,
		r.endAcceptance,
		r.loadPatches,
		r.configure,
		r.compare,
		r.compareSystem,
		r.recordChange,
		r.leaveToRestore,
		frame.Always(r.pullAhead),
		r.findLag,
		r.findFaults,
		r.rollBackFailed,
		r.change,
	))
}

// forgetAll ends what runs for a machine that is gone, and drops what is remembered of it: its event streams,
// connections and installers would otherwise remain for as long as the operator runs.
func (r *Reconciler) forgetAll(req ctrl.Request) {
	r.Watcher.Remove(req.String())
	r.Nodes.Drop(req.String())
	r.looks.forget(req.String())
	r.bare.forget(req.String())
	r.known.forget(req.String())
	r.asked.forget(req.String())
	r.booted.forget(req.String())
	r.unreported.forget(req.String())
	r.memory.Forget(req.NamespacedName)
	r.Installs.Drop(req.NamespacedName)
	r.outages.Forget(req.NamespacedName)
	r.verdicts.Forget(req.NamespacedName)
	r.members.Forget(req.NamespacedName)
	r.forgetFaults(req.String())
	r.volumes.Delete(req.String())
	r.networks.forget(req.String())
}

// loadOwners reads the objects that the machine belongs to; any of them may be missing.
func (r *Reconciler) loadOwners(ctx context.Context, s *scope) error {
	cp := &v1alpha1.TalosControlPlane{}

	switch err := r.Client.Get(ctx, s.controlPlaneKey(), cp); {
	case err == nil:
		s.controlPlane = cp
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading TalosControlPlane %s: %w", s.controlPlaneKey().Name, err)
	}

	if s.machine.Spec.WorkerRef == nil {
		return nil
	}

	w := &v1alpha1.TalosWorker{}
	key := client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.WorkerRef.Name}

	switch err := r.Client.Get(ctx, key, w); {
	case err == nil:
		s.worker = w
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("reading TalosWorker %s: %w", key.Name, err)
	}

	return nil
}

// findPause evaluates the annotations on the machine, on everything above it, and on the Machine that it runs on.
func (r *Reconciler) findPause(ctx context.Context, s *scope) error {
	objects := []client.Object{s.machine}
	if s.controlPlane != nil {
		objects = append(objects, s.controlPlane)
	}

	if s.worker != nil {
		objects = append(objects, s.worker)
	}

	var err error

	s.hold, err = pause.Find(ctx, r.Client, objects...)
	s.paused = s.hold.Any()

	return err
}

// observeOnly keeps the status of a paused machine up to date and sends nothing. In a dry run it also reports what
// would be done.
func (r *Reconciler) observeOnly(ctx context.Context, s *scope) (ctrl.Result, error) {
	if s.controlPlane == nil {
		return ctrl.Result{}, nil
	}

	phases := []frame.Phase[*scope]{r.loadState, r.resolveAddress, r.watch, r.observe}
	if !deleting(s.machine) && (s.machine.Spec.WorkerRef == nil || s.worker != nil) {
		phases = append(phases, r.loadPatches, r.compare, r.compareSystem)

		if s.hold.Live() {
			phases = append(phases, r.recordChange)
		}

		phases = append(phases, noteEqual, r.findFaults)
	}

	return s.blame(frame.Run(ctx, s, phases...))
}

func (r *Reconciler) event(s *scope, reason, action, format string, args ...any) {
	r.Recorder.Eventf(s.machine, nil, corev1.EventTypeNormal, reason, action, format, args...)
}
