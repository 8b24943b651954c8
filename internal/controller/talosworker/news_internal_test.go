package talosworker

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestRebootsAreNoNews: the reboots of a rollout, whose plan is told, are not told by the group; a machine that is lost is.
func TestRebootsAreNoNews(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}}
	w.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0"}}

	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	told := events.NewFakeRecorder(20)
	r := &Reconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(w).WithStatusSubresource(w).Build(), Recorder: told,
		Clock: testclock.NewFakePassiveClock(at), Resync: time.Minute,
	}

	for i, step := range []struct {
		status metav1.ConditionStatus
		phase  v1alpha1.ChangePhase
		want   bool
	}{
		{metav1.ConditionTrue, "", true},
		{metav1.ConditionFalse, v1alpha1.ChangeRebooting, false},
		{metav1.ConditionFalse, v1alpha1.ChangeSettling, false},
		{metav1.ConditionTrue, "", false},
		{metav1.ConditionFalse, "", true},
		{metav1.ConditionTrue, "", true},
	} {
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
			t.Fatal(err)
		}

		m := machineWith("w-0", step.status)
		m.Status.WorkingHash = "hash"

		if step.phase != "" {
			m.Status.Change = &v1alpha1.MachineChange{Phase: step.phase, Since: metav1.NewTime(at)}
		}

		s := &scope{worker: w, base: w.DeepCopy(), machines: []v1alpha1.TalosMachine{m}, listed: true, valid: true}
		if _, err := r.finish(t.Context(), s, ctrl.Result{}, nil); err != nil {
			t.Fatal(err)
		}

		var got []string

		for len(told.Events) > 0 {
			if text := <-told.Events; strings.Contains(text, " Ready is ") {
				got = append(got, text)
			}
		}

		if len(got) > 0 != step.want {
			t.Errorf("step %d: told %q", i, got)
		}
	}
}
