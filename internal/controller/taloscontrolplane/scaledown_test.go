package taloscontrolplane_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// shrink keeps only the named machines on the list, and keeps the objects of the others until the test releases them,
// as the TalosMachine controller does.
func (e *env) shrink(cp *v1alpha1.TalosControlPlane, names ...string) {
	e.Helper()

	for _, entry := range cp.Spec.Machines {
		m := &v1alpha1.TalosMachine{}
		e.Get(m, entry.Name)

		m.Finalizers = append(m.Finalizers, "example.org/hold")
		e.Update(m)
	}

	cp.Spec.Machines = slices.DeleteFunc(cp.Spec.Machines, func(m v1alpha1.MachineEntry) bool {
		return !slices.Contains(names, m.Name)
	})

	e.Update(cp)
}

// going returns the machines that are being removed from the cluster.
func (e *env) going() []string {
	e.Helper()

	list := &v1alpha1.TalosMachineList{}
	if err := e.Admin.List(e.Context(), list, client.InNamespace(e.Namespace)); err != nil {
		e.Fatal(err)
	}

	var out []string

	for _, m := range list.Items {
		if !m.DeletionTimestamp.IsZero() && m.Spec.OnDelete == v1alpha1.OnDeleteDecommission {
			out = append(out, m.Name)
		}
	}

	return out
}

// TestScaleDownOrder: of two machines to be removed, the outdated one is removed before the one with the higher index,
// which waits for it, whatever happens in between.
func TestScaleDownOrder(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.running(3)

	e.ready("cp-0", "cp-1", "cp-2")

	m := &v1alpha1.TalosMachine{}
	e.Get(m, "cp-1")

	m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonConfigDiffers,
		LastTransitionTime: metav1.NewTime(e.Clock.Now()),
	})
	e.UpdateStatus(m)

	e.shrink(cp, "cp-0")

	for range 3 {
		e.after(time.Minute, cp)
	}

	if got := e.going(); !slices.Equal(got, []string{"cp-1"}) {
		t.Errorf("%v are being taken out", got)
	}

	if d := e.state().Runtime.Disruption; d == nil || d.Machine != "cp-1" {
		t.Errorf("the record is %+v", d)
	}

	// A crash loses nothing.
	e.restart()
	e.after(time.Minute, cp)

	if got := e.going(); !slices.Equal(got, []string{"cp-1"}) {
		t.Errorf("%v are being taken out after a crash", got)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonScalingDown, "cp-1 is being taken out")
}

// TestScaleDownWaitsForChanges: no machine is taken out while another one is being changed, although that takes no lock.
func TestScaleDownWaitsForChanges(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.running(3)

	e.ready("cp-0", "cp-1", "cp-2")

	changes := func(phase v1alpha1.ChangePhase) {
		m := &v1alpha1.TalosMachine{}
		e.Get(m, "cp-0")

		m.Status.Change = nil
		if phase != "" {
			m.Status.Change = &v1alpha1.MachineChange{
				ID: "0123456789abcdef", Target: "b", Base: "a", Cause: v1alpha1.CauseSpec, Phase: phase,
				Since: metav1.NewTime(e.Clock.Now()),
			}
		}

		e.UpdateStatus(m)
	}

	changes(v1alpha1.ChangeSettling)
	e.shrink(cp, "cp-0")

	for range 2 {
		e.after(time.Minute, cp)
	}

	if got := e.going(); len(got) > 0 {
		t.Errorf("%v are being taken out", got)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonScalingDown,
		": waiting for cp-0, which is being changed")

	changes("")

	for range 2 {
		e.after(time.Minute, cp)
	}

	if got := e.going(); !slices.Equal(got, []string{"cp-2"}) {
		t.Errorf("%v are being taken out", got)
	}
}

// TestPausedRemoval: a paused machine is not removed, and does not block the others.
func TestPausedRemoval(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.running(3)

	e.ready("cp-0", "cp-1", "cp-2")

	pause := func(name, value string) {
		m := &v1alpha1.TalosMachine{}
		e.Get(m, name)
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.PausedAnnotation, value)
		e.Update(m)
	}

	pause("cp-1", "true")
	pause("cp-2", "true")
	e.shrink(cp, "cp-0")
	e.after(time.Minute, cp)
	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonScalingDown, "the removal of cp-")

	if got := e.going(); len(got) > 0 {
		t.Errorf("%v are being taken out", got)
	}

	// The highest index would be removed first.
	pause("cp-1", "false")

	for range 2 {
		e.after(time.Minute, cp)
	}

	if got := e.going(); !slices.Equal(got, []string{"cp-1"}) {
		t.Errorf("%v are being taken out", got)
	}
}
