// Package app assembles the manager: options, caches, controllers. The tests use the same assembly.
package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"

	"github.com/talos-operator/talos-operator/internal/backup/storage"
	"github.com/talos-operator/talos-operator/internal/endpoint"
	"github.com/talos-operator/talos-operator/internal/shard"
	"github.com/talos-operator/talos-operator/internal/webhook"
)

// Options of the manager.
type Options struct {
	// ReconcileInterval is how often a KubernetesCluster is reconciled when no event reports a change.
	ReconcileInterval time.Duration
	// MaxConcurrentReconciles of KubernetesClusters.
	MaxConcurrentReconciles int
	// NodeConcurrency is how many control planes, worker groups and machines are reconciled concurrently. A slow node
	// occupies one worker.
	NodeConcurrency int
	// PassTimeout limits how long a reconciliation may query a machine; for a control plane it is doubled. Actions have
	// their own deadlines.
	PassTimeout time.Duration
	// MetricsBindAddress of the metrics server; 0 disables it. Empty is :8443, and :8080 without MetricsSecure.
	MetricsBindAddress string
	// MetricsSecure serves metrics over TLS, and only to accounts that the API server authenticates and that may get
	// /metrics.
	MetricsSecure bool
	// MetricsCertDir has the certificate of the metrics server, tls.crt and tls.key, which is read again when it changes;
	// self-signed when empty.
	MetricsCertDir string
	// HealthProbeBindAddress of the health probes; 0 disables them.
	HealthProbeBindAddress string
	// PprofBindAddress of Go's profiler; 0 disables it. The profiler exposes the internals of the process: bind it to a
	// loopback address.
	PprofBindAddress string
	// ResultsPath is the directory for machine manifests.
	ResultsPath string
	// BackupDirectory is the directory for backups to directories; without one they are rejected.
	BackupDirectory string
	// AllowOwnCredentials lists the namespaces and buckets for which the operator's own credentials may be used.
	AllowOwnCredentials storage.Grants
	// AllowStores are the only buckets that backups and restores may name; all when empty.
	AllowStores storage.Places
	// AllowRecipients are the only keys that backups may be encrypted to; all when empty.
	AllowRecipients storage.RecipientList
	// AllowedWebhooks are the only hosts that notifications are sent to; all when empty.
	AllowedWebhooks webhook.Hosts
	// AllowedEndpoints are those that buckets and webhooks may have; all but loopback, link-local and metadata addresses
	// when empty.
	AllowedEndpoints endpoint.List
	// ScratchDirectory is where plain databases are stored while they are inspected; the directory for temporary files
	// when empty.
	ScratchDirectory string
	// BackupConcurrency is how many backups are taken, verified or deleted concurrently.
	BackupConcurrency int
	// Namespaces are the only ones that the manager watches and works in; all when empty.
	Namespaces []string
	// LeaderElect allows only one of several replicas to act.
	LeaderElect bool
	// LeaderElectionNamespace is the namespace of the lease; default: the namespace of the pod.
	LeaderElectionNamespace string
	// LeaseDuration is how long the other replicas wait after the last renewal of the lease that they have observed,
	// before one of them takes over. Whole seconds; default: 13s.
	LeaseDuration time.Duration
	// RenewDeadline is how long the leader tries to renew the lease before it stops; default: 6s.
	RenewDeadline time.Duration
	// RetryPeriod is how often the leader renews the lease, and, with a jitter of up to 120 %, how often the other
	// replicas read it; default: 1s.
	RetryPeriod time.Duration
	// Shards is among how many shards clusters are divided. With 1, one replica works on all of them.
	Shards int
	// Version of the operator.
	Version string
	// LogLevel is debug, info, warn or error.
	LogLevel string
	// Kubeconfig of the management cluster; default: in-cluster, KUBECONFIG, or the home directory.
	Kubeconfig string
	// Clock for decisions; the system clock when nil. There is no flag for it.
	Clock clock.PassiveClock

	// shard is set for the manager of one shard.
	shard *shardOptions
}

// clock returns the clock for decisions.
func (o Options) clock() clock.PassiveClock {
	if o.Clock == nil {
		return clock.RealClock{}
	}

	return o.Clock
}

