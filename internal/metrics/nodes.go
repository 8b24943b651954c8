package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/internal/talos/nodewatch"
)

// nodeCalls has no label for the machine: a fleet of a thousand machines would have a million series.
// talos_operator_machine_call_duration_seconds tells which ones are slow, talos_operator_machine_condition which ones
// do not respond.
var nodeCalls = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "talos_operator_node_call_duration_seconds", Help: "Duration of calls to the Talos API of nodes.",
	Buckets: []float64{0.005, 0.02, 0.1, 0.5, 1, 2.5, 5, 10, 30},
}, []string{"method", "code"})

func init() { metrics.Registry.MustRegister(nodeCalls) }

// NodeCall is the hook for connections to nodes. Both labels have few values: the methods are those that the operator
// calls, the codes those of gRPC.
func NodeCall(method string, code codes.Code, took time.Duration) {
	nodeCalls.WithLabelValues(method, code.String()).Observe(took.Seconds())
}

var (
	nodeStreams = prometheus.NewDesc("talos_operator_node_streams",
		"Event streams of nodes, by their mode and whether they are open.", []string{"mode", "state"}, nil)
	nodeStreamsLost = prometheus.NewDesc("talos_operator_node_streams_lost_total",
		"Event streams that were open and ended by themselves. Each is opened again.", []string{"mode"}, nil)
)

// streamModes are the labels of the modes.
var streamModes = map[nodewatch.Mode]string{nodewatch.Maintenance: "maintenance", nodewatch.Secure: "secure"}

// Streams tells of the event streams of nodes when it is scraped.
type Streams struct {
	// Read returns the state of the streams.
	Read func() map[nodewatch.Mode]nodewatch.Streams
}

// Describe implements prometheus.Collector.
func (Streams) Describe(ch chan<- *prometheus.Desc) {
	ch <- nodeStreams
	ch <- nodeStreamsLost
}

// Collect implements prometheus.Collector.
func (s Streams) Collect(ch chan<- prometheus.Metric) {
	for mode, of := range s.Read() {
		name := streamModes[mode]

		gauge(ch, nodeStreams, float64(of.Open), name, "open")
		gauge(ch, nodeStreams, float64(of.Closed), name, "closed")
		ch <- prometheus.MustNewConstMetric(nodeStreamsLost, prometheus.CounterValue, float64(of.Lost), name)
	}
}
