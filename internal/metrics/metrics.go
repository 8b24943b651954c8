// Package metrics holds the operator's own metrics, as docs/metrics.md describes them.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/failure"
)

var (
	// Machines counts Machines that were generated.
	Machines = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "talos_operator_machines_generated", Help: "Generated machines count.",
	}, []string{"cluster", "role"})
	// Duration of reconciliations.
	Duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "talos_operator_reconciliation_duration_seconds", Help: "Reconciliation duration.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 12),
	}, []string{"controller"})
	// Errors of reconciliations by type.
	Errors = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "talos_operator_reconciliation_errors_total", Help: "Reconciliation errors.",
	}, []string{"controller", "error_type"})
	// FileOperations counts writes and removals of manifest files.
	FileOperations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "talos_operator_file_operations_total", Help: "File operations.",
	}, []string{"operation", "status"})
	// NotificationsSent counts notifications of upgrades that a receiver accepted.
	NotificationsSent = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "talos_operator_notifications_sent_total", Help: "Notifications that a receiver accepted.",
	}, []string{"type"})
	// NotificationsFailed counts notifications of upgrades that are not tried again.
	NotificationsFailed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "talos_operator_notifications_failed_total", Help: "Notifications that were refused, or not delivered in time.",
	}, []string{"type"})
)

func init() {
	metrics.Registry.MustRegister(Machines, Duration, Errors, FileOperations, NotificationsSent, NotificationsFailed)

	// A counter that begins with its first failure shows no increase.
	for _, t := range []v1alpha1.NotificationType{v1alpha1.NotificationGeneric, v1alpha1.NotificationSlack} {
		NotificationsSent.WithLabelValues(string(t))
		NotificationsFailed.WithLabelValues(string(t))
	}
}

// ForgetMachines drops what was counted of the machines of a cluster that is gone.
func ForgetMachines(cluster string) {
	Machines.DeletePartialMatch(prometheus.Labels{"cluster": cluster})
}

// CountFile is the hook for manifest stores.
func CountFile(operation, status string) { FileOperations.WithLabelValues(operation, status).Inc() }

// CountError counts a reconciliation that failed.
func CountError(controller string, err error) {
	Errors.WithLabelValues(controller, errorType(err)).Inc()
}

// errorType is the condition reason of an error; what has none is Unexpected.
func errorType(err error) string {
	if reason := failure.Reason(err); reason != "" {
		return reason
	}

	return "Unexpected"
}
