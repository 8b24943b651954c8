package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/liveness"
	"github.com/talos-operator/talos-operator/internal/metrics"
	"github.com/talos-operator/talos-operator/internal/metrics/server"
	"github.com/talos-operator/talos-operator/internal/shard"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// shardOptions are those of the manager of one shard.
type shardOptions struct {
	held      shard.Held
	addresses client.Reader
	leases    *shard.Leases
	series    *metrics.Part
}

// registry is where the metrics of the fleet are registered.
func (o Options) registry() prometheus.Registerer {
	if o.shard == nil {
		return ctrlmetrics.Registry
	}

	return o.shard.series
}

// closed closes a pool with the manager of a shard. That of a process needs no end of its own.
func (o Options) closed(ctx context.Context, pool *talos.Pool) *talos.Pool {
	if o.shard != nil {
		context.AfterFunc(ctx, pool.Close)
	}

	return pool
}

// runShards runs a manager for each shard that this replica holds, until the context ends. What a process has once,
// such as the servers for metrics and probes, belongs to another manager, which has no controllers.
func runShards(ctx context.Context, cfg *rest.Config, o Options, log logr.Logger) error {
	host, err := newHost(ctx, cfg, o, log)
	if err != nil {
		return err
	}

	leases, err := newLeases(cfg, o)
	if err != nil {
		return err
	}

	holder := &shard.Holder{
		Leases: leases, Shards: o.Shards, Clock: o.clock(), Log: log.WithName("shards"), Tell: metrics.KnowShards,
		Run: func(ctx context.Context, held shard.Held) error {
			of := o
			of.shard = &shardOptions{
				held: held, addresses: host.GetCache(), leases: leases,
				series: metrics.NewPart(ctrlmetrics.Registry, strconv.Itoa(held.Shard)),
			}

			return runShard(ctx, cfg, of, log.WithValues("shard", held.Shard))
		},
	}

	if err := errors.Join(host.Add(holder), addProbes(host)); err != nil {
		return fmt.Errorf("preparing the manager: %w", err)
	}

	if err := host.Start(ctx); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}

	return nil
}

// newHost returns the manager that belongs to no shard. Its cache knows which machine has which address.
func newHost(ctx context.Context, cfg *rest.Config, o Options, log logr.Logger) (manager.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	options := managerOptions(scheme, o, log)
	options.LeaderElection = false
	options.Cache.DefaultTransform = shard.Addresses

	stop := shard.StopTimeout + 5*time.Second // the managers of shards end first
	options.GracefulShutdownTimeout = &stop

	if options.Metrics, err = server.Options(o.MetricsBindAddress, o.MetricsSecure, o.MetricsCertDir); err != nil {
		return nil, err
	}

	host, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}

	err = host.GetFieldIndexer().IndexField(ctx, &v1alpha1.TalosMachine{}, machineset.AddressIndex,
		machineset.IndexAddress)
	if err != nil {
		return nil, fmt.Errorf("indexing machines by address: %w", err)
	}

	return host, nil
}

// runShard runs the manager of one shard. It returns once everything has ended and the Lease is released.
func runShard(ctx context.Context, cfg *rest.Config, o Options, log logr.Logger) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()

	mgr, err := newShard(life, cfg, o, log)
	if err != nil {
		return err
	}

	defer o.shard.series.End()

	// A manager whose context ends before its caches are filled would never return.
	run, stop := context.WithCancel(life)
	context.AfterFunc(ctx, func() {
		mgr.GetCache().WaitForCacheSync(life)
		stop()
	})

	if err := mgr.Start(run); err != nil {
		return fmt.Errorf("running the manager: %w", err)
	}

	return nil
}