// Defaults returns the defaults, overridden by the environment variables of the operations guide.
func Defaults() (Options, error) {
	o := Options{
		ReconcileInterval:       30 * time.Second,
		MaxConcurrentReconciles: 1,
		NodeConcurrency:         16,
		PassTimeout:             10 * time.Second,
		MetricsSecure:           true,
		HealthProbeBindAddress:  ":8081",
		PprofBindAddress:        "0",
		ResultsPath:             "hack/results",
		BackupConcurrency:       4,
		LeaderElect:             true,
		LeaseDuration:           13 * time.Second,
		RenewDeadline:           6 * time.Second,
		RetryPeriod:             time.Second,
		Shards:                  1,
		LogLevel:                "info",
	}

	for name, set := range map[string]func(string) error{
		"RECONCILE_INTERVAL": func(v string) (err error) {
			o.ReconcileInterval, err = time.ParseDuration(v)

			return err
		},
		"MAX_CONCURRENT_RECONCILES": func(v string) (err error) {
			o.MaxConcurrentReconciles, err = strconv.Atoi(v)

			return err
		},
		"METRICS_BIND_ADDRESS": into(&o.MetricsBindAddress),
		"METRICS_SECURE": func(v string) (err error) {
			o.MetricsSecure, err = strconv.ParseBool(v)

			return err
		},
		"METRICS_CERT_DIR":          into(&o.MetricsCertDir),
		"HEALTH_PROBE_BIND_ADDRESS": into(&o.HealthProbeBindAddress),
		"RESULTS_PATH":              into(&o.ResultsPath),
		"NAMESPACES": func(v string) error {
			o.Namespaces = strings.Split(v, ",")

			return nil
		},
		"BACKUP_DIRECTORY":      into(&o.BackupDirectory),
		"ALLOW_OWN_CREDENTIALS": o.AllowOwnCredentials.Set,
		"ALLOW_STORES":          o.AllowStores.Set,
		"ALLOW_RECIPIENTS":      o.AllowRecipients.Set,
		"ALLOWED_WEBHOOKS":      o.AllowedWebhooks.Set,
		"ALLOWED_ENDPOINTS":     o.AllowedEndpoints.Set,
		"SCRATCH_DIRECTORY":     into(&o.ScratchDirectory),
		"LOG_LEVEL":             into(&o.LogLevel),
	} {
		v, ok := os.LookupEnv(name)
		if !ok || v == "" {
			continue
		}

		if err := set(v); err != nil {
			return o, fmt.Errorf("reading the environment variable %s: %w", name, err)
		}
	}

	return o, nil
}

func into(target *string) func(string) error {
	return func(v string) error {
		*target = v

		return nil
	}
}

// AddFlags adds a flag for every option; flags take precedence over the environment.
func (o *Options) AddFlags(f *pflag.FlagSet) {
	f.DurationVar(&o.ReconcileInterval, "reconcile-interval", o.ReconcileInterval,
		"resync interval for KubernetesClusters (RECONCILE_INTERVAL)")
	f.IntVar(&o.MaxConcurrentReconciles, "max-concurrent-reconciles", o.MaxConcurrentReconciles,
		"KubernetesClusters that are reconciled at once (MAX_CONCURRENT_RECONCILES)")
	f.IntVar(&o.NodeConcurrency, "node-concurrency", o.NodeConcurrency,
		"control planes, worker groups and machines that are reconciled at once")
	f.DurationVar(&o.PassTimeout, "pass-timeout", o.PassTimeout,
		"how long the questions to one machine may take, and half of how long those to a whole control plane may; "+
			"at least 10s")
	f.StringVar(&o.MetricsBindAddress, "metrics-bind-address", o.MetricsBindAddress,
		"address of the metrics server, 0 turns it off, default: :8443, or :8080 with --metrics-secure=false "+
			"(METRICS_BIND_ADDRESS)")
	f.BoolVar(&o.MetricsSecure, "metrics-secure", o.MetricsSecure,
		"serve metrics over TLS, only to accounts that may get the URL /metrics (METRICS_SECURE)")
	f.StringVar(&o.MetricsCertDir, "metrics-cert-dir", o.MetricsCertDir,
		"folder with tls.crt and tls.key for the metrics server, read again when they change, default: a self-signed "+
			"certificate (METRICS_CERT_DIR)")
	f.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", o.HealthProbeBindAddress,
		"address of the health probes, 0 turns them off (HEALTH_PROBE_BIND_ADDRESS)")
	f.StringVar(&o.PprofBindAddress, "pprof-bind-address", o.PprofBindAddress,
		"address of the Go profiler, 0 turns it off; it has no authentication: use a loopback address")
	f.StringVar(&o.ResultsPath, "results-path", o.ResultsPath, "folder for machine manifests (RESULTS_PATH)")
	f.StringVar(&o.BackupDirectory, "backup-directory", o.BackupDirectory,
		"folder for backups to directories, with one in it for each namespace; without it they are refused "+
			"(BACKUP_DIRECTORY)")
	f.Var(&o.AllowOwnCredentials, "allow-own-credentials",
		"buckets for which the operator's own credentials may be used, as NAMESPACE=BUCKET or NAMESPACE=BUCKET/PREFIX, "+
			"* for all, separated by commas, besides those of ALLOW_OWN_CREDENTIALS; default: none")
	f.Var(&o.AllowStores, "allow-stores",
		"buckets that backups and restores may name, as NAMESPACE=https://HOST/BUCKET[/PREFIX], "+
			"NAMESPACE=s3://BUCKET[/PREFIX] for AWS, or NAMESPACE=*, separated by commas, besides those of ALLOW_STORES; "+
			"default: all")
	f.Var(&o.AllowRecipients, "allow-recipients",
		"age public keys that backups may be encrypted to, separated by commas, besides those of ALLOW_RECIPIENTS; "+
			"default: all")
	f.Var(&o.AllowedWebhooks, "allowed-webhooks",
		"hosts that notifications may be sent to, as HOST or *.DOMAIN, with :PORT where it is not the default one, and "+
			"with http:// where TLS is not required, separated by commas, besides those of ALLOWED_WEBHOOKS; default: all, "+
			"with TLS")
	f.Var(&o.AllowedEndpoints, "allowed-endpoints",
		"what buckets and webhooks may be at, as HOST, *.DOMAIN, an address, a network such as 10.0.0.0/8, or * for all, "+
			"separated by commas, besides those of ALLOWED_ENDPOINTS; loopback, link-local and metadata addresses only where "+
			"an address or a network names them; default: *")
	f.StringVar(&o.ScratchDirectory, "scratch-directory", o.ScratchDirectory,
		"folder for plain databases while they are inspected, default: the one for temporary files (SCRATCH_DIRECTORY)")
	f.IntVar(&o.BackupConcurrency, "backup-concurrency", o.BackupConcurrency,
		"backups that are taken, verified or deleted at once")
	f.StringSliceVar(&o.Namespaces, "namespaces", o.Namespaces,
		"namespaces to watch, separated by commas, default: all; with them Roles are enough (NAMESPACES)")
	f.BoolVar(&o.LeaderElect, "leader-elect", o.LeaderElect, "elect a leader among several replicas, so that only one "+
		"acts")
	f.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", o.LeaderElectionNamespace,
		"namespace of the leader election lease, default: the namespace of the pod")
	o.addLeaseFlags(f)
	f.IntVar(&o.Shards, "shards", o.Shards, "shards that clusters are divided into, each of which one of several "+
		"replicas holds; change it between 1 and more only while no replica runs")
	f.StringVar(&o.LogLevel, "log-level", o.LogLevel, "debug, info, warn or error (LOG_LEVEL)")
	f.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig of the management cluster, default: in-cluster, then KUBECONFIG, then the home directory")
}

