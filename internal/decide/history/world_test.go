package history_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

const (
	oldTalos, newTalos = "v1.12.4", "v1.13.9"
	oldKube, newKube   = "v1.34.3", "v1.35.10"
	schematic          = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"
)

// world is a cluster as its objects show it: control-plane machines a and b, and a worker w.
type world struct {
	cp       *v1alpha1.TalosControlPlane
	machines map[string]*v1alpha1.TalosMachine
	workers  []v1alpha1.TalosWorker
	runs     map[upgrade.Component][]history.Run
	now      time.Time
}

func newWorld() *world {
	w := &world{
		cp:       &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 1}},
		machines: map[string]*v1alpha1.TalosMachine{}, runs: map[upgrade.Component][]history.Run{},
		now: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC),
	}
	w.cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}

	for _, name := range []string{"a", "b", "w"} {
		w.add(name)
	}

	return w
}

// add adds a machine with the versions of before; those from w on are workers.
func (w *world) add(name string) *v1alpha1.TalosMachine {
	m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Status.TalosVersion, m.Status.KubeletVersion = oldTalos, oldKube
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionConfigured, Status: metav1.ConditionTrue}}

	if name >= "w" {
		m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "workers"}
	} else {
		m.Status.ComponentVersions = &v1alpha1.ComponentVersions{APIServer: oldKube, ControllerManager: oldKube, Scheduler: oldKube}
	}

	w.machines[name] = m

	return m
}

// plan has the control plane plan a version of Talos or of Kubernetes.
func (w *world) plan(talos, kubernetes, message string) {
	w.cp.Status.Upgrade = &v1alpha1.UpgradeStatus{
		ObservedGeneration: w.cp.Generation, TalosVersion: talos, KubernetesVersion: kubernetes, Message: message,
	}
}

// planSchematics has the control plane plan schematics in the version of before.
func (w *world) planSchematics() {
	w.plan(oldTalos, "", "")
	w.cp.Status.Upgrade.SchematicsOnly = true
}

// changes gives a machine a change of Talos.
func (w *world) changes(name string, phase v1alpha1.ChangePhase, message string, fields ...v1alpha1.FieldChange) {
	if len(fields) == 0 {
		fields = []v1alpha1.FieldChange{{Field: upgrade.FieldTalos, Old: oldTalos, New: newTalos}}
	}

	w.machines[name].Status.Change = &v1alpha1.MachineChange{
		Kind: v1alpha1.ChangeTalos, Phase: phase, Message: message, Fields: fields, Image: "factory/installer:" + newTalos,
	}
}

// replaces gives a machine a change of a component of Kubernetes.
func (w *world) replaces(name string, phase v1alpha1.ChangePhase, version, message string) {
	w.machines[name].Status.Change = &v1alpha1.MachineChange{
		Kind: v1alpha1.ChangeKubernetes, Phase: phase, Message: message, Image: "registry.k8s.io/kube-apiserver:" + version,
	}
}

// runsTalos ends the changes of machines with a version.
func (w *world) runsTalos(version string, names ...string) {
	for _, name := range names {
		w.machines[name].Status.TalosVersion, w.machines[name].Status.Change = version, nil
	}
}

func (w *world) runsKubernetes(version string, names ...string) {
	for _, name := range names {
		m := w.machines[name]
		m.Status.KubeletVersion, m.Status.Change = version, nil

		if m.Status.ComponentVersions != nil {
			*m.Status.ComponentVersions = v1alpha1.ComponentVersions{APIServer: version, ControllerManager: version, Scheduler: version}
		}
	}
}

func (w *world) next(of upgrade.Component) history.Outcome { return history.Next(w.input(of)) }

// input is what is observed of a component.
func (w *world) input(of upgrade.Component) history.Input {
	in := history.Input{Component: of, ControlPlane: w.cp, Runs: w.runs[of], Workers: w.workers, Now: w.now}

	for _, m := range w.machines { // in any order
		in.Machines = append(in.Machines, *m)
	}

	return in
}

// writes are how many of the writes of an outcome are made before the caller dies.
type writes int

const (
	statusOnly writes = iota + 1
	createdBare
	createdWhole
	all
)

// apply writes an outcome.
func (w *world) apply(of upgrade.Component, out history.Outcome, upTo writes) {
	if out.Update != nil {
		i := slices.IndexFunc(w.runs[of], func(r history.Run) bool { return r.Name == out.Update.Name })
		w.runs[of][i].Status = *out.Update.Status.DeepCopy()
	}

	if out.Create != nil && upTo >= createdBare {
		created := *out.Create
		if upTo == createdBare {
			created.Status = v1alpha1.UpgradeRunStatus{}
		}

		w.runs[of] = append(w.runs[of], created)
	}

	if upTo == all {
		w.runs[of] = slices.DeleteFunc(w.runs[of], func(r history.Run) bool { return slices.Contains(out.Delete, r.Name) })
	}
}

// settle decides about both components, and writes everything.
func (w *world) settle() {
	for _, of := range []upgrade.Component{upgrade.Talos, upgrade.Kubernetes} {
		w.apply(of, w.next(of), all)
	}
}

// String shows the newest runs, in one line each.
func (w *world) String() string {
	var out []string

	for _, of := range []upgrade.Component{upgrade.Talos, upgrade.Kubernetes} {
		for _, r := range w.runs[of] {
			out = append(out, show(&r))
		}
	}

	return strings.Join(out, "\n")
}

func show(r *history.Run) string {
	var machines []string

	for _, m := range r.Status.Machines {
		text := m.Name + " " + m.From + " " + string(m.State)
		if m.StartedAt != nil && m.CompletedAt != nil {
			text += " " + m.CompletedAt.Sub(m.StartedAt.Time).String()
		}

		machines = append(machines, text)
	}

	return strings.TrimSpace(fmt.Sprintf("%s %s>%s %s %s (%s) %s", r.Name, r.Spec.From, r.Spec.To, r.Status.Phase,
		r.Status.Progress, strings.Join(machines, ", "), r.Status.Message))
}
