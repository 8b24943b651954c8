package metrics

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/kube"
)

var (
	upgradeLabels = []string{"namespace", "control_plane"}

	upgradeInfo = prometheus.NewDesc("talos_operator_upgrade_info",
		"The upgrade in progress: the component, Talos or a part of Kubernetes, and the version that machines get now. "+
			"Empty labels while it waits. Absent where there is none.", append(upgradeLabels[:2:2], "component", "version"), nil)
	upgradeSteps = prometheus.NewDesc("talos_operator_upgrade_steps_left",
		"Steps that are left of the path of an upgrade. Absent where there is none.", upgradeLabels, nil)
	runMachines = prometheus.NewDesc("talos_operator_upgrade_run_machines",
		"Machines of the open run of an upgrade by their state: Done, Failed, or Left. Absent where there is none.",
		append(upgradeLabels[:2:2], "component", "state"), nil)
	machineChanges = prometheus.NewDesc("talos_operator_machine_changes",
		"Machines with a change of a kind, Config, Talos or Kubernetes, in a phase.",
		append(upgradeLabels[:2:2], "kind", "phase"), nil)
)

// RunDuration of the runs of upgrades, by component and by how they ended.
var RunDuration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
	Name: "talos_operator_upgrade_run_duration_seconds", Help: "Duration of finished runs of upgrades, from their record.",
	Buckets: []float64{60, 300, 900, 1800, 3600, 7200, 14400, 28800, 86400, 259200, 604800},
}, []string{"component", "outcome"})

func init() {
	ctrlmetrics.Registry.MustRegister(RunDuration)

	// A series that begins with its first run shows no increase.
	for _, of := range []v1alpha1.ChangeKind{v1alpha1.ChangeTalos, v1alpha1.ChangeKubernetes} {
		for _, outcome := range []v1alpha1.UpgradeRunPhase{
			v1alpha1.UpgradeRunSucceeded, v1alpha1.UpgradeRunFailed, v1alpha1.UpgradeRunCalledOff,
		} {
			RunDuration.WithLabelValues(string(of), string(outcome))
		}
	}
}

// Upgrades tells of upgrades, and of the changes of machines, when it is scraped, from the cache.
type Upgrades struct {
	// Client reads from the cache.
	Client client.Reader
}

// Describe implements prometheus.Collector.
func (Upgrades) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upgradeInfo, upgradeSteps, runMachines, machineChanges} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (u Upgrades) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	planes, machines := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosMachineList{}
	talos, kubernetes := &v1alpha1.TalosUpgradeList{}, &v1alpha1.KubernetesUpgradeList{}

	for _, list := range []client.ObjectList{planes, machines, talos, kubernetes} {
		if err := u.Client.List(ctx, list, kube.Shared); err != nil {
			ch <- prometheus.NewInvalidMetric(upgradeInfo, err)

			return
		}
	}

	for i := range planes.Items {
		collectUpgrade(ch, &planes.Items[i])
	}

	collectChanges(ch, machines.Items)

	runs := openRuns{planes: planes.Items, counts: map[[4]string]int32{}}

	for i := range talos.Items {
		runs.add(v1alpha1.ChangeTalos, &talos.Items[i], &talos.Items[i].Spec, &talos.Items[i].Status)
	}

	for i := range kubernetes.Items {
		runs.add(v1alpha1.ChangeKubernetes, &kubernetes.Items[i], &kubernetes.Items[i].Spec, &kubernetes.Items[i].Status)
	}

	for labels, n := range runs.counts {
		ch <- prometheus.MustNewConstMetric(runMachines, prometheus.GaugeValue, float64(n), labels[:]...)
	}
}

// openRuns counts the machines of open runs by the labels of their series: a series that is there twice would fail the
// whole scrape.
type openRuns struct {
	planes []v1alpha1.TalosControlPlane
	counts map[[4]string]int32
}

// add counts an open run, unless its control plane is gone or another one of its name: then it is never closed.
func (r *openRuns) add(
	of v1alpha1.ChangeKind, o metav1.Object, spec *v1alpha1.UpgradeRunSpec, st *v1alpha1.UpgradeRunStatus,
) {
	if st.Phase == "" || st.CompletionTime != nil { // most are finished
		return
	}

	if !slices.ContainsFunc(r.planes, func(cp v1alpha1.TalosControlPlane) bool {
		return cp.Namespace == o.GetNamespace() && cp.Name == spec.ControlPlaneRef.Name && metav1.IsControlledBy(o, &cp)
	}) {
		return
	}

	for state, n := range map[string]int32{"Done": st.Done, "Failed": st.Failed, "Left": st.Total - st.Done - st.Failed} {
		r.counts[[4]string{o.GetNamespace(), spec.ControlPlaneRef.Name, string(of), state}] += n
	}
}

func collectUpgrade(ch chan<- prometheus.Metric, cp *v1alpha1.TalosControlPlane) {
	u := cp.Status.Upgrade
	if u == nil {
		return
	}

	component, version := "", u.TalosVersion
	if version != "" {
		component = string(v1alpha1.ChangeTalos)
	}

	if n := len(u.Components); n > 0 {
		component, version = string(u.Components[n-1]), u.KubernetesVersion
	}

	ch <- prometheus.MustNewConstMetric(upgradeInfo, prometheus.GaugeValue, 1, cp.Namespace, cp.Name, component, version)
	ch <- prometheus.MustNewConstMetric(upgradeSteps, prometheus.GaugeValue, float64(u.StepsLeft), cp.Namespace, cp.Name)
}

func collectChanges(ch chan<- prometheus.Metric, machines []v1alpha1.TalosMachine) {
	counts := map[[4]string]int{}

	for i := range machines {
		m := &machines[i]
		if c := m.Status.Change; c != nil {
			kind := c.Kind
			if kind == "" {
				kind = v1alpha1.ChangeConfig
			}

			counts[[4]string{m.Namespace, m.Spec.ControlPlaneRef.Name, string(kind), string(c.Phase)}]++
		}
	}

	for labels, n := range counts {
		ch <- prometheus.MustNewConstMetric(machineChanges, prometheus.GaugeValue, float64(n), labels[:]...)
	}
}