// newShard returns the manager of a shard, with all controllers. What they begin ends with the context.
func newShard(ctx context.Context, cfg *rest.Config, o Options, log logr.Logger) (manager.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}

	own, ledger := labels.SelectorFromSet(labels.Set{shard.Label: strconv.Itoa(o.shard.held.Shard)}), shard.NewLedger()

	options := managerOptions(scheme, o, log)
	options.Metrics = metricsserver.Options{BindAddress: "0"}
	options.HealthProbeBindAddress, options.PprofBindAddress = "0", "0"
	options.LeaderElectionResourceLockInterface = o.shard.held.Lock
	// What reconciles knows of which shard it is: one that is stuck must not be hidden by another one.
	options.BaseContext = func() context.Context {
		return liveness.In(context.WithoutCancel(ctx), "shard "+strconv.Itoa(o.shard.held.Shard))
	}
	options.Cache.NewInformer = ledger.NewInformer
	options.Cache.ByObject = map[client.Object]cache.ByObject{}

	for _, kind := range shard.Kinds() {
		options.Cache.ByObject[kind] = cache.ByObject{Label: own}
	}

	lease, renew, retry := shard.LeaseDuration, shard.RenewDeadline, shard.RetryPeriod
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &lease, &renew, &retry

	yes, forever := true, time.Duration(-1)
	options.Controller.SkipNameValidation = &yes
	// The Lease is released only when nothing works any more. The process ends if that takes too long.
	options.GracefulShutdownTimeout = &forever

	mgr, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("making the manager: %w", err)
	}

	if err := warmCaches(ctx, mgr); err != nil {
		return nil, err
	}

	view := &shard.View{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Addresses: o.shard.addresses, Ledger: ledger,
		Shard: strconv.Itoa(o.shard.held.Shard),
	}
	sharded := shardManager{Manager: mgr, view: view}

	if err := setupControllers(ctx, sharded, o); err != nil {
		return nil, err
	}

	o.shard.series.Count(ctx, mgr.GetCache(), mgr.Elected())

	return mgr, addAssigner(mgr, cfg, o, options.Cache.DefaultNamespaces)
}

// addAssigner adds what gives objects a shard to the manager of shard 0.
func addAssigner(mgr manager.Manager, cfg *rest.Config, o Options, namespaces map[string]cache.Config) error {
	if o.shard.held.Shard != 0 {
		return nil
	}

	direct, err := client.New(cfg, client.Options{
		Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient(),
	})
	if err != nil {
		return fmt.Errorf("making the client of the assigner: %w", err)
	}

	return (&shard.Assigner{Client: direct, Shards: o.Shards, Serve: o.shard.leases.Serve}).Setup(mgr, cfg, namespaces)
}

// shardManager gives its controllers clients that know that the cache holds one shard.
type shardManager struct {
	manager.Manager

	view *shard.View
}

// GetClient implements cluster.Cluster.
func (m shardManager) GetClient() client.Client { return m.view }

// GetAPIReader implements cluster.Cluster.
func (m shardManager) GetAPIReader() client.Reader {
	return &shard.Reader{Reader: m.Manager.GetAPIReader(), View: m.view}
}

// podNamespace has the namespace of the pod.
const podNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func newLeases(cfg *rest.Config, o Options) (*shard.Leases, error) {
	namespace := o.LeaderElectionNamespace
	if namespace == "" {
		data, err := os.ReadFile(podNamespace)
		if err != nil {
			return nil, fmt.Errorf("finding the namespace of the Leases (--leader-election-namespace): %w", err)
		}

		namespace = strings.TrimSpace(string(data))
	}

	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica: %w", err)
	}

	access := rest.AddUserAgent(rest.CopyConfig(cfg), "leader-election")
	access.Timeout = shard.RenewDeadline / 2 // one request that hangs must not lose the Leases

	leases, err := coordinationclient.NewForConfig(access)
	if err != nil {
		return nil, fmt.Errorf("making the client of the Leases: %w", err)
	}

	return &shard.Leases{
		Client: leases, Namespace: namespace, Name: LeaseName, Identity: host + "_" + string(uuid.NewUUID()),
		Labels: leaseLabels(o.Version),
	}, nil
}

// refuseShards ends an operator without shards while replicas with shards are at work on the same clusters. Those keep
// away from the Lease of a leader themselves, so a question that fails refuses nothing.
func refuseShards(ctx context.Context, cfg *rest.Config, o Options) error {
	if !o.LeaderElect {
		return nil
	}

	leases, err := newLeases(cfg, o)
	if err != nil {
		return nil // the election says so better
	}

	ctx, cancel := context.WithTimeout(ctx, shard.RenewDeadline)
	defer cancel()

	held, err := leases.InUse(ctx, o.clock().Now())
	if err != nil || held == "" {
		return nil
	}

	return fmt.Errorf("a replica with shards holds Lease %s in namespace %s, and this one has --shards=1: both would work"+
		" on the same clusters; scale the operator to 0 replicas before you change --shards to or from 1", held,
		leases.Namespace)
}
