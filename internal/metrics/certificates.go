package metrics

import (
	"sync"
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

// tellers are those who told last of the certificates of a cluster: of two shards of one process, only the one that has
// the cluster may drop what was told.
var tellers sync.Map

type teller struct{ namespace, cluster string }

// Certificate tells when a certificate of a TalosControlPlane ends. by is who tells it.
func Certificate(by any, namespace, cluster, certificate string, end time.Time) {
	tellers.Store(teller{namespace, cluster}, by)
	certificateExpiry.WithLabelValues(namespace, cluster, certificate).Set(float64(end.Unix()))
}

// ForgetControlPlane drops what was told of a TalosControlPlane that is gone.
func ForgetControlPlane(namespace, cluster string) {
	tellers.Delete(teller{namespace, cluster})
	certificateExpiry.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster": cluster})
	observed.forget(namespace, cluster)
}

// LeaveControlPlane drops what was told of a TalosControlPlane that has left a shard, unless another one has told
// since.
func LeaveControlPlane(by any, namespace, cluster string) {
	if tellers.CompareAndDelete(teller{namespace, cluster}, by) {
		certificateExpiry.DeletePartialMatch(prometheus.Labels{"namespace": namespace, "cluster": cluster})
		observed.forget(namespace, cluster)
	}
}
