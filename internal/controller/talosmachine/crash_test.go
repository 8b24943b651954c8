package talosmachine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/lab/apid"
)

// scenario is one kind of change.
type scenario struct {
	machine string
	// begin requests the change; n makes it different each time.
	begin func(e *env, n int)
	// step is what users and the group do meanwhile.
	step func(e *env, m *v1alpha1.TalosMachine)
	// text is part of the live configuration at the end.
	text func(n int) string
	// boots is how often the change reboots the machine.
	boots int
	// more boots are permitted: a node that may have been asked to roll back is not asked again in the same boot.
	more int
	// ended reports whether the change is complete.
	ended func(*v1alpha1.TalosMachine) bool
}

// letGo grants the planned change, as the group does.
func letGo(reboot bool) func(e *env, m *v1alpha1.TalosMachine) {
	return func(e *env, m *v1alpha1.TalosMachine) {
		if c := m.Status.Change; c == nil || c.Phase != v1alpha1.ChangePending || rollout.Granted(m) {
			return
		}

		if m.Spec.Role == v1alpha1.RoleControlPlane {
			e.disrupt(m.Name)
		}

		e.grant(m.Name, reboot)
	}
}

var scenarios = map[string]scenario{
	"without a reboot": {
		machine: "w-0", step: letGo(false), ended: done,
		begin: func(e *env, n int) { e.patchAll(fmt.Sprintf("machine: {nodeLabels: {shelf: s%d}}", n)) },
		text:  func(n int) string { return fmt.Sprintf("shelf: s%d", n) },
	},
	"on trial": {
		machine: "w-0", step: letGo(false), ended: done,
		begin: func(e *env, n int) { e.patchAll(fmt.Sprintf("machine: {certSANs: [n%d.example.org]}", n)) },
		text:  func(n int) string { return fmt.Sprintf("n%d.example.org", n) },
	},
	"with a reboot": {
		machine: "w-0", step: letGo(true), ended: done, boots: 1,
		begin: func(e *env, n int) { e.patchAll(fmt.Sprintf("machine: {env: {SHELF: s%d}}", n)) },
		text:  func(n int) string { return fmt.Sprintf("SHELF: s%d", n) },
	},
	"a reboot of the control plane": {
		machine: "cp-0", step: letGo(true), ended: done, boots: 1,
		begin: func(e *env, n int) { e.patchAll(fmt.Sprintf("machine: {env: {SHELF: s%d}}", n)) },
		text:  func(n int) string { return fmt.Sprintf("SHELF: s%d", n) },
	},
	"staged": {
		machine: "w-0", ended: done, boots: 1,
		begin: func(e *env, n int) {
			e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) {
				s.Rollout.RebootPolicy = v1alpha1.RebootManual
				s.ClusterConfigPatches = []string{fmt.Sprintf("machine: {env: {SHELF: s%d}}", n)}
			})
		},
		step: func(e *env, m *v1alpha1.TalosMachine) {
			letGo(false)(e, m)

			if in(v1alpha1.ChangeAwaitingReboot)(m) && !e.runs(m.Name, m.Annotations["test/text"]) {
				e.reboot(m.Name)
			}
		},
		text: func(n int) string { return fmt.Sprintf("SHELF: s%d", n) },
	},
	"an edit that is kept": {
		machine: "w-0", step: letGo(false),
		begin: func(e *env, n int) {
			e.rollout(policy(v1alpha1.DriftAdopt))
			e.edit("w-0", fmt.Sprintf("machine: {nodeLabels: {by%d: hand}}", n))
		},
		text: func(n int) string { return fmt.Sprintf("by%d: hand", n) },
		ended: func(m *v1alpha1.TalosMachine) bool {
			// Earlier adopted changes already exist: this edit must be among them.
			label, _, _ := strings.Cut(m.Annotations["test/text"], ":")

			return done(m) && m.Status.WorkingHash == m.Status.ConfigHash &&
				slices.ContainsFunc(m.Status.AdoptedFields, func(f string) bool { return strings.HasSuffix(f, label) })
		},
	},
	"an edit that is undone, tried again": {
		machine: "w-0", step: letGo(false), ended: done,
		begin: func(e *env, n int) {
			e.rollout(policy(v1alpha1.DriftEnforce))
			e.edit("w-0", fmt.Sprintf("machine: {nodeLabels: {by: hand%d}}", n))
			e.nodes["w-0"].Faults().Add(apid.Rule{Method: "ApplyConfiguration", Code: 3, From: 2, Count: 1})
			e.Eventually("it fails", func(context.Context) error {
				m, _, err := e.pass("w-0")
				letGo(false)(e, m)

				if !failed(m) {
					return fmt.Errorf("%s; last pass: %w", show(m), err)
				}

				return nil
			})
			e.nodes["w-0"].Faults().Clear()
			e.annotate("w-0", v1alpha1.RetryAnnotation, "true")
		},
		text: func(int) string { return "machine:" },
	},
	"another Talos": {
		machine: "w-0", step: letGo(true), ended: noChange, boots: 1,
		begin: func(e *env, n int) { e.upgradeTo(n) },
		text:  func(int) string { return "machine:" },
	},
	"Talos rolled back": {
		machine: "w-0", step: letGo(true), boots: 1, more: 1,
		begin: func(e *env, n int) {
			change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) { m.Annotations = nil })
			e.upgradeTo(n)

			m := e.until("w-0", "it is upgraded", func(m *v1alpha1.TalosMachine) bool {
				letGo(true)(e, m)

				return m.Status.Change == nil && m.Status.TalosVersion == patched(n)
			})
			e.annotate("w-0", v1alpha1.RevertAnnotation, m.Status.PreviousSystem.ReplacedBy)
		},
		text:  func(int) string { return "machine:" },
		ended: reason(v1alpha1.ConditionUpToDate, v1alpha1.ReasonReverted),
	},
	"another kubelet": {
		machine: "w-0", step: letGo(false), ended: noChange,
		begin: func(e *env, n int) { e.kubelet(fmt.Sprintf("v1.36.%d", 2+n)) },
		text:  func(n int) string { return fmt.Sprintf("kubelet:v1.36.%d", 2+n) },
	},
}

