package history_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestHeldDrain: a record names the machine whose drain waits for a user, and what holds it, for as long as it does. A
// machine that does not respond in between is held all the same.
func TestHeldDrain(t *testing.T) {
	const held = "w is not drained after 5m0s, because of default/db"

	w := newWorld()
	w.plan(newTalos, "", "")
	w.settle()

	ready := func(reason, message string) func() {
		return func() {
			meta.SetStatusCondition(&w.machines["w"].Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: message,
			})
		}
	}

	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"not ready before", ready(v1alpha1.ReasonDrainHeld, "an earlier drain"), ""},
		{"no answer at the begin", func() {
			ready(v1alpha1.ReasonNodeUnreachable, "w is unreachable")()
			w.changes("w", v1alpha1.ChangeDraining, "")
		}, ""},
		{"draining", ready(v1alpha1.ReasonDraining, "waiting for default/db to leave w"), ""},
		{"held", ready(v1alpha1.ReasonDrainHeld, held), held},
		{"held by another pod", ready(v1alpha1.ReasonDrainHeld, held+", default/web"), held + ", default/web"},
		{"no answer", ready(v1alpha1.ReasonNodeUnreachable, "w is unreachable"), held + ", default/web"},
		{"held again", ready(v1alpha1.ReasonDrainHeld, held), held},
		{"another timeout", ready(v1alpha1.ReasonDraining, "waiting for default/db to leave w"), ""},
		{"held once more", ready(v1alpha1.ReasonDrainHeld, held), held},
		{"drained", func() { w.changes("w", v1alpha1.ChangeApplying, "") }, ""},
	} {
		w.now = w.now.Add(time.Minute)
		step.do()
		w.settle()

		st := w.runs[upgrade.Talos][0].Status
		if st.Phase != v1alpha1.UpgradeRunRunning || st.Message != step.want || st.Machines[2].Message != step.want {
			t.Errorf("%s: %s %q, machine %q, want %q", step.name, st.Phase, st.Message, st.Machines[2].Message, step.want)
		}
	}
}
