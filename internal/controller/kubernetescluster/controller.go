// Package kubernetescluster expands a KubernetesCluster into Machines, a TalosControlPlane and TalosWorkers, and
// summarizes their status. It has no other effect on the cluster.
package kubernetescluster

import (
	"context"
	"time"

	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/frame"
	"github.com/talos-operator/talos-operator/internal/controller/pace"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/manifest"
	"github.com/talos-operator/talos-operator/internal/pause"
)

// Reconciler reconciles KubernetesClusters.
type Reconciler struct {
	Client client.Client
	// Reader reads Secrets live; they are not cached.
	Reader client.Reader
	// Manifests writes the machine manifests.
	Manifests *manifest.Store
	Recorder  events.EventRecorder
	Clock     clock.PassiveClock
	// Resync is RECONCILE_INTERVAL. In a large fleet, each cluster is reconciled less often.
	Resync time.Duration
	// Details is how long details of a status are collected before they are written together; zero means not at all.
	Details time.Duration

	fleet  pace.Fleet
	memory frame.Memory
}

// scope is one reconciliation of one KubernetesCluster.
type scope struct {
	cluster *vitistackv1alpha1.KubernetesCluster
	base    *vitistackv1alpha1.KubernetesCluster
	hold    pause.Hold
	topology

	valid   *bool
	created error
	tried   bool
	files   error
	wrote   bool
	have    []vitistackv1alpha1.Machine
	// extra are the machines above those that the spec asks for.
	extra  []string
	nodes  []v1alpha1.TalosMachine
	cp     *v1alpha1.TalosControlPlane
	groups []v1alpha1.TalosWorker
	listed bool
	// handed are the child objects that were written in this reconciliation: their status refers to an earlier spec.
	handed []string
	// would lists what would be written if this were not a dry run.
	would    []string
	released bool
}

// Reconcile reconciles one KubernetesCluster. It keeps no state between calls.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	c := &vitistackv1alpha1.KubernetesCluster{}
	if err := r.Client.Get(ctx, req.NamespacedName, c); err != nil {
		if failure.Gone(err) {
			r.fleet.Forget(req.NamespacedName)
			r.memory.Forget(req.NamespacedName)
		}

		return ctrl.Result{}, failure.IgnoreGone(err)
	}

	r.fleet.Add(req.NamespacedName)

	s := &scope{cluster: c, base: c.DeepCopy(), topology: newTopology(c), hold: pause.Of(c)}
	defer func() { res, err = r.finish(ctx, s, res, err) }()

	switch {
	case s.hold.Disabled():
		return ctrl.Result{}, nil
	case s.hold.Any():
		return ctrl.Result{}, r.observeOnly(ctx, s)
	case !c.DeletionTimestamp.IsZero():
		return ctrl.Result{}, r.delete(ctx, s)
	}

	res, err = frame.Run(ctx, s, frame.Always(r.ensureFinalizer), frame.Always(r.list), frame.Always(r.validate),
		frame.Always(r.ensureMachines), frame.Always(r.writeFiles), frame.Always(r.ensureSecrets),
		frame.Always(r.ensureObjects))
	if err != nil {
		return res, err
	}

	ctrl.LoggerFrom(ctx).V(1).Info("Successfully reconciled cluster")

	return ctrl.Result{}, nil
}

// observeOnly keeps the status of a paused cluster up to date and writes nothing else.
func (r *Reconciler) observeOnly(ctx context.Context, s *scope) error {
	if err := r.list(ctx, s); err != nil {
		return err
	}

	s.would, s.extra = s.pending(), s.surplus()

	return r.validate(ctx, s)
}
