package talosworker

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
)

func machineWith(name string, status metav1.ConditionStatus) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Status.ComparedTo = rollout.ComparedTo(&v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &m)

	if status != "" {
		for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate} {
			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: "Test"})
		}
	}

	return m
}

// TestStatusClaimsNothing: nothing is claimed about machines that were never queried or do not exist yet, and a
// rejected spec hides nothing that the machines report.
func TestStatusClaimsNothing(t *testing.T) {
	refused := failure.Terminal(v1alpha1.ReasonInvalidPatch, "it does not parse", nil)

	for name, tc := range map[string]struct {
		machines            []v1alpha1.TalosMachine
		err                 error
		reachable, upToDate metav1.ConditionStatus
	}{
		"not created yet":  {nil, nil, metav1.ConditionUnknown, metav1.ConditionUnknown},
		"one not created":  {[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionTrue)}, nil, metav1.ConditionUnknown, metav1.ConditionUnknown},
		"one never asked":  {[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionTrue), machineWith("b", "")}, nil, metav1.ConditionUnknown, metav1.ConditionUnknown},
		"one not observed": {[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionTrue), machineWith("b", metav1.ConditionUnknown)}, nil, metav1.ConditionUnknown, metav1.ConditionUnknown},
		"one silent":       {[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionFalse), machineWith("b", "")}, nil, metav1.ConditionFalse, metav1.ConditionFalse},
		"all well":         {[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionTrue), machineWith("b", metav1.ConditionTrue)}, nil, metav1.ConditionTrue, metav1.ConditionTrue},
		"refused, all well": {
			[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionTrue), machineWith("b", metav1.ConditionTrue)},
			refused,
			metav1.ConditionTrue, metav1.ConditionFalse,
		},
		"refused, one silent": {
			[]v1alpha1.TalosMachine{machineWith("a", metav1.ConditionFalse), machineWith("b", metav1.ConditionTrue)},
			refused,
			metav1.ConditionFalse, metav1.ConditionFalse,
		},
	} {
		w := &v1alpha1.TalosWorker{Spec: v1alpha1.TalosWorkerSpec{Machines: []v1alpha1.MachineEntry{{Name: "a"}, {Name: "b"}}}}
		s := &scope{
			worker: w, base: w.DeepCopy(), controlPlane: &v1alpha1.TalosControlPlane{}, machines: tc.machines, listed: true,
			valid: tc.err == nil,
		}

		computeStatus(s, tc.err)

		for kind, want := range map[string]metav1.ConditionStatus{
			v1alpha1.ConditionReachable: tc.reachable, v1alpha1.ConditionUpToDate: tc.upToDate,
		} {
			if c := meta.FindStatusCondition(w.Status.Conditions, kind); c.Status != want {
				t.Errorf("%s: %s is %+v", name, kind, c)
			}
		}

		ready := meta.IsStatusConditionTrue(w.Status.Conditions, v1alpha1.ConditionReady)
		if all := tc.reachable == metav1.ConditionTrue && tc.err == nil; ready != all {
			t.Errorf("%s: ready is %t", name, ready)
		}
	}

	// A reconciliation that could not list the machines has no new evidence, and decides no conditions.
	w := &v1alpha1.TalosWorker{}
	if set := computeStatus(&scope{worker: w, base: w.DeepCopy()}, errors.New("the API server is gone")); len(*set.Conditions) == 0 {
		t.Error("no conditions")
	}

	for _, c := range w.Status.Conditions {
		if c.Type != v1alpha1.ConditionReconciling && c.Status != metav1.ConditionUnknown {
			t.Errorf("claimed without a list of machines: %+v", c)
		}
	}
}

