package history_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/history"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

var (
	components = []upgrade.Component{upgrade.Talos, upgrade.Kubernetes}
	versions   = rapid.SampledFrom([]string{"", "v1.12.4", "v1.13.9", "v1.13.10", "v1.34.3", "v1.35.10", "v1.36.2"})
	phases     = rapid.SampledFrom([]v1alpha1.ChangePhase{
		v1alpha1.ChangePending, v1alpha1.ChangeDraining, v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling, v1alpha1.ChangeFailed,
	})
)

// happen is anything that may happen to the cluster, likely or not.
func (w *world) happen(t *rapid.T) {
	names := []string{}
	for name := range w.machines {
		names = append(names, name)
	}

	slices.Sort(names)

	any := func() *v1alpha1.TalosMachine { return w.machines[rapid.SampledFrom(names).Draw(t, "machine")] }

	switch rapid.SampledFrom([]string{"plan", "plan", "over", "spec", "runs", "runs", "all", "change", "ends", "schematic", "leave", "join"}).Draw(t, "event") {
	case "plan":
		talos, kubernetes := versions.Draw(t, "Talos"), ""
		if talos == "" {
			kubernetes = versions.Draw(t, "Kubernetes")
		}

		w.plan(talos, kubernetes, rapid.SampledFrom([]string{"", "it waits"}).Draw(t, "message"))
		w.cp.Status.Upgrade.SchematicsOnly = kubernetes == "" && rapid.Bool().Draw(t, "schematics only")
	case "over":
		over(w)
	case "spec":
		w.cp.Generation++
		w.cp.Spec.Upgrade.Talos = rapid.SampledFrom([]v1alpha1.UpgradePolicy{"", v1alpha1.UpgradeAutomatic}).Draw(t, "policy")
	case "runs":
		m, version := any(), versions.Draw(t, "version")
		m.Status.TalosVersion, m.Status.KubeletVersion = version, version

		if v := m.Status.ComponentVersions; v != nil {
			v.APIServer, v.Scheduler = version, versions.Draw(t, "scheduler")
			v.ControllerManager = v.Scheduler
		}
	case "all": // to the end
		for _, name := range names {
			if u := w.cp.Status.Upgrade; u != nil {
				w.runsTalos(u.TalosVersion, name)
			}
		}
	case "change":
		m, kind := any(), rapid.SampledFrom([]v1alpha1.ChangeKind{v1alpha1.ChangeTalos, v1alpha1.ChangeKubernetes, v1alpha1.ChangeConfig}).Draw(t, "kind")
		version := versions.Draw(t, "version")
		m.Status.Change = &v1alpha1.MachineChange{
			Kind: kind, Phase: phases.Draw(t, "phase"), Image: "x:" + version, Message: "why",
			Fields: []v1alpha1.FieldChange{{Field: upgrade.FieldTalos, New: version}},
		}
	case "ends":
		any().Status.Change = nil
	case "schematic":
		m := any()
		m.Status.Change = &v1alpha1.MachineChange{
			Kind: v1alpha1.ChangeTalos, Phase: phases.Draw(t, "phase"),
			Fields: []v1alpha1.FieldChange{{
				Field: upgrade.FieldSchematic, New: rapid.SampledFrom([]string{"", schematic}).Draw(t, "schematic"),
			}},
		}
		m.Status.WorkingSystem = upgrade.SystemHash(m.Status.TalosVersion, rapid.SampledFrom([]string{"", schematic}).Draw(t, "works"))
	case "leave":
		any().DeletionTimestamp = &metav1.Time{Time: w.now}
	case "join":
		w.add(fmt.Sprintf("%s-%d", rapid.SampledFrom([]string{"b", "w"}).Draw(t, "role"), len(w.machines)))
	}
}

// TestProperties: whatever happens, and wherever the caller dies, a control plane has one open run of a component, a
// finished run does not change, counts are those of the list, and what was written once is not written again.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		ended := map[string]v1alpha1.UpgradeRunStatus{}
		highest := map[upgrade.Component]int{}

		for range rapid.IntRange(1, 60).Draw(t, "events") {
			w.happen(t)

			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)

			for _, of := range components {
				out := w.next(of)
				if out.Create != nil {
					if n := history.Number(out.Create.Name, "c", of); n != highest[of]+1 {
						t.Fatalf("%s after number %d", out.Create.Name, highest[of])
					}
				}

				upTo := writes(rapid.IntRange(int(statusOnly), int(all)).Draw(t, "writes"))
				w.apply(of, out, upTo)

				if out.Create != nil && upTo >= createdBare {
					highest[of]++
				}

				w.checkRuns(t, of, ended)

				if upTo == all {
					w.checkSettled(t, of)
				}
			}
		}
	})
}

// checkRuns checks what is true of the records at any time.
func (w *world) checkRuns(t *rapid.T, of upgrade.Component, ended map[string]v1alpha1.UpgradeRunStatus) {
	open := 0

	for _, r := range w.runs[of] {
		st := r.Status
		if was, ok := ended[r.Name]; ok && !equality.Semantic.DeepEqual(was, st) {
			t.Fatalf("%s has changed after its end: %+v, before: %+v", r.Name, st, was)
		}

		if history.Finished(&st) {
			ended[r.Name] = *st.DeepCopy()
		} else {
			open++
		}

		states := map[v1alpha1.UpgradeMachineState]int32{}
		for _, m := range st.Machines {
			states[m.State]++

			if m.StartedAt != nil && m.CompletedAt != nil && m.CompletedAt.Before(m.StartedAt) {
				t.Fatalf("%s: %s ended before it began", r.Name, m.Name)
			}
		}

		if int(st.Total) != len(st.Machines) || st.Done != states[v1alpha1.UpgradeMachineDone] ||
			st.Failed != states[v1alpha1.UpgradeMachineFailed] || st.Phase != "" && st.Progress != fmt.Sprintf("%d/%d", st.Done, st.Total) {
			t.Fatalf("the counts of %s are not those of its list", show(&r))
		}

		if st.Phase == v1alpha1.UpgradeRunSucceeded && (st.Total == 0 || st.Done != st.Total) {
			t.Fatalf("no success: %s", show(&r))
		}
	}

	if open > 1 {
		t.Fatalf("%d open runs: %s", open, w)
	}
}

// checkSettled checks that another call, later, has nothing to write.
func (w *world) checkSettled(t *rapid.T, of upgrade.Component) {
	w.now = w.now.Add(time.Minute)

	if out := w.next(of); out.Update != nil || out.Create != nil || len(out.Delete) > 0 {
		t.Fatalf("written again: %+v; %s", out, w)
	}

	finished := 0

	for _, r := range w.runs[of] {
		if history.Finished(&r.Status) {
			finished++
		}
	}

	if finished > history.Kept {
		t.Fatalf("%d finished runs are kept", finished)
	}
}