// minPassTimeout is more than collecting the evidence about one machine may take: with a shorter limit, a slow node
// would never be observed completely.
const minPassTimeout = 10 * time.Second

// Validate rejects invalid options.
func (o *Options) Validate() error {
	switch {
	case o.ReconcileInterval <= 0:
		return fmt.Errorf("the reconcile interval (RECONCILE_INTERVAL) is %s: it must be more than 0", o.ReconcileInterval)
	case o.MaxConcurrentReconciles < 1:
		return fmt.Errorf("MAX_CONCURRENT_RECONCILES is %d: it must be at least 1", o.MaxConcurrentReconciles)
	case o.NodeConcurrency < 1:
		return fmt.Errorf("the node concurrency is %d: it must be at least 1", o.NodeConcurrency)
	case o.PassTimeout < minPassTimeout:
		return fmt.Errorf("the pass timeout is %s: it must be at least %s", o.PassTimeout, minPassTimeout)
	case o.BackupConcurrency < 1:
		return fmt.Errorf("the backup concurrency is %d: it must be at least 1", o.BackupConcurrency)
	case o.MetricsCertDir != "" && !o.MetricsSecure:
		return errors.New("METRICS_CERT_DIR is set, and METRICS_SECURE is false: a certificate requires TLS")
	case o.ScratchDirectory != "" && !filepath.IsAbs(o.ScratchDirectory):
		// Child processes run in another directory.
		return fmt.Errorf("the scratch directory (SCRATCH_DIRECTORY) is %q: it must be an absolute path", o.ScratchDirectory)
	}

	if err := o.validateLease(); err != nil {
		return err
	}

	for _, ns := range o.Namespaces {
		// An empty name would mean every namespace.
		if problems := validation.IsDNS1123Label(ns); len(problems) > 0 {
			return fmt.Errorf("reading the namespaces to watch (NAMESPACES), %q: %s", ns, strings.Join(problems, "; "))
		}
	}

	return o.validateShards()
}

func (o *Options) validateShards() error {
	switch {
	case o.Shards < 1 || o.Shards > shard.Most:
		return fmt.Errorf("the number of shards (--shards) is %d: it must be from 1 to %d", o.Shards, shard.Most)
	case o.Shards > 1 && !o.LeaderElect:
		return errors.New("--shards is more than 1, and --leader-elect is false: each shard needs a Lease")
	}

	return nil
}
