package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/configstore"
	"github.com/talos-operator/talos-operator/internal/controller/fair"
	"github.com/talos-operator/talos-operator/internal/controller/kubernetescluster"
	"github.com/talos-operator/talos-operator/internal/controller/machine"
	"github.com/talos-operator/talos-operator/internal/controller/taloscontrolplane"
	"github.com/talos-operator/talos-operator/internal/controller/talosmachine"
	"github.com/talos-operator/talos-operator/internal/controller/talosworker"
	"github.com/talos-operator/talos-operator/internal/kube"
	"github.com/talos-operator/talos-operator/internal/liveness"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/manifest"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/metrics/server"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// Resync intervals, which are a fallback: node events trigger the controllers.
const (
	controlPlaneResync = 30 * time.Second
	machineResync      = 10 * time.Minute
)

// hashes of configurations that are remembered: for each of 5,000 machines what runs, what is desired, and one more.
// They take 4 MiB.
const hashes = 16_384

const (
	// LeaseName is the name of the Lease of the leader election.
	LeaseName = "talos-operator.talos-operator.io"
	// VersionLabel of the Lease has the version of the leader: a user who may read the Lease learns what runs, without
	// access to the Deployment, whose name is the choice of an installation.
	VersionLabel = "app.kubernetes.io/version"
)

// Scheme contains every kind that the operator reads or writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()

	return s, errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s), vitistackv1alpha1.AddToScheme(s))
}

// Run runs the manager until the context ends.
func Run(ctx context.Context, cfg *rest.Config, o Options, log logr.Logger) error {
	if o.Shards > 1 {
		return runShards(ctx, cfg, o, log)
	}

	if err := refuseShards(ctx, cfg, o); err != nil {
		return err
	}

	mgr, err := NewManager(ctx, cfg, o, log)
	if err != nil {
		return err
	}

	return startAndStop(ctx, mgr, clock.RealClock{})
}

// NewManager returns a manager with all controllers.
func NewManager(ctx context.Context, cfg *rest.Config, o Options, log logr.Logger) (manager.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	metricsServer, err := server.Options(o.MetricsBindAddress, o.MetricsSecure, o.MetricsCertDir)
	if err != nil {
		return nil, err
	}

	options := managerOptions(scheme, o, log)
	options.Metrics = metricsServer

	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}

	if err := warmCaches(ctx, mgr); err != nil {
		return nil, err
	}

	if err := addProbes(mgr); err != nil {
		return nil, err
	}

	if err := setupControllers(ctx, mgr, o); err != nil {
		return nil, err
	}

	return mgr, nil
}

// The election has a role of its own, in the namespace of the pod. Creations cannot be limited to a name. Only the
// election writes events of the old API. Lists tell an operator without shards of replicas with them.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,namespace=talos-operator-system,verbs=create;list
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=talos-operator.talos-operator.io,namespace=talos-operator-system,verbs=get;update
// +kubebuilder:rbac:groups="",resources=events,namespace=talos-operator-system,verbs=create

// managerOptions are those of the manager of controller-runtime.
func managerOptions(scheme *runtime.Scheme, o Options, log logr.Logger) ctrl.Options {
	stop := waitForever

	return ctrl.Options{
		Scheme: scheme,
		Logger: log,
		Client: client.Options{
			// Secrets contain root credentials: they are read individually when they are needed, and never cached.
			Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}},
		},
		Cache:                         cacheOptions(o.Namespaces),
		HealthProbeBindAddress:        o.HealthProbeBindAddress,
		PprofBindAddress:              o.PprofBindAddress,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              LeaseName,
		LeaderElectionNamespace:       o.LeaderElectionNamespace,
		LeaderElectionLabels:          leaseLabels(o.Version),
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &o.LeaseDuration,
		RenewDeadline:                 &o.RenewDeadline,
		RetryPeriod:                   &o.RetryPeriod,
		GracefulShutdownTimeout:       &stop,
	}
}

// leaseLabels are those of the Lease of the leader election. The plus of a semantic version may not stand in a label;
// Helm writes it the same way.
func leaseLabels(version string) map[string]string {
	label := strings.ReplaceAll(version, "+", "_")

	// No replica could lead with a label that the API server refuses.
	if label == "" || len(validation.IsValidLabelValue(label)) > 0 {
		return nil
	}

	return map[string]string{VersionLabel: label}
}

// cacheOptions restrict the watches to the given namespaces, if there are any. Controllers see only cached objects, so
// they work in no other namespace.
func cacheOptions(namespaces []string) cache.Options {
	// Field managers are never read, and they make up half of every object.
	o := cache.Options{DefaultTransform: cache.TransformStripManagedFields()}

	for _, ns := range namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}

		o.DefaultNamespaces[ns] = cache.Config{}
	}

	return o
}

// warmCaches caches every kind from the start. Otherwise a replica that is not the leader would have no caches: readyz
// would be true immediately, and a standby would have to fill its caches when it takes over.
func warmCaches(ctx context.Context, mgr manager.Manager) error {
	for _, o := range []client.Object{
		&vitistackv1alpha1.KubernetesCluster{}, &vitistackv1alpha1.Machine{},
		&v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &v1alpha1.TalosMachine{},
		&v1alpha1.TalosEtcdBackup{}, &v1alpha1.TalosEtcdBackupSchedule{}, &v1alpha1.TalosEtcdRestore{},
		&v1alpha1.TalosUpgrade{}, &v1alpha1.KubernetesUpgrade{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("caching %s objects: %w", kube.KindOf(mgr.GetClient(), o), err)
		}
	}

	return nil
}

