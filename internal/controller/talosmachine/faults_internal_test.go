package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/machineconfig/staticpod"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestJudgeServices: a service that no extension brings is told at once, one that does not run after a while only, and one
// that runs, or has ended with success, never.
func TestJudgeServices(t *testing.T) {
	wanted := []v1alpha1.ExtensionService{{Name: "a"}, {Name: "b"}}

	for name, c := range map[string]struct {
		have   map[string]talos.Service
		reason string
		early  bool
		part   string
	}{
		"both run": {map[string]talos.Service{"ext-a": {State: "Running"}, "ext-b": {State: "Finished"}}, "", false, ""},
		"missing": {
			map[string]talos.Service{"ext-a": {State: "Failed"}, "b": {State: "Running"}},
			v1alpha1.ReasonExtensionServiceMissing, false, "the extension services b and has no such services",
		},
		"missing, and another one failed": {
			map[string]talos.Service{"ext-a": {State: "Failed"}},
			v1alpha1.ReasonExtensionServiceMissing, false, "or remove the entries; on machine m: ext-a is Failed",
		},
		"waits": {
			map[string]talos.Service{"ext-a": {State: "Running"}, "ext-b": {State: "Waiting", Message: "Waiting for network"}},
			v1alpha1.ReasonExtensionServiceNotRunning, true, "ext-b is Waiting: Waiting for network",
		},
	} {
		got := judgeServices("m", wanted, c.have)
		if got.reason != c.reason || got.early != c.early || !strings.Contains(got.message, c.part) || (c.part == "") != (got.message == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFaultPatience: what may only need more time is reported after a minute, and begins anew once it has run. What was
// reported stays so while it starts again, also after a restart of the operator, and while it is not observed.
func TestFaultPatience(t *testing.T) {
	const kind = v1alpha1.ConditionExtensionServicesFailed

	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	r := &Reconciler{Clock: clock}
	s := &scope{machine: &v1alpha1.TalosMachine{}}

	var conditions []metav1.Condition

	shown := func(f *fault) bool {
		s.faults = nil
		if f != nil {
			s.faults = map[string]fault{kind: r.patient("m", *f)}
		}

		setFaults(s, condition.Begin(&conditions, 1))

		return len(conditions) > 0
	}

	idle, healthy := &fault{reason: "R", message: "it waits", early: true}, &fault{}
	missing := &fault{reason: "R", message: "no"}

	if shown(idle) || s.lookAgain() != pollFaults {
		t.Error("it is reported at once, or not looked at again soon")
	}

	clock.Step(faultPatience)

	if !shown(idle) || s.lookAgain() != pollReported {
		t.Error("it is not reported after a minute, or looked at too often")
	}

	if shown(healthy) || s.lookAgain() != 0 {
		t.Error("what runs is reported")
	}

	if shown(idle) {
		t.Error("the minute does not begin anew")
	}

	if !shown(missing) {
		t.Error("what is certain is not reported at once")
	}

	if !shown(idle) {
		t.Error("what starts after a failure is taken for running")
	}

	if r = (&Reconciler{Clock: clock}); !shown(idle) {
		t.Error("a restart of the operator ends the report")
	}

	if !shown(nil) {
		t.Error("what was not observed is taken for running")
	}

	if shown(&fault{reason: "R", message: "no", fixed: true}); s.lookAgain() != 0 {
		t.Error("what only a new spec ends is polled for")
	}
}

// TestJudgePods: a pod is found by the name that its Node has, not by one that begins alike. One that the kubelet does not
// report may only need more time, one with a failure does not.
func TestJudgePods(t *testing.T) {
	wanted := []staticpod.Name{{Namespace: "a", Name: "b"}, {Namespace: "a", Name: "b-n"}}

	for name, c := range map[string]struct {
		node  string
		have  map[string]talos.StaticPod
		early bool
		part  string
		state string
	}{
		"both run":       {"N", map[string]talos.StaticPod{"a/b-n": {}, "a/b-n-n": {}}, false, "", "Ready Ready"},
		"with a domain":  {"n.example.org", map[string]talos.StaticPod{"a/b-n.example.org": {}, "a/b-n-n.example.org": {}}, false, "", "Ready Ready"},
		"another domain": {"n", map[string]talos.StaticPod{"a/b-n.example.org": {}, "a/b-n-n": {}}, true, "a/b: the kubelet does not report it", "Missing Ready"},
		"no name yet":    {"", map[string]talos.StaticPod{"a/b-": {}, "a/b-n-": {}}, true, "a/b: the kubelet does not report it", "Missing Missing"},
		"other node":     {"n", map[string]talos.StaticPod{"a/b-m": {}, "a/b-n-n": {}}, true, "a/b: the kubelet does not report it", "Missing Ready"},
		"starts":         {"n", map[string]talos.StaticPod{"a/b-n": {Problem: "not ready", Starting: true}, "a/b-n-n": {}}, true, "a/b: not ready", "Starting Ready"},
		"fails":          {"n", map[string]talos.StaticPod{"a/b-n-n": {Problem: "Failed"}}, false, "a/b: the kubelet does not report it; a/b-n: Failed", "Missing Failed"},
	} {
		got := judgePods("m", wanted, talos.StaticPods{Node: c.node, Pods: c.have})
		if got.early != c.early || !strings.Contains(got.message, c.part) || (c.part == "") != (got.message == "") {
			t.Errorf("%s: %+v", name, got)
		}

		var states []string
		for _, one := range statesOf(wanted, talos.StaticPods{Node: c.node, Pods: c.have}) {
			states = append(states, string(one.State))
		}

		if got := strings.Join(states, " "); got != c.state {
			t.Errorf("%s: the states are %s, want %s", name, got, c.state)
		}
	}
}
