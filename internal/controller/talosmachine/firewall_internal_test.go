package talosmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

func walled() *scope {
	s := &scope{
		machine: &v1alpha1.TalosMachine{}, controlPlane: &v1alpha1.TalosControlPlane{}, answer: talos.StateMember,
		neighbours: make([]v1alpha1.TalosMachine, 1), held: &clusterstate.Held{},
	}
	s.controlPlane.Spec.IngressFirewall = &v1alpha1.IngressFirewall{}
	s.neighbours[0].Name, s.neighbours[0].Status.Address = "w-0", "192.0.2.1"

	return s
}

// TestNeighboursAreLookedAt: another address of a neighbour ends the trust in the last comparison.
func TestNeighboursAreLookedAt(t *testing.T) {
	t.Parallel()

	s := walled()
	at := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)
	before := look{config: "1", neighbours: s.neighboursDigest()}

	var l looks

	l.settle("m", before, own{}, at)

	if got := l.trust("m", look{config: "1", neighbours: s.neighboursDigest()}, at); got != settled {
		t.Errorf("the same addresses: %d", got)
	}

	s.neighbours[0].Status.Address = "192.0.2.2"

	if got := l.trust("m", look{config: "1", neighbours: s.neighboursDigest()}, at); got != outdated {
		t.Errorf("another address: %d", got)
	}
}

// TestMoved: a firewall is compared again when a machine comes, goes or has another address, and not when anything else
// of it changes.
func TestMoved(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		change func(*v1alpha1.TalosMachine)
		want   bool
	}{
		"nothing":  {func(*v1alpha1.TalosMachine) {}, false},
		"stage":    {func(m *v1alpha1.TalosMachine) { m.Status.Stage = "running" }, false},
		"spec":     {func(m *v1alpha1.TalosMachine) { m.Spec.Address = "192.0.2.1" }, true},
		"status":   {func(m *v1alpha1.TalosMachine) { m.Status.Address = "192.0.2.1" }, true},
		"reported": {func(m *v1alpha1.TalosMachine) { m.Status.Addresses = []string{"192.0.2.1"} }, true},
	} {
		before, after := &v1alpha1.TalosMachine{}, &v1alpha1.TalosMachine{}
		tt.change(after)

		if got := moved().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}

	m := &v1alpha1.TalosMachine{}
	if !moved().Create(event.CreateEvent{Object: m}) || moved().Create(event.CreateEvent{Object: m, IsInInitialList: true}) ||
		!moved().Delete(event.DeleteEvent{Object: m}) {
		t.Error("a machine comes, is listed at the start, or goes")
	}
}

// TestFirewallCondition: what the live firewall closes is a condition while it is compared, and disappears with its cause.
func TestFirewallCondition(t *testing.T) {
	t.Parallel()

	s := walled()
	s.machine.Name, s.compared, s.shutOut = "cp-0", true, []string{"tcp 6443 (the Kubernetes API) to w-0 (192.0.2.1)"}
	set := condition.Begin(&s.machine.Status.Conditions, 1)

	setFirewall(s, set)

	c := meta.FindStatusCondition(s.machine.Status.Conditions, v1alpha1.ConditionFirewallShutsOut)
	if c == nil || c.Reason != v1alpha1.ReasonNeighbourShutOut || !strings.Contains(c.Message,
		"machine cp-0 runs does not open tcp 6443 (the Kubernetes API) to w-0 (192.0.2.1); add") {
		t.Fatalf("%+v", c)
	}

	s.compared, s.shutOut = false, nil
	setFirewall(s, set)

	if !meta.IsStatusConditionTrue(s.machine.Status.Conditions, v1alpha1.ConditionFirewallShutsOut) {
		t.Error("it disappears although nothing was compared")
	}

	// A pass that trusts the last comparison keeps it, for however long.
	var evidence condition.Evidence

	s.settled, s.probed, s.answer, s.facts = true, true, talos.StateMember, &talos.Facts{Stage: change.StageRunning}

	for i := range 3 {
		at := time.Unix(1_800_000_000, 0).Add(time.Duration(i) * time.Hour)
		evidence.Expire(s.key(), computeStatus(s, nil), at, condition.BoundOf(time.Minute), observedConditions...)
	}

	if !meta.IsStatusConditionTrue(s.machine.Status.Conditions, v1alpha1.ConditionFirewallShutsOut) {
		t.Errorf("it is forgotten while the last comparison is trusted: %+v", s.machine.Status.Conditions)
	}

	s.machine.Status.Conditions, s.compared, s.settled = nil, true, false
	set = condition.Begin(&s.machine.Status.Conditions, 1)
	setFirewall(s, set)

	if len(s.machine.Status.Conditions) > 0 {
		t.Errorf("it stays: %+v", s.machine.Status.Conditions)
	}
}
