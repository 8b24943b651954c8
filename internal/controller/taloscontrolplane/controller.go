// Package taloscontrolplane drives the control plane of one cluster: its PKI and state Secret, its machines, the one
// bootstrap of its etcd, its health and its credentials.
package taloscontrolplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/condition"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/controller/pace"
	"github.com/talos-operator/talos-operator/internal/controller/pause"
	"github.com/talos-operator/talos-operator/internal/statestore"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Reconciler drives TalosControlPlanes.
type Reconciler struct {
	Client client.Client
	// Reader reads Secrets live; they are not cached.
	Reader client.Reader
	// States reads and writes state Secrets.
	States *statestore.Store
	// Nodes opens connections to nodes.
	Nodes *talos.Pool
	// Workloads opens connections to the clusters' own APIs.
	Workloads *workload.Clients
	// APIs wakes control planes whose API answers again.
	APIs     *workload.Waiter
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Resync is how often a control plane is looked at when nothing tells of a change; less often where there are many.
	// Nodes tell of themselves, of their etcd's health and of their member at once.
	Resync time.Duration
	// Pass is how long a pass may ask the nodes and the API servers of a cluster; without a bound when zero.
	Pass time.Duration
	// Details is how long details of a status wait for each other, to be written at once; not at all when zero.
	Details time.Duration

	estate pace.Estate
	claims condition.Evidence
	writes condition.Writes
	pulls  pulls
	stale  sightings
	nodes  nodeLooks
	// records tells when clusters were last asked who manages them.
	records records
	orphans orphans
}

// Reconcile drives one TalosControlPlane. It keeps nothing between calls that a restart may not lose.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	cp := &v1alpha1.TalosControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, cp); err != nil {
		if apierrors.IsNotFound(err) {
			r.forget(req.NamespacedName)
		}

		return ctrl.Result{}, client.IgnoreNotFound(err)
	}

	r.estate.Add(req.NamespacedName)

	s := newScope(cp)
	whole := ctx // the status is written also when the time of the pass is over

	defer func() { res, err = r.finish(whole, s, res, err) }()

	ctx, cancel := talos.Pass(ctx, r.Pass)
	defer cancel()

	if s.hold, err = pause.Find(ctx, r.Client, cp); err != nil {
		return ctrl.Result{}, err
	}

	s.paused = s.hold.Any()

	// Nobody waits for the API of a cluster that goes, or that is to be left in peace.
	if s.paused || deleting(cp) {
		r.APIs.Forget(s.key())
	}

	switch {
	case s.hold.Disabled():
		return ctrl.Result{}, nil
	case s.paused:
		res, err = r.observeOnly(ctx, s)
	case deleting(cp):
		return r.delete(ctx, s)
	default:
		res, err = r.converge(ctx, s)
	}

	return r.observeAnyway(ctx, s, res, err)
}

// forget drops what was kept of a control plane that is gone, and the credentials of its cluster above all: in memory
// they would outlive it for as long as the operator runs. What still belongs to the cluster, workers for example, has
// them made again.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.estate.Forget(key)
	r.APIs.Forget(key)
	r.claims.Forget(key)
	r.writes.Forget(key)
	r.pulls.forget(key)
	r.records.forget(key)
	r.orphans.forget(key)
	r.stale.forget(key)
	r.nodes.forget(key)

	if access := r.States.Forget(key); access != nil {
		r.Workloads.Forget(access.Fingerprint())
		r.Nodes.Forget(access.Talos.CA)
	}
}

// converge takes the next steps towards the spec.
func (r *Reconciler) converge(ctx context.Context, s *scope) (ctrl.Result, error) {
	return runPhases(ctx, s,
		r.ensureFinalizer,
		r.ensureSecrets,
		r.ensureOwner,
		r.renewCredentials,
		r.validate,
		r.ensureMachines,
		r.ensureTalosconfig,
		r.observe,
		r.leaveToRestore,
		r.ensureBootstrap,
		r.fence,
		r.remediate,
		r.scaleDown,
		r.removeStale,
		r.rollout,
		r.ensureKubeconfig,
		r.askAPI,
		r.saveState,
		r.keepRecord,
		r.removeStaleNode,
	)
}

type phase func(context.Context, *scope) (ctrl.Result, error)

// runPhases stops at the first phase that fails or waits.
func runPhases(ctx context.Context, s *scope, phases ...phase) (ctrl.Result, error) {
	for _, p := range phases {
		if res, err := p(ctx, s); err != nil || !res.IsZero() {
			return res, err
		}
	}

	return ctrl.Result{}, nil
}

func (r *Reconciler) ensureFinalizer(ctx context.Context, s *scope) (ctrl.Result, error) {
	if controllerutil.ContainsFinalizer(s.cp, v1alpha1.Finalizer) {
		return ctrl.Result{}, nil
	}

	controllerutil.AddFinalizer(s.cp, v1alpha1.Finalizer)

	if err := r.Client.Patch(ctx, s.cp, client.MergeFrom(s.base)); err != nil {
		return ctrl.Result{}, fmt.Errorf("adding the finalizer to TalosControlPlane %s: %w", s.cp.Name, err)
	}

	s.base = s.cp.DeepCopy()

	return ctrl.Result{}, nil
}

func (r *Reconciler) ensureMachines(ctx context.Context, s *scope) (ctrl.Result, error) {
	existing, err := machineset.List(ctx, r.Client, s.cp)
	if err != nil {
		return ctrl.Result{}, err
	}

	s.machines = existing

	entries := r.group(s).Entries()

	s.extra, err = machineset.Ensure(ctx, r.Client, machineset.Group{
		Owner:          s.cp,
		ControlPlane:   s.cp.Name,
		DeletionPolicy: s.cp.Spec.DeletionPolicy,
		Entries:        entries,
	}, existing)
	if err != nil {
		return ctrl.Result{}, err
	}

	return ctrl.Result{}, r.releaseRenamed(ctx, s, entries)
}

// releaseRenamed lets the objects of machines go that are listed under another name now. They are no evidence any more:
// two objects of one node contradict each other, and hold everything up for as long as both count.
func (r *Reconciler) releaseRenamed(ctx context.Context, s *scope, entries []v1alpha1.MachineEntry) error {
	for _, name := range machineset.Renamed(entries, s.machines) {
		if err := machineset.Release(ctx, r.Client, s.machine(name)); err != nil {
			return err
		}

		s.machines = slices.DeleteFunc(s.machines, func(m v1alpha1.TalosMachine) bool { return m.Name == name })
		s.extra = slices.DeleteFunc(s.extra, func(n string) bool { return n == name })
	}

	return nil
}
