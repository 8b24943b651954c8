package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// certificateExpiry is the end of each certificate, as Unix time.
var certificateExpiry = prometheus.NewGaugeVec(prometheus.GaugeOpts{
	Name: "talos_operator_certificate_expiry_timestamp_seconds",
	Help: "When a certificate of a cluster ends, as Unix time.",
}, []string{"namespace", "cluster", "certificate"})

func init() { metrics.Registry.MustRegister(certificateExpiry) }

// Certificate tells when a certificate of a TalosControlPlane ends.
func Certificate(namespace, cluster, certificate string, end time.Time) {
	certificateExpiry.WithLabelValues(namespace, cluster, certificate).Set(float64(end.Unix()))
}

// ForgetCertificates drops what was told of a TalosControlPlane that is gone.
func ForgetCertificates(namespace, cluster string) {
	certificateExpiry.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster": cluster})
}