// noChange: the machine has no change. Its configuration names the version of before until the whole cluster is through.
func noChange(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil && m.Status.Intent == nil }

// patched is a version of Talos that is newer for each n.
func patched(n int) string { return fmt.Sprintf("v1.13.%d", 9+n) }

func (e *env) upgradeTo(n int) {
	e.Helper()
	e.follow(patched(n), installer+patched(n))
}

// TestCrash kills the operator after each of its effects, on the API server or on a node, one after the other, before
// it gets the response, and restarts it: each kind of change ends as it would have without the crash, and nothing is
// repeated unless that is harmless.
func TestCrash(t *testing.T) {
	for name, s := range scenarios {
		t.Run(name, func(t *testing.T) {
			e := found(t, 1, 1)

			// Every call that requests a change from a node is an effect.
			for _, n := range e.nodes {
				t.Cleanup(n.Faults().Subscribe(func(c apid.Call) {
					if c.Mutating {
						e.Client.Effect()
					}
				}))
			}

			crashes := 0

			for n := 1; e.run(s, n); n++ {
				crashes++
			}

			if crashes < 2 {
				t.Errorf("only %d effects", crashes)
			}

			t.Logf("%d effects", crashes)
		})
	}
}

// run makes a change and kills the operator after its nth effect. It reports whether there were that many.
func (e *env) run(s scenario, n int) bool {
	e.Helper()

	s.begin(e, n)
	e.annotate(s.machine, "test/text", s.text(n))

	boots := map[string]bool{e.boots(s.machine): true}
	crashed := false

	e.Client.DieAfter(n)
	e.Eventually(fmt.Sprintf("the end after a crash at effect %d", n), func(context.Context) error {
		e.sleep(time.Second)

		m, _, err := e.pass(s.machine)
		boots[e.boots(s.machine)] = true

		switch {
		case e.Client.Dead():
			crashed = true

			e.restart()
		case s.ended(m) && e.ranThrough(s, n):
			return nil
		default:
			s.step(e, m)
		}

		return fmt.Errorf("%s; last pass: %w", show(m), err)
	})

	e.restart() // no more crashes

	delete(boots, "")

	if got := len(boots) - 1; got < s.boots || got > s.boots+s.more {
		e.Errorf("after a crash at effect %d: %d boots", n, len(boots)-1)
	}

	e.record(func(r *clusterstate.Runtime) { r.Disruption = nil })

	if m := e.until(s.machine, "it stays so", s.ended); m.Annotations[v1alpha1.RetryAnnotation] != "" || e.cordoned(s.machine) {
		e.Errorf("after a crash at effect %d: annotations %v, cordoned %t", n, m.Annotations, e.cordoned(s.machine))
	}

	return crashed
}

func (e *env) ranThrough(s scenario, n int) bool {
	return e.runs(s.machine, s.text(n)) && e.nodes[s.machine].Status().Ready
}