// addProbes makes healthz false while reconciliations are stuck, and readyz until the caches are synced.
func addProbes(mgr manager.Manager) error {
	err := mgr.AddHealthzCheck("reconciliations", alive(mgr.GetLogger(), liveness.Process, clock.RealClock{}))
	if err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}

	err = mgr.AddReadyzCheck("caches", func(req *http.Request) error {
		ctx, cancel := context.WithTimeout(req.Context(), time.Second)
		defer cancel()

		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not synced yet")
		}

		return nil
	})
	if err != nil {
		return fmt.Errorf("adding the readiness check: %w", err)
	}

	return nil
}

// backoff returns a rate limiter with 1, 2, 4, 8 s and so on up to 5 min.
func backoff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, 5*time.Minute)
}

// options of a controller under its documented name.
func options(
	mgr manager.Manager, name string, workers int, cluster func(reconcile.Request) string,
) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: workers, RateLimiter: backoff(), LogConstructor: logs(mgr.GetLogger(), name, cluster),
	}
}

func setupControllers(ctx context.Context, mgr manager.Manager, o Options) error {
	clock := o.clock()
	pool := o.closed(ctx, talos.NewPool())
	pool.Observe = metrics.NodeCall
	watcher := nodewatch.New(ctx, pool)
	workloads := &workload.Clients{Clock: clock}
	cached := kube.Indexed(kube.Current(mgr.GetClient(), mgr.GetAPIReader()))
	states := &clusterstate.Store{Client: mgr.GetClient(), Reader: mgr.GetAPIReader(), Clock: clock}

	of := newClusters(ctx, mgr.GetClient())
	nodes := func(name string, cluster func(reconcile.Request) string) controller.Options {
		return options(mgr, name, o.NodeConcurrency, cluster)
	}
	shared := func(name string, cluster func(reconcile.Request) string) controller.Options {
		opts := nodes(name, cluster)
		opts.NewQueue = fair.Share{Workers: o.NodeConcurrency, Cluster: inNamespace(cluster), Clock: clock}.Queue

		return opts
	}

	err := errors.Join(
		kube.Index(ctx, mgr.GetFieldIndexer(), &vitistackv1alpha1.Machine{}, &v1alpha1.TalosControlPlane{},
			&v1alpha1.TalosWorker{}, &v1alpha1.TalosMachine{}),
		(&kubernetescluster.Reconciler{
			Client: cached, Reader: mgr.GetAPIReader(), Clock: clock, Resync: o.ReconcileInterval,
			Details:   condition.SummaryTogether,
			Manifests: &manifest.Store{Root: o.ResultsPath, Count: metrics.CountFile},
			Recorder:  kube.Recorder(mgr.GetEventRecorder("kubernetescluster")),
		}).SetupWithManager(mgr, options(mgr, "KubernetesCluster", o.MaxConcurrentReconciles, itself)),
		(&machine.Reconciler{Client: mgr.GetClient()}).SetupWithManager(mgr, nodes("Machine", of.machine)),
		(&taloscontrolplane.Reconciler{
			Client: cached, Reader: mgr.GetAPIReader(), States: states, Nodes: pool, Clock: clock,
			Workloads: workloads, Jobs: workloads.Jobs, APIs: workload.NewWaiter(ctx, workloads), Resync: controlPlaneResync,
			Recorder: kube.Recorder(mgr.GetEventRecorder("taloscontrolplane")), Details: condition.DetailsTogether,
			Pass: 2 * o.PassTimeout, NewBundle: clusterstate.NewBundle,
		}).SetupWithManager(mgr, shared("TalosControlPlane", itself)),
		(&talosworker.Reconciler{
			Client: cached, Reader: mgr.GetAPIReader(), Clock: clock,
			Recorder: kube.Recorder(mgr.GetEventRecorder("talosworker")),
			States:   states, Nodes: pool, Workloads: workloads, Resync: machineResync, Details: condition.DetailsTogether,
			Pass: 2 * o.PassTimeout,
		}).SetupWithManager(mgr, shared("TalosWorker", of.worker)),
		(&talosmachine.Reconciler{
			Client: cached, Reader: mgr.GetAPIReader(), States: states, Nodes: pool, Watcher: watcher, Clock: clock,
			Resync: machineResync, Installs: talosmachine.NewInstalls(ctx), Hashes: machineconfig.NewHashes(hashes),
			Workloads: workloads, Configs: &configstore.Store{Client: mgr.GetClient(), Reader: mgr.GetAPIReader()},
			Recorder: kube.Recorder(mgr.GetEventRecorder("talosmachine")),
			Details:  condition.DetailsTogether, Pass: o.PassTimeout,
		}).SetupWithManager(mgr, shared("TalosMachine", of.talosMachine)),
	)
	if err != nil {
		return fmt.Errorf("setting up the controllers: %w", err)
	}

	series, err := metrics.Register(o.registry(), metrics.Sources{
		Client: mgr.GetClient(), Clock: clock, Elected: mgr.Elected(), Part: o.shard != nil,
		Streams: watcher.Streams, Latency: pool.Latency,
	})
	if err != nil {
		return err
	}

	if err := setupBackups(ctx, mgr, o, cached, states, series); err != nil {
		return err
	}

	err = restorer(mgr, o, cached, states, pool, workloads).SetupWithManager(mgr,
		options(mgr, "TalosEtcdRestore", restoreConcurrency, of.restore))
	if err != nil {
		return fmt.Errorf("setting up the controller of restores: %w", err)
	}

	return errors.Join(setupHistory(ctx, mgr, o, cached), setupNotifications(mgr, o, cached))
}
