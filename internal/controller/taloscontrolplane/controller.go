// Package taloscontrolplane reconciles the control plane of one cluster: its PKI and state Secret, its machines, the
// only bootstrap of its etcd, its health and its credentials.
package taloscontrolplane

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/controller/pace"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/pause"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Reconciler reconciles TalosControlPlanes.
type Reconciler struct {
	Client client.Client
	// Reader reads Secrets live; they are not cached.
	Reader client.Reader
	// States reads and writes state Secrets.
	States *clusterstate.Store
	// NewBundle creates the PKI of a new cluster.
	NewBundle func(o clusterstate.Options) (*clusterstate.Bundle, error)
	// Nodes opens connections to nodes.
	Nodes *talos.Pool
	// Workloads opens connections to the Kubernetes APIs of the clusters.
	Workloads *workload.Clients
	// Jobs opens connections for the Jobs of hooks.
	Jobs func(ctx context.Context, b *clusterstate.Bundle, addresses []string) (workload.Jobs, error)
	// APIs triggers control planes whose API responds again.
	APIs     *workload.Waiter
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Resync is how often a control plane is reconciled when no event reports a change; less often in a large fleet. Nodes
	// report changes of their state, their etcd's health and their member immediately.
	Resync time.Duration
	// Pass limits how long one reconciliation may query the nodes and the API servers of a cluster; zero means no limit.
	Pass time.Duration
	// Details is how long details of a status are collected before they are written together; zero means not at all.
	Details time.Duration

	fleet  pace.Fleet
	memory frame.Memory
	pulls  pulls
	stale  sightings
	nodes  nodeLooks
	// records tracks when clusters were last asked for their owner.
	records records
	orphans orphans
	// preflights are the last checks before upgrades.
	preflights preflights
	// requests are those for images that machines have not responded to.
	requests requests
	// compared are the last comparisons to bootstrap manifests.
	compared preflights
	// checks are the last checks before machines that were not satisfied.
	checks group.Verdicts
}

// Reconcile reconciles one TalosControlPlane. It keeps no state between calls that a restart must not lose.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	cp := &v1alpha1.TalosControlPlane{}
	if err := r.Client.Get(ctx, req.NamespacedName, cp); err != nil {
		if failure.Gone(err) {
			r.forget(req.NamespacedName)
			metrics.LeaveControlPlane(r, req.Namespace, req.Name)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	r.fleet.Add(req.NamespacedName)

	s := newScope(cp)
	whole := ctx // the status is written even if the time limit of the reconciliation has expired

	defer func() { res, err = r.finish(whole, s, res, err) }()

	ctx, cancel := talos.Pass(ctx, r.Pass)
	defer cancel()

	if s.hold, err = pause.Find(ctx, r.Client, cp); err != nil {
		return ctrl.Result{}, err
	}

	s.paused = s.hold.Any()

	// The API of a cluster that is being deleted, or that is paused, need not be waited for.
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

// forget drops the cached data of a deleted control plane, most importantly the credentials of its cluster, which would
// otherwise remain in memory for as long as the operator runs. Remaining objects of the cluster, for example workers,
// have them issued again.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.fleet.Forget(key)
	r.APIs.Forget(key)
	r.memory.Forget(key)
	r.pulls.forget(key)
	r.records.forget(key)
	r.orphans.forget(key)
	r.preflights.forget(key)
	r.requests.forget(key)
	r.compared.forget(key)
	r.checks.Forget(key)
	r.stale.forget(key)
	r.nodes.forget(key)

	if access := r.States.Forget(key); access != nil {
		r.Workloads.Forget(access.Fingerprint())
		r.Nodes.Forget(access.Talos.CA)
	}
}

// converge takes the next steps towards the spec.
func (r *Reconciler) converge(ctx context.Context, s *scope) (ctrl.Result, error) {
	return frame.Run(ctx, s,
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
		r.planUpgrade,
		r.rollout,
		r.ensureKubeconfig,
		r.askAPI,
		r.saveState,
		r.keepRecord,
		r.removeStaleNode,
	)
}
