package taloscontrolplane_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestHooksOfSchematics: another schematic in the version that runs is a step of its own: nothing begins before it is
// planned, and it has its hooks and its backup like a version.
func TestHooksOfSchematics(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)
	e.playsJobs()
	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })

	job := runtime.RawExtension{Raw: []byte(`{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`)}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, PrePull: v1alpha1.PrePullNever, Hooks: []v1alpha1.UpgradeHook{
		{Name: "check", When: v1alpha1.HookBefore, Namespace: e.Namespace, Job: job},
		{Name: "report", When: v1alpha1.HookAfter, Namespace: e.Namespace, Job: job},
	}}
	e.Update(cp)

	runs := func(change func(*v1alpha1.TalosMachine)) {
		e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
			m.Status.TalosVersion, m.Status.KubeletVersion, m.Status.Change = harness.TalosVersion, harness.KubernetesVersion, nil
			change(m)
		})
	}

	// Once the step is planned, the machine is compared to it.
	wants := func(schematic string) {
		for range 2 {
			runs(func(m *v1alpha1.TalosMachine) {
				pending(m)
				m.Status.Change.ID, m.Status.Change.Kind = "change-"+schematic, v1alpha1.ChangeTalos
				m.Status.Change.Fields = []v1alpha1.FieldChange{{Field: upgrade.FieldSchematic, Old: "a", New: schematic}}
			})
			e.step(cp)
		}
	}

	runs(func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	if _, all := e.jobs(); all != 0 || cp.Status.Upgrade != nil {
		t.Fatalf("%d Jobs, %+v", all, cp.Status.Upgrade)
	}

	wants("b")

	first := e.oneJob("before", 1)

	if u := cp.Status.Upgrade; !u.SchematicsOnly || u.TalosVersion != harness.TalosVersion || u.ControlPlaneDone || e.granted(1) != "" ||
		!strings.Contains(u.Message, "waiting for hook check before Talos "+harness.TalosVersion+" with another schematic") ||
		!strings.Contains(u.Obstacles, "no backup before this upgrade") {
		t.Fatalf("granted %q, %+v", e.granted(1), u)
	}

	e.endJob(first, true)
	e.step(cp)

	if g := e.granted(1); g != "cp-0" {
		t.Fatalf("granted %q, %+v", g, cp.Status.Upgrade)
	}

	runs(func(*v1alpha1.TalosMachine) {})
	e.step(cp)

	last := e.oneJob("after", 2)
	if got := last.Spec.Template.Spec.Containers[0].Env[0].Value; got != "Succeeded" || cp.Status.Upgrade != nil {
		t.Errorf("%s, %+v", got, cp.Status.Upgrade)
	}

	e.endJob(last, true)

	for range 2 {
		e.step(cp)
	}

	// Another one later is another run.
	wants("")
	e.oneJob("another one", 3)
}
