package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

var (
	scheduleLabels = []string{"namespace", "control_plane", "schedule"}

	scheduleMet = prometheus.NewDesc("talos_operator_backup_schedule_recovery_point_met",
		"Whether the last good backup of a schedule is not older than its maxAge. -1 before the first "+
			"backup, for maxAge at most. Absent without maxAge.", scheduleLabels, nil)
	scheduleSuccess = prometheus.NewDesc("talos_operator_backup_schedule_last_success_timestamp_seconds",
		"When the newest good backup of a schedule was complete, as Unix time.", scheduleLabels, nil)
	scheduleNext = prometheus.NewDesc("talos_operator_backup_schedule_next_timestamp_seconds",
		"When the next backup of a schedule begins, as Unix time. Absent while it is suspended or invalid.",
		scheduleLabels, nil)
	scheduleSuspended = prometheus.NewDesc("talos_operator_backup_schedule_suspended",
		"Whether a schedule is suspended.", scheduleLabels, nil)
	scheduleVerified = prometheus.NewDesc("talos_operator_backup_schedule_verified",
		"Whether the last verification of the newest backup in the store succeeded. -1 before the first "+
			"one. Absent where the schedule has none.",
		scheduleLabels, nil)
	scheduleVerification = prometheus.NewDesc("talos_operator_backup_schedule_verification_timestamp_seconds",
		"When the last verification that succeeded ended, as Unix time.", append(scheduleLabels[:3:3], "level"), nil)
	scheduleStored = prometheus.NewDesc("talos_operator_backup_schedule_stored_backups",
		"Complete backups of the cluster in the store when it was last checked.", scheduleLabels, nil)
	scheduleStoredBytes = prometheus.NewDesc("talos_operator_backup_schedule_stored_bytes",
		"Size of all complete backups of the cluster in the store when it was last checked.", scheduleLabels, nil)
)

// Schedules tells of TalosEtcdBackupSchedules when it is scraped, from the cache. The age of the recovery point is
// computed then, so that it is right even while no pass is made.
type Schedules struct {
	// Client reads from the cache.
	Client client.Reader
	Clock  clock.PassiveClock
}

// Describe implements prometheus.Collector.
func (Schedules) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		scheduleMet, scheduleSuccess, scheduleNext, scheduleSuspended, scheduleVerified, scheduleVerification,
		scheduleStored, scheduleStoredBytes,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s Schedules) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	list := &v1alpha1.TalosEtcdBackupScheduleList{}
	if err := s.Client.List(ctx, list, kube.Shared); err != nil {
		ch <- prometheus.NewInvalidMetric(scheduleMet, err)

		return
	}

	for i := range list.Items {
		collectSchedule(ch, &list.Items[i], s.Clock.Now())
	}
}

func collectSchedule(ch chan<- prometheus.Metric, o *v1alpha1.TalosEtcdBackupSchedule, now time.Time) {
	put := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value,
			append([]string{o.Namespace, o.Spec.BackupTemplate.Spec.ControlPlaneRef.Name, o.Name}, labels...)...)
	}
	st := &o.Status

	put(scheduleSuspended, number(o.Spec.Suspend))

	if o.Spec.MaxAge != nil {
		put(scheduleMet, recoveryPointMet(o, now))
	}

	if st.LastSuccessTime != nil {
		put(scheduleSuccess, float64(st.LastSuccessTime.Unix()))
	}

	if st.NextScheduleTime != nil {
		put(scheduleNext, float64(st.NextScheduleTime.Unix()))
	}

	if o.Spec.Verification != nil {
		put(scheduleVerified, verified(st.Conditions))
	}

	if v := st.Verification; v != nil {
		put(scheduleVerification, float64(v.Time.Unix()), string(v.Level))
	}

	if st.Stored != nil {
		put(scheduleStored, float64(st.Stored.Count))
		put(scheduleStoredBytes, quantity(st.Stored.Size))
	}
}

// recoveryPointMet tells whether the last good backup is recent enough now. That is unknown of a schedule which is
// younger than its maxAge and has no backup yet.
func recoveryPointMet(o *v1alpha1.TalosEtcdBackupSchedule, now time.Time) float64 {
	last := o.Status.LastSuccessTime

	switch {
	case last != nil:
		return number(meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionRecoveryPointMet) &&
			!now.After(last.Add(o.Spec.MaxAge.Duration)))
	case now.After(o.CreationTimestamp.Add(o.Spec.MaxAge.Duration)):
		return 0
	}

	return truth(metav1.ConditionUnknown)
}

// verified tells whether the last verification succeeded. That is unknown before the first one.
func verified(conditions []metav1.Condition) float64 {
	if c := meta.FindStatusCondition(conditions, v1alpha1.ConditionVerified); c != nil {
		return truth(c.Status)
	}

	return truth(metav1.ConditionUnknown)
}

func number(is bool) float64 {
	if is {
		return 1
	}

	return 0
}
