package taloscontrolplane

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestCause: a reboot that the operator has asked for explains a control plane that is not ready, unless there is more.
func TestCause(t *testing.T) {
	for name, tc := range map[string]struct {
		turn func(*scope)
		want condition.Cause
	}{
		"a reboot":             {func(*scope) {}, condition.Intended},
		"the nodes not looked": {func(s *scope) { s.held = nil }, condition.Unexplained},
		"an alarm":             {func(s *scope) { s.nodes = []safety.Node{{Alarms: []string{"NOSPACE"}}} }, condition.Notable},
		"one leaves":           {func(s *scope) { s.extra = []string{"b"} }, condition.Notable},
		"one is to be created": {func(s *scope) { s.cp.Spec.Machines = make([]v1alpha1.MachineEntry, 2) }, condition.Notable},
		"not established":      {func(s *scope) { s.held.State.Runtime.Bootstrap = nil }, condition.Notable},
		"a change has failed":  {func(s *scope) { s.machines[0].Status.Change.Phase = v1alpha1.ChangeFailed }, condition.Notable},
	} {
		m := v1alpha1.TalosMachine{}
		m.Status.WorkingHash = "hash"
		m.Status.Change = &v1alpha1.MachineChange{Phase: v1alpha1.ChangeRebooting}

		s := &scope{
			cp:       &v1alpha1.TalosControlPlane{Spec: v1alpha1.TalosControlPlaneSpec{Machines: make([]v1alpha1.MachineEntry, 1)}},
			held:     &clusterstate.Held{State: &clusterstate.State{}},
			machines: []v1alpha1.TalosMachine{m},
		}
		s.held.State.Runtime.Bootstrap = &clusterstate.Bootstrap{EstablishedAt: &time.Time{}}
		tc.turn(s)

		if got := s.cause(); got != tc.want {
			t.Errorf("%s: %d, want %d", name, got, tc.want)
		}
	}
}

// TestWaitsFor: a control plane that is not ready always says what it waits for: also a machine that is ready and no
// member of etcd, and one that does not exist yet while another one leaves.
func TestWaitsFor(t *testing.T) {
	const created = "machines that are being created"

	machine := func(name string, ready bool) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}

		if !ready {
			c.Status, c.Message = metav1.ConditionFalse, "it boots"
		}

		m.Status.Conditions = []metav1.Condition{c}

		return m
	}

	for name, tc := range map[string]struct {
		machines      []v1alpha1.TalosMachine
		voting, extra []string
		want          string
	}{
		"nothing exists":        {nil, nil, nil, "waiting for " + created},
		"never observed":        {[]v1alpha1.TalosMachine{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}, nil, nil, "waiting for a, " + created},
		"one boots":             {[]v1alpha1.TalosMachine{machine("a", true), machine("b", false)}, []string{"a"}, nil, "waiting for b (it boots)"},
		"one leaves, one to be": {[]v1alpha1.TalosMachine{machine("a", true), machine("old", true)}, []string{"a", "old"}, []string{"old"}, "waiting for " + created},
		"one is no member": {
			[]v1alpha1.TalosMachine{machine("a", true), machine("b", true)},
			[]string{"a"},
			nil, "waiting for b (its etcd member is not healthy, or does not vote yet)",
		},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.Machines = []v1alpha1.MachineEntry{{Name: "a"}, {Name: "b"}}
		cp.Status.Replicas = 2

		s := &scope{cp: cp, machines: tc.machines, extra: tc.extra, etcd: safety.EtcdHealth{Voting: tc.voting}, observed: true}
		cp.Status.ReadyReplicas = readyMachines(s)

		setReady(s, nil, condition.Begin(&cp.Status.Conditions, 1))

		c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionReady)
		if c == nil || c.Reason != v1alpha1.ReasonWaitingForMachines || c.Message != tc.want {
			t.Errorf("%s: %+v, want %q", name, c, tc.want)
		}
	}
}

// TestEditIsNotUpToDate: after an edit of the control plane, what machines have said about the spec before is not taken
// for the new one.
func TestEditIsNotUpToDate(t *testing.T) {
	m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionTrue}}

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	cp.Spec.Machines = []v1alpha1.MachineEntry{{Name: "a"}}
	m.Status.ComparedTo = rollout.ComparedTo(cp, nil, &m)

	for generation, want := range map[int64]metav1.ConditionStatus{1: metav1.ConditionTrue, 2: metav1.ConditionUnknown} {
		cp.Generation, cp.Status.Conditions = generation, nil
		s := &scope{cp: cp, machines: []v1alpha1.TalosMachine{m}, observed: true}

		setUpToDate(s, nil, condition.Begin(&cp.Status.Conditions, generation))

		if c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionUpToDate); c == nil || c.Status != want {
			t.Errorf("generation %d: %+v", generation, c)
		}
	}
}
