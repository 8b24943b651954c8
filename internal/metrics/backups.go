package metrics

import (
	"context"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/backup/scheduled"
	"github.com/talos-operator/talos-operator/internal/kube"
)

var (
	backupLabels = []string{"namespace", "control_plane"}

	backupSuccess = prometheus.NewDesc("talos_operator_backup_last_success_timestamp_seconds",
		"When the newest good backup of a control plane was complete, as Unix time.", backupLabels, nil)
	backupSize = prometheus.NewDesc("talos_operator_backup_size_bytes",
		"Size of the plain snapshot in the newest good backup.", backupLabels, nil)
	backupStored = prometheus.NewDesc("talos_operator_backup_stored_bytes",
		"Size of the newest good backup as it is stored.", backupLabels, nil)
	backupDuration = prometheus.NewDesc("talos_operator_backup_duration_seconds",
		"How long it took to take the newest good backup.", backupLabels, nil)
	backupVerified = prometheus.NewDesc("talos_operator_backup_verified",
		"Whether the newest good backup was verified at this level, or a more thorough one.",
		append(backupLabels[:2:2], "level"), nil)
	backupFailures = prometheus.NewDesc("talos_operator_backup_failures_total",
		"Failed tries to take, verify or delete a backup, by reason, since the operator started.",
		append(backupLabels[:2:2], "reason"), nil)
)

// backupLevels in their order.
var backupLevels = []v1alpha1.VerificationLevel{
	v1alpha1.VerificationChecksum, v1alpha1.VerificationDatabase, v1alpha1.VerificationDrill,
}

// Backups tells of the newest good backup of each control plane when it is scraped, from the cache, so that a restart
// forgets nothing. Good is what the recovery point of a schedule takes for good: one that was found damaged must not
// silence an alert. The series of a control plane vanish with it.
type Backups struct {
	// Client reads from the cache.
	Client client.Reader
	Clock  clock.PassiveClock

	mu       sync.Mutex
	failures map[types.NamespacedName]map[string]float64
}

// Failed counts a failure.
func (b *Backups) Failed(namespace, controlPlane, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()

	key := types.NamespacedName{Namespace: namespace, Name: controlPlane}

	if b.failures == nil {
		b.failures = map[types.NamespacedName]map[string]float64{}
	}

	if b.failures[key] == nil {
		b.failures[key] = map[string]float64{}
	}

	b.failures[key][reason]++
}

// Describe implements prometheus.Collector.
func (b *Backups) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		backupSuccess, backupSize, backupStored, backupDuration, backupVerified, backupFailures,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (b *Backups) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	planes, backups := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosEtcdBackupList{}

	for _, list := range []client.ObjectList{planes, backups} {
		if err := b.Client.List(ctx, list, kube.Shared); err != nil {
			ch <- prometheus.NewInvalidMetric(backupSuccess, err)

			return
		}
	}

	of := map[types.NamespacedName][]v1alpha1.TalosEtcdBackup{}
	for i := range planes.Items {
		of[client.ObjectKeyFromObject(&planes.Items[i])] = nil
	}

	for i := range backups.Items {
		o := &backups.Items[i]

		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ControlPlaneRef.Name}
		if list, exists := of[key]; exists {
			of[key] = append(list, *o)
		}
	}

	for key, list := range of {
		if o := scheduled.Newest(list, b.Clock.Now()); o != nil {
			collectBackup(ch, key, &o.Status)
		}
	}

	b.collectFailures(ch, of)
}

func collectBackup(ch chan<- prometheus.Metric, key types.NamespacedName, st *v1alpha1.TalosEtcdBackupStatus) {
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value,
			append([]string{key.Namespace, key.Name}, labels...)...)
	}

	put(backupSuccess, float64(st.CompletedAt.Unix()))
	put(backupSize, quantity(st.Size))
	put(backupStored, quantity(st.StoredSize))

	if st.StartedAt != nil {
		put(backupDuration, max(0, st.CompletedAt.Sub(st.StartedAt.Time).Seconds()))
	}

	reached := false

	for i := len(backupLevels) - 1; i >= 0; i-- {
		reached = reached || st.Verification != nil && st.Verification.Level == backupLevels[i]

		value := 0.0
		if reached {
			value = 1
		}

		put(backupVerified, value, string(backupLevels[i]))
	}
}

func quantity(q *resource.Quantity) float64 {
	if q == nil {
		return 0
	}

	return float64(q.Value())
}

// collectFailures forgets those of control planes that are gone.
func (b *Backups) collectFailures(
	ch chan<- prometheus.Metric, planes map[types.NamespacedName][]v1alpha1.TalosEtcdBackup,
) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for key, reasons := range b.failures {
		if _, exists := planes[key]; !exists {
			delete(b.failures, key)

			continue
		}

		for reason, n := range reasons {
			ch <- prometheus.MustNewConstMetric(backupFailures, prometheus.CounterValue, n, key.Namespace, key.Name, reason)
		}
	}
}
