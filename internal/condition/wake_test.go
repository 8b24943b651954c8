package condition_test

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/failure"
)

// TestLet: another owner, none any more, or the end of the object may let another object go on; nothing else does.
func TestLet(t *testing.T) {
	owned := func(uid types.UID) *v1alpha1.TalosMachine {
		m := &v1alpha1.TalosMachine{}
		if uid != "" {
			m.OwnerReferences = []metav1.OwnerReference{{UID: uid, Controller: new(true)}}
		}

		return m
	}
	let := condition.Let()

	for name, tc := range map[string]struct {
		before, after types.UID
		want          bool
	}{
		"still the same": {"a", "a", false}, "still none": {"", "", false}, "another": {"a", "b", true}, "released": {"a", "", true},
		"adopted": {"", "a", true},
	} {
		got := let.Update(event.UpdateEvent{ObjectOld: owned(tc.before), ObjectNew: owned(tc.after)})
		if got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}

	if let.Create(event.CreateEvent{Object: owned("")}) || !let.Delete(event.DeleteEvent{Object: owned("a")}) {
		t.Error("a new object lets nothing go on, and one that is gone does")
	}
}

// TestWakeStalled: what is stalled for the reason goes on, in the namespace of the object that is gone.
func TestWakeStalled(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	stalled := func(namespace, name string, status metav1.ConditionStatus, reason string) *v1alpha1.TalosWorker {
		w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: status, Reason: reason}}

		return w
	}

	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		stalled("ns", "waits", metav1.ConditionTrue, "Taken"), stalled("ns", "refused", metav1.ConditionTrue, "InvalidSpec"),
		stalled("ns", "went-on", metav1.ConditionFalse, "Taken"), stalled("elsewhere", "waits", metav1.ConditionTrue, "Taken"),
		&v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"}},
	).Build()

	wake := condition.WakeStalled(c, func() client.ObjectList { return &v1alpha1.TalosWorkerList{} },
		func(w *v1alpha1.TalosWorker) []metav1.Condition { return w.Status.Conditions }, "Taken")

	var got []string
	for _, req := range wake(t.Context(), &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gone"}}) {
		got = append(got, req.String())
	}

	if !slices.Equal(got, []string{"ns/waits"}) {
		t.Errorf("%v", got)
	}
}

// TestTransient: Paused, Stalled, Deleting and Reconciling are there while they are true, and no longer; an error of a
// spec stalls, any other one is being worked on.
func TestTransient(t *testing.T) {
	refused, away := failure.Terminal("InvalidSpec", "the field is wrong", nil), failure.Waiting("NodeUnreachable", "it is away", 0)

	for name, tc := range map[string]struct {
		paused, deleting bool
		err              error
		want             []string
	}{
		"well":                {false, false, nil, nil},
		"waits":               {false, false, away, []string{"Reconciling NodeUnreachable it is away"}},
		"refused":             {false, false, refused, []string{"Stalled InvalidSpec the field is wrong"}},
		"paused":              {true, false, away, []string{"Paused Paused the paused annotation is set here or above"}},
		"being deleted":       {false, true, nil, []string{"Deleting Deleting the object is being deleted"}},
		"deletion that waits": {false, true, away, []string{"Deleting NodeUnreachable it is away"}},
	} {
		conditions := []metav1.Condition{
			{Type: v1alpha1.ConditionPaused, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionDeleting, Status: metav1.ConditionTrue},
			{Type: v1alpha1.ConditionReconciling, Status: metav1.ConditionTrue},
		}
		condition.Begin(&conditions, 1).Transient(tc.paused, tc.deleting, tc.err)

		var got []string
		for _, c := range conditions {
			got = append(got, c.Type+" "+c.Reason+" "+c.Message)
		}

		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
