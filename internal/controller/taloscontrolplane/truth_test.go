package taloscontrolplane_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/test/wait"
)

func has(cp *v1alpha1.TalosControlPlane, kind, reason string) bool {
	c := meta.FindStatusCondition(cp.Status.Conditions, kind)

	return c != nil && c.Reason == reason
}

// available waits until the cluster is available.
func (e *env) available(cp *v1alpha1.TalosControlPlane) {
	e.Helper()
	e.until(cp, "the cluster is available", func() bool { return has(cp, v1alpha1.ConditionAvailable, v1alpha1.ReasonAvailable) })
}

// TestQuorumLost: a lost quorum has a reason of its own, with the missing members and how to regain the quorum, while
// the remaining member runs and after it was started alone. No call is made that would never return.
func TestQuorumLost(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(3)
	e.available(cp)

	nodes[1].Kill()
	nodes[2].Kill()

	asked := nodes[0].Faults().Calls("EtcdAlarmList")

	lost := func(what string) {
		t.Helper()
		e.until(cp, what, func() bool {
			return has(cp, v1alpha1.ConditionAvailable, v1alpha1.ReasonQuorumLost) &&
				has(cp, v1alpha1.ConditionReady, v1alpha1.ReasonQuorumLost)
		})

		for _, kind := range []string{v1alpha1.ConditionAvailable, v1alpha1.ConditionEtcdHealthy} {
			e.Condition(cp, kind, metav1.ConditionFalse, v1alpha1.ReasonQuorumLost, "power on or reconnect cp-1, cp-2; if they "+
				"cannot come back with the data, use a TalosEtcdRestore")
		}

		e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "")
		e.Condition(cp, v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable, "cp-1, cp-2")

		if cp.Status.EtcdMembers != 3 {
			t.Errorf("%d members", cp.Status.EtcdMembers)
		}
	}

	lost("the loss shows")

	since := wait.Now()

	for range 2 {
		_, _ = e.pass(cp)
	}

	if w := e.Writes(since); len(w) != 0 {
		t.Errorf("a loss that goes on is written again: %v", w)
	}

	if got := nodes[0].Faults().Calls("EtcdAlarmList"); got != asked {
		t.Errorf("%d calls that never end", got-asked)
	}

	nodes[0].Kill()
	e.until(cp, "nobody answers", func() bool {
		return has(cp, v1alpha1.ConditionAvailable, v1alpha1.ReasonAPIServerUnavailable)
	})
	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionUnknown, v1alpha1.ReasonWaitingForEvidence,
		"cp-0, cp-1, cp-2 are unreachable")

	if err := nodes[0].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	lost("the loss shows on a node that was started without quorum")

	for _, n := range nodes[1:] {
		if err := n.PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	e.available(cp)
}

// TestRefusedSpecHidesNothing: whatever is wrong with a spec, the conditions report the real state of the nodes.
func TestRefusedSpecHidesNothing(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.established(3)
	e.available(cp)

	good := cp.Spec.DeepCopy()
	dead := false

	for reason, spoil := range map[string]func(*v1alpha1.TalosControlPlaneSpec){
		v1alpha1.ReasonInvalidPatch:       func(s *v1alpha1.TalosControlPlaneSpec) { s.ConfigPatches = []string{"machine: ["} },
		v1alpha1.ReasonDowngradeRefused:   func(s *v1alpha1.TalosControlPlaneSpec) { s.TalosVersion = "v1.13.1" },
		v1alpha1.ReasonUnsupportedVersion: func(s *v1alpha1.TalosControlPlaneSpec) { s.KubernetesVersion = "v1.99.0" },
	} {
		good.DeepCopyInto(&cp.Spec)
		spoil(&cp.Spec)
		e.Update(cp)

		res, err := e.pass(cp)
		if !isTerminal(err) || res.RequeueAfter <= 0 {
			t.Errorf("%s: %v, %+v", reason, err, res)
		}

		e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, "")
		e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, reason, "")

		if !dead {
			e.Condition(cp, v1alpha1.ConditionAvailable, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "")
			nodes[1].Kill()
			nodes[2].Kill()

			dead = true
		}

		e.until(cp, "the loss shows", func() bool { return has(cp, v1alpha1.ConditionAvailable, v1alpha1.ReasonQuorumLost) })
		e.Condition(cp, v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable, "cp-1, cp-2")
		e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, v1alpha1.ReasonQuorumLost, "cp-1, cp-2")
		e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "")
	}
}

// TestConditionsExpire: without credentials nothing can be observed, and after some time nothing is claimed. That is
// written once, and new observations are reported again.
func TestConditionsExpire(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)
	e.available(cp)

	seen := e.Clock.Now()
	secret := e.secret("c-state")
	whole := secret.Data["secretBundle"]
	secret.Data["secretBundle"] = whole[:len(whole)/2]
	e.Update(secret)

	kinds := map[string]string{
		v1alpha1.ConditionAvailable: v1alpha1.ReasonAvailable, v1alpha1.ConditionReachable: v1alpha1.ReasonReachable,
		v1alpha1.ConditionEtcdHealthy: v1alpha1.ReasonEtcdHealthy,
	}

	res, err := e.pass(cp)
	if !isTerminal(err) || res.RequeueAfter <= 0 || res.RequeueAfter > condition.Bound {
		t.Errorf("%v, %+v", err, res)
	}

	for kind, reason := range kinds {
		e.Condition(cp, kind, metav1.ConditionTrue, reason, "")
	}

	e.Clock.Sleep(condition.Bound)

	since := wait.Now()

	for range 3 {
		_, _ = e.pass(cp)

		for kind := range kinds {
			e.Condition(cp, kind, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, seen.UTC().Format("15:04:05 MST"))
		}

		e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionTrue, v1alpha1.ReasonBootstrapped, "")
		e.Clock.Sleep(time.Minute)
	}

	if w := e.Writes(since); len(w) != 1 {
		t.Errorf("writes: %v", w)
	}

	secret.Data["secretBundle"] = whole
	e.Update(secret)
	e.available(cp)
}

// TestNothingIsClaimedOfMachinesThatWereNeverAsked: machines without an address are not reachable, and machines without
// a configuration are not up to date.
func TestNothingIsClaimedOfMachinesThatWereNeverAsked(t *testing.T) {
	e := newEnv(t)
	e.boot(0)

	cp := e.create(3, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines[1].Address, cp.Spec.Machines[1].MachineRef = "", &v1alpha1.ObjectReference{Name: "m-1"}
	})

	_, _ = e.pass(cp)

	for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate} {
		if c := meta.FindStatusCondition(cp.Status.Conditions, kind); c.Status == metav1.ConditionTrue {
			t.Errorf("%+v", c)
		}
	}
}
