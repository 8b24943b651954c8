package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

var (
	planeLabels   = []string{"namespace", "control_plane"}
	groupLabels   = []string{"namespace", "control_plane", "group"}
	machineLabels = []string{"namespace", "control_plane", "machine"}

	clusterPhase = prometheus.NewDesc("talos_operator_cluster_phase",
		"1 for the phase of a KubernetesCluster.", []string{"namespace", "cluster", "phase"}, nil)
	planeInfo = prometheus.NewDesc("talos_operator_control_plane_info",
		"1, with the desired version of Talos and the observed one of Kubernetes.",
		append(planeLabels[:2:2], "talos_version", "kubernetes_version"), nil)
	planeCondition = prometheus.NewDesc("talos_operator_control_plane_condition",
		"A condition of a control plane: 1 is True, 0 False, -1 Unknown. Absent where it has none.",
		append(planeLabels[:2:2], "condition"), nil)
	planeMembers = prometheus.NewDesc("talos_operator_control_plane_etcd_members",
		"Members of etcd, including learners, as last observed.", planeLabels, nil)
	groupMachines = prometheus.NewDesc("talos_operator_group_machines",
		"Machines of a group. The group of a control plane is empty.", groupLabels, nil)
	groupReady = prometheus.NewDesc("talos_operator_group_ready_machines",
		"Ready machines of a group.", groupLabels, nil)
	planMachines = prometheus.NewDesc("talos_operator_rollout_machines_left",
		"Machines of a group that the rollout in progress still has to change, by its phase. Absent without one.",
		append(groupLabels[:3:3], "phase"), nil)
	machineInfo = prometheus.NewDesc("talos_operator_machine_info",
		"1, with the role of a machine, its stage and the versions that it runs.",
		append(machineLabels[:3:3], "role", "stage", "talos_version", "kubelet_version"), nil)
	machineCondition = prometheus.NewDesc("talos_operator_machine_condition",
		"A condition of a machine: 1 is True, 0 False, -1 Unknown. Absent where it has none.",
		append(machineLabels[:3:3], "condition"), nil)
	machineLatency = prometheus.NewDesc("talos_operator_machine_call_duration_seconds",
		"How long a machine takes to respond to a small call, as a moving average. Absent while it is not connected.",
		machineLabels, nil)
	lastReconcile = prometheus.NewDesc("talos_operator_last_reconciliation_timestamp_seconds",
		"When the last reconciliation of an object ended, as Unix time.", []string{"namespace", "name", "kind"}, nil)
)

// Conditions that are told. Each costs a series for each object, so they are those that alerts are made of.
var (
	planeConditions = []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionAvailable, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionUpToDate,
		v1alpha1.ConditionCertificatesValid, v1alpha1.ConditionStateAtRisk, v1alpha1.ConditionPaused,
		v1alpha1.ConditionStalled,
	}
	machineConditions = []string{
		v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate, v1alpha1.ConditionStalled,
	}
)

// Fleet tells of each cluster, group and machine when it is scraped, from the cache.
type Fleet struct {
	// Client reads from the cache.
	Client client.Reader
	passes *passes
	part   bool
	// latency is Sources.Latency.
	latency func(machine string) (time.Duration, bool)
}

// Describe implements prometheus.Collector.
func (Fleet) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		clusterPhase, planeInfo, planeCondition, planeMembers, groupMachines, groupReady, planMachines, machineInfo,
		machineCondition, machineLatency, lastReconcile,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (f Fleet) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	clusters, planes := &vitistackv1alpha1.KubernetesClusterList{}, &v1alpha1.TalosControlPlaneList{}
	workers, machines := &v1alpha1.TalosWorkerList{}, &v1alpha1.TalosMachineList{}

	for _, list := range []client.ObjectList{clusters, planes, workers, machines} {
		if err := f.Client.List(ctx, list, kube.Shared); err != nil {
			ch <- prometheus.NewInvalidMetric(clusterPhase, err)

			return
		}
	}

	alive := map[pass]bool{}

	for i := range clusters.Items {
		o := &clusters.Items[i]
		alive[pass{"kubernetescluster", client.ObjectKeyFromObject(o)}] = true

		if phase := string(o.Status.Phase); phase != "" {
			gauge(ch, clusterPhase, 1, o.Namespace, o.Name, phase)
		}
	}

	for i := range planes.Items {
		alive[pass{"taloscontrolplane", client.ObjectKeyFromObject(&planes.Items[i])}] = true

		collectPlane(ch, &planes.Items[i])
	}

	for i := range workers.Items {
		o := &workers.Items[i]
		alive[pass{"talosworker", client.ObjectKeyFromObject(o)}] = true

		collectGroup(ch, []string{o.Namespace, o.Spec.ControlPlaneRef.Name, o.Name}, o.Status.Replicas,
			o.Status.ReadyReplicas, o.Status.Plan)
	}

	for i := range machines.Items {
		o := &machines.Items[i]
		key := client.ObjectKeyFromObject(o)
		alive[pass{"talosmachine", key}] = true

		collectMachine(ch, o)

		if took, ok := f.latency(key.String()); ok {
			gauge(ch, machineLatency, took.Seconds(), o.Namespace, o.Spec.ControlPlaneRef.Name, o.Name)
		}
	}

	f.passes.collect(ch, alive, f.part)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
}

func collectPlane(ch chan<- prometheus.Metric, o *v1alpha1.TalosControlPlane) {
	st, labels := &o.Status, []string{o.Namespace, o.Name}

	gauge(ch, planeInfo, 1, append(labels[:2:2], o.Spec.TalosVersion, st.ObservedKubeVersion)...)
	gauge(ch, planeMembers, float64(st.EtcdMembers), labels...)
	collectConditions(ch, planeCondition, labels, st.Conditions, planeConditions)
	collectGroup(ch, append(labels[:2:2], ""), st.Replicas, st.ReadyReplicas, st.Plan)
}

func collectGroup(ch chan<- prometheus.Metric, labels []string, machines, ready int32, plan *v1alpha1.PlanStatus) {
	gauge(ch, groupMachines, float64(machines), labels...)
	gauge(ch, groupReady, float64(ready), labels...)

	if plan != nil {
		gauge(ch, planMachines, float64(len(plan.Machines)), append(labels[:3:3], string(plan.Phase))...)
	}
}

func collectMachine(ch chan<- prometheus.Metric, o *v1alpha1.TalosMachine) {
	st, labels := &o.Status, []string{o.Namespace, o.Spec.ControlPlaneRef.Name, o.Name}

	gauge(ch, machineInfo, 1, append(labels[:3:3], string(o.Spec.Role), st.Stage, st.TalosVersion, st.KubeletVersion)...)
	collectConditions(ch, machineCondition, labels, st.Conditions, machineConditions)
}

func collectConditions(
	ch chan<- prometheus.Metric, d *prometheus.Desc, labels []string, have []metav1.Condition, told []string,
) {
	for _, kind := range told {
		if c := meta.FindStatusCondition(have, kind); c != nil {
			gauge(ch, d, truth(c.Status), append(labels[:len(labels):len(labels)], kind)...)
		}
	}
}

func truth(status metav1.ConditionStatus) float64 {
	switch status {
	case metav1.ConditionTrue:
		return 1
	case metav1.ConditionFalse:
		return 0
	case metav1.ConditionUnknown:
	}

	return -1
}
