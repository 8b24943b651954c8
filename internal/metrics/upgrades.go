package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	machineChanges = prometheus.NewDesc("talos_operator_machine_changes",
		"Machines with a change of a kind, Config, Talos or Kubernetes, in a phase.",
		append(upgradeLabels[:2:2], "kind", "phase"), nil)
)

// Upgrades tells of upgrades, and of the changes of machines, when it is scraped, from the cache.
type Upgrades struct {
	// Client reads from the cache.
	Client client.Reader
}

// Describe implements prometheus.Collector.
func (Upgrades) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upgradeInfo, upgradeSteps, machineChanges} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (u Upgrades) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()

	planes, machines := &v1alpha1.TalosControlPlaneList{}, &v1alpha1.TalosMachineList{}

	for _, list := range []client.ObjectList{planes, machines} {
		if err := u.Client.List(ctx, list, kube.Shared); err != nil {
			ch <- prometheus.NewInvalidMetric(upgradeInfo, err)

			return
		}
	}

	for i := range planes.Items {
		collectUpgrade(ch, &planes.Items[i])
	}

	collectChanges(ch, machines.Items)
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
