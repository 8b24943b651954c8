package taloscontrolplane

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestSchematicsOf: another schematic in the version that each machine runs is a step of its own, in which workers come
// after the control plane.
func TestSchematicsOf(t *testing.T) {
	type edit func(*v1alpha1.TalosMachine)

	wants := func(phase v1alpha1.ChangePhase, fields ...string) edit {
		return func(m *v1alpha1.TalosMachine) {
			m.Status.Change = &v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: phase}
			for _, f := range fields {
				m.Status.Change.Fields = append(m.Status.Change.Fields, v1alpha1.FieldChange{Field: f, New: "b"})
			}
		}
	}
	back := func(m *v1alpha1.TalosMachine) { m.Status.Change.Cause = v1alpha1.CauseRevert }
	another := wants(v1alpha1.ChangePending, upgrade.FieldSchematic)
	condition := func(kind, status, reason string) edit {
		return func(m *v1alpha1.TalosMachine) {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: kind, Status: metav1.ConditionStatus(status), Reason: reason})
		}
	}
	machine := func(name string, edits []edit) v1alpha1.TalosMachine {
		m := kubernetesMachine(name, "v1.36.2", "v1.36.2", "v1.36.2", nil)
		m.Generation = 2
		m.Status.TalosVersion, m.Status.ComparedTo = "v1.13.9", "7/0/2/v1.13.9/false/7/schematics"

		if name == "w" {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "group"}
			m.Status.ComponentVersions = nil
		}

		for _, e := range edits {
			e(&m)
		}

		return m
	}

	for name, c := range map[string]struct {
		cp, worker []edit
		edit       func(*v1alpha1.TalosControlPlane)
		want       string
		message    string
	}{
		"no other one":               {want: "nothing"},
		"by the control plane":       {cp: []edit{another}, want: "v1.13.9 [cp] false"},
		"by both":                    {cp: []edit{another}, worker: []edit{another}, want: "v1.13.9 [cp w] false"},
		"by a worker":                {worker: []edit{another}, want: "v1.13.9 [w] true"},
		"taken away":                 {worker: []edit{wants(v1alpha1.ChangeFailed, upgrade.FieldSchematic)}, want: "v1.13.9 [w] true"},
		"what is rolled back is not": {cp: []edit{another, back}, want: "nothing"},
		"a configuration comes first": {
			cp:     []edit{wants(v1alpha1.ChangePending), func(m *v1alpha1.TalosMachine) { m.Status.Change.Kind = v1alpha1.ChangeConfig }},
			worker: []edit{another}, want: "v1.13.9 [w] false", message: "cp has another change before it",
		},
		"a rollback waits": {
			cp: []edit{another}, worker: []edit{wants(v1alpha1.ChangePending, upgrade.FieldTalos), back}, want: "v1.13.9 [cp] false",
		},
		"a rollback has failed": {
			cp: []edit{another}, worker: []edit{wants(v1alpha1.ChangeFailed, upgrade.FieldTalos), back}, want: "v1.13.9 [cp] false",
		},
		"a rollback has begun": {
			cp: []edit{another}, worker: []edit{wants(v1alpha1.ChangeRebooting, upgrade.FieldTalos), back}, want: "nothing",
		},
		"a step that a failed rollback does not keep": {
			worker: []edit{wants(v1alpha1.ChangeFailed, upgrade.FieldSchematic), back},
			edit: func(cp *v1alpha1.TalosControlPlane) {
				cp.Status.Upgrade = &v1alpha1.UpgradeStatus{Target: "v1.13.9", TalosVersion: "v1.13.9", SchematicsOnly: true}
			},
			want: "nothing",
		},
		"the control plane was rolled back": {
			cp: []edit{condition(v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonReverted)}, worker: []edit{another},
			want: "v1.13.9 [w] false", message: "cp was rolled back",
		},
		"the control plane may want one": {
			cp: []edit{func(m *v1alpha1.TalosMachine) { m.Status.ComparedTo = "6/0/2" }}, worker: []edit{another},
			want: "v1.13.9 [w] false", message: "waiting until what cp runs is compared",
		},
		"the machine has changed": {
			cp: []edit{func(m *v1alpha1.TalosMachine) { m.Status.ComparedTo = "7/0/21" }}, worker: []edit{another},
			want: "v1.13.9 [w] false", message: "waiting until what cp runs is compared",
		},
		"a version comes first": {
			cp: []edit{another}, worker: []edit{func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.13.8" }},
			want: "version v1.13.9",
		},
		"a version proves itself": {
			cp: []edit{another}, worker: []edit{wants(v1alpha1.ChangeSettling, upgrade.FieldTalos)}, want: "nothing",
		},
		"a version comes first, of an older spec": {
			cp: []edit{another}, edit: func(cp *v1alpha1.TalosControlPlane) { cp.Spec.TalosVersion = "v1.13.10" },
			want: "version v1.13.10",
		},
		"Kubernetes comes first, and then a version": {
			cp: []edit{another, func(m *v1alpha1.TalosMachine) { m.Status.TalosVersion = "v1.13.8" }},
			edit: func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.KubernetesVersion, cp.Status.Upgrade = "v1.36.4", &v1alpha1.UpgradeStatus{KubernetesBegun: "v1.36.4"}
			},
			want: "version v1.13.9",
		},
		"Kubernetes has not begun": {
			cp: []edit{another}, edit: func(cp *v1alpha1.TalosControlPlane) { cp.Spec.KubernetesVersion = "v1.36.4" },
			want: "v1.13.9 [cp] false",
		},
		"Kubernetes has begun": {
			cp: []edit{another}, edit: func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.KubernetesVersion, cp.Status.Upgrade = "v1.36.4", &v1alpha1.UpgradeStatus{KubernetesBegun: "v1.36.4"}
			},
			want: "Kubernetes v1.36.4",
		},
		"no path": {
			cp: []edit{another}, edit: func(cp *v1alpha1.TalosControlPlane) { cp.Spec.KubernetesVersion = "v1.35.0" },
			want: "version ", message: "Kubernetes",
		},
		"not automatic": {
			cp: []edit{another}, edit: func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Upgrade.Talos = v1alpha1.UpgradeReport }, want: "nothing",
		},
		"not selected": {
			cp: []edit{another}, edit: func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.Upgrade.MachineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "1"}}
			},
			want: "nothing",
		},
		"the selected one": {
			cp: []edit{another}, worker: []edit{another, func(m *v1alpha1.TalosMachine) { m.Labels = map[string]string{"ring": "1"} }},
			edit: func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.Upgrade.MachineSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "1"}}
			},
			want: "v1.13.9 [w] true",
		},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion, cp.Status.ObservedKubeVersion = "v1.13.9", "v1.36.2", "v1.36.2"
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}

		if c.edit != nil {
			c.edit(cp)
		}

		got, said, message := upgradeOf(cp, nil, []v1alpha1.TalosMachine{machine("cp", c.cp), machine("w", c.worker)}), "nothing", ""

		switch {
		case got == nil:
		case got.SchematicsOnly:
			said, message = fmt.Sprint(got.TalosVersion, " ", got.Machines, " ", got.ControlPlaneDone), got.Message
		case got.KubernetesVersion != "":
			said = "Kubernetes " + got.KubernetesVersion
		default:
			said = "version " + got.TalosVersion
			message = got.Message
		}

		if said != c.want || !strings.Contains(message, c.message) {
			t.Errorf("%s: %s: %s", name, said, message)
		}
	}
}