// TestEditIsNotUpToDate: after an edit of the group or of its control plane, what machines have said about the spec
// before is not taken for the new one.
func TestEditIsNotUpToDate(t *testing.T) {
	for name, tc := range map[string]struct {
		worker, controlPlane int64
		want                 metav1.ConditionStatus
	}{
		"no edit":                  {0, 0, metav1.ConditionTrue},
		"of the group":             {1, 0, metav1.ConditionUnknown},
		"of its control plane":     {0, 1, metav1.ConditionUnknown},
		"of both at the same time": {1, 1, metav1.ConditionUnknown},
	} {
		w := &v1alpha1.TalosWorker{Spec: v1alpha1.TalosWorkerSpec{Machines: []v1alpha1.MachineEntry{{Name: "a"}}}}
		s := &scope{
			worker: w, base: w.DeepCopy(), controlPlane: &v1alpha1.TalosControlPlane{}, listed: true, valid: true,
			machines: []v1alpha1.TalosMachine{machineWith("a", metav1.ConditionTrue)},
		}
		w.Generation, s.controlPlane.Generation = tc.worker, tc.controlPlane

		computeStatus(s, nil)

		c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionUpToDate)
		if c.Status != tc.want || c.ObservedGeneration != tc.worker {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestCause: a reboot that the operator has asked for explains a group that is not ready, unless there is more.
func TestCause(t *testing.T) {
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

	for name, tc := range map[string]struct {
		turn func(*scope)
		want condition.Cause
	}{
		"a reboot":             {func(*scope) {}, condition.Intended},
		"one leaves":           {func(s *scope) { s.extra = []string{"b"} }, condition.Notable},
		"one is to be created": {func(s *scope) { s.worker.Spec.Machines = make([]v1alpha1.MachineEntry, 2) }, condition.Notable},
		"it takes too long":    {func(s *scope) { s.machines[0].Status.Change.Since.Time = at.Add(-time.Hour) }, condition.Notable},
	} {
		m := v1alpha1.TalosMachine{}
		m.Status.WorkingHash = "hash"
		m.Status.Change = &v1alpha1.MachineChange{Phase: v1alpha1.ChangeRebooting, Since: metav1.NewTime(at)}

		s := &scope{
			worker:   &v1alpha1.TalosWorker{Spec: v1alpha1.TalosWorkerSpec{Machines: make([]v1alpha1.MachineEntry, 1)}},
			machines: []v1alpha1.TalosMachine{m}, listed: true,
		}
		tc.turn(s)

		if got := s.cause(at); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// TestWaitsFor: a group that is not ready always says what it waits for, also where no listed machine exists yet, or only
// one that leaves.
func TestWaitsFor(t *testing.T) {
	const created = "machines that are being created"

	ready, lost := metav1.ConditionTrue, metav1.ConditionFalse

	for name, tc := range map[string]struct {
		machines []v1alpha1.TalosMachine
		extra    []string
		want     string
	}{
		"nothing exists": {nil, nil, "0 of 2 machines are ready, waiting for " + created},
		"one exists and is ready": {
			[]v1alpha1.TalosMachine{machineWith("a", ready)}, nil, "1 of 2 machines are ready, waiting for " + created,
		},
		"one exists and is not ready": {
			[]v1alpha1.TalosMachine{machineWith("a", lost)}, nil, "0 of 2 machines are ready, waiting for a, " + created,
		},
		"another one leaves meanwhile": {
			[]v1alpha1.TalosMachine{machineWith("a", ready), machineWith("old", ready)},
			[]string{"old"},
			"1 of 2 machines are ready, waiting for " + created,
		},
		"one that leaves is not waited for": {
			[]v1alpha1.TalosMachine{machineWith("a", ready), machineWith("b", lost), machineWith("old", lost)},
			[]string{"old"},
			"1 of 2 machines are ready, waiting for b",
		},
	} {
		w := &v1alpha1.TalosWorker{Spec: v1alpha1.TalosWorkerSpec{Machines: []v1alpha1.MachineEntry{{Name: "a"}, {Name: "b"}}}}
		s := &scope{
			worker: w, base: w.DeepCopy(), controlPlane: &v1alpha1.TalosControlPlane{}, machines: tc.machines, extra: tc.extra,
			listed: true, valid: true,
		}

		computeStatus(s, nil)

		if c := meta.FindStatusCondition(w.Status.Conditions, v1alpha1.ConditionReady); c.Message != tc.want {
			t.Errorf("%s: %q, want %q", name, c.Message, tc.want)
		}
	}
}
