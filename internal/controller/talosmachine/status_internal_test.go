package talosmachine

import (
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/condition"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestWarnings: what is odd about the configuration that a machine runs is said where it says that it runs that.
func TestWarnings(t *testing.T) {
	for want, warnings := range map[string][]string{
		"the machine runs the desired config":                                   nil,
		"the machine runs the desired config; the link eth0 is described twice": {"the link eth0 is described twice"},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}, compared: true, warnings: warnings}

		setUpToDate(s, nil, condition.Set{Conditions: &s.machine.Status.Conditions})

		c := meta.FindStatusCondition(s.machine.Status.Conditions, v1alpha1.ConditionUpToDate)
		if c == nil || c.Status != metav1.ConditionTrue || c.Message != want {
			t.Errorf("%+v, want %q", c, want)
		}
	}
}

// truth is the real state of a node, and what an uninterrupted reconciliation observes of it.
type truth struct {
	answer         talos.State
	ready, differs bool
}

// see reconciles as far as it is allowed to: to nothing, to the node, or to the comparison of its configuration.
func (w truth) see(s *scope, far int, err error) error {
	if far == 0 {
		return err
	}

	s.probed, s.answer, s.address = true, w.answer, "192.0.2.1"

	switch w.answer {
	case talos.StateUnreachable:
		return unreachable(s, nil)
	case talos.StateForeign:
		return failure.Terminal(v1alpha1.ReasonForeignNode, "it runs under another CA", nil)
	case talos.StateMaintenance:
		return err
	case talos.StateMember:
	}

	s.facts = &talos.Facts{Stage: change.StageRunning, Ready: w.ready}

	if far == 1 {
		return err
	}

	if s.compared = true; w.differs {
		s.edited = []string{"machine.sysctls"}
	}

	return nil
}

// claims returns the conditions that are True, and whether they are correct.
func (w truth) claims() map[string]bool {
	member := w.answer == talos.StateMember

	return map[string]bool{
		v1alpha1.ConditionReachable: w.answer != talos.StateUnreachable, v1alpha1.ConditionReady: member && w.ready,
		v1alpha1.ConditionUpToDate: member && !w.differs, v1alpha1.ConditionDrifted: member && w.differs,
	}
}

// TestNoConditionLies: wherever reconciliations end, and whatever happens to the node meanwhile, a condition that is
// True was correct when it was last observed, which is not longer ago than the bound.
func TestNoConditionLies(t *testing.T) {
	errs := []error{
		nil, errors.New("the API server is gone"), failure.Terminal(v1alpha1.ReasonInvalidPatch, "it does not parse", nil),
		failure.Waiting(v1alpha1.ReasonWaitingForAddress, "there is no address", time.Minute),
		failure.Terminal(v1alpha1.ReasonAddressConflict, "the address is taken", nil),
	}

	rapid.Check(t, func(t *rapid.T) {
		m := &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "m"}}
		at, now := map[string]time.Time{}, time.Unix(1_800_000_000, 0)

		var (
			claims condition.Evidence
			seen   [3]truth
		)

		for range rapid.IntRange(1, 20).Draw(t, "passes") {
			w := truth{
				answer: rapid.SampledFrom([]talos.State{
					talos.StateUnreachable, talos.StateMaintenance, talos.StateMember, talos.StateForeign,
				}).Draw(t, "answer"),
				ready: rapid.Bool().Draw(t, "ready"), differs: rapid.Bool().Draw(t, "differs"),
			}
			far := rapid.IntRange(0, 2).Draw(t, "far")
			now = now.Add(time.Duration(rapid.IntRange(1, 400).Draw(t, "seconds")) * time.Second)

			s := newScope(m, now)
			set := computeStatus(s, w.see(s, far, rapid.SampledFrom(errs).Draw(t, "error")))
			claims.Expire(s.key(), set, now, condition.Bound, observedConditions...)

			if far > 0 {
				seen[1], at["node"] = w, now
			}

			if w.answer != talos.StateUnreachable && (far == 2 || far == 1 && w.answer != talos.StateMember) {
				seen[2], at["config"] = w, now
			}

			checkClaims(t, m, "node", seen[1], now.Sub(at["node"]), v1alpha1.ConditionReachable, v1alpha1.ConditionReady)
			checkClaims(t, m, "config", seen[2], now.Sub(at["config"]), v1alpha1.ConditionUpToDate)
		}
	})
}

func checkClaims(t *rapid.T, m *v1alpha1.TalosMachine, what string, seen truth, age time.Duration, kinds ...string) {
	for _, kind := range kinds {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, kind) {
			continue
		}

		if age >= condition.Bound {
			t.Fatalf("%s is claimed %s after the %s was observed", kind, age, what)
		}

		if !seen.claims()[kind] {
			t.Fatalf("%s is claimed, and the %s showed %+v", kind, what, seen)
		}
	}
}

// TestMemberIsRemembered: the member ID of a machine is needed when etcd is unhealthy, which is when the node does not
// report it.
func TestMemberIsRemembered(t *testing.T) {
	for name, tc := range map[string]struct {
		answer     talos.State
		told, want string
	}{
		"healthy":                       {talos.StateMember, "f00d", "f00d"},
		"unhealthy":                     {talos.StateMember, "", "abc"},
		"silent":                        {talos.StateUnreachable, "", "abc"},
		"wiped, back in maintenance":    {talos.StateMaintenance, "", ""},
		"has joined again as a new one": {talos.StateMember, "cafe", "cafe"},
	} {
		st := &v1alpha1.TalosMachineStatus{LastEtcdMemberID: "abc"}
		s := &scope{probed: true, answer: tc.answer, machine: &v1alpha1.TalosMachine{}}

		if tc.answer != talos.StateUnreachable {
			s.facts = &talos.Facts{EtcdMemberID: tc.told}
		}

		if copyFacts(st, s); st.LastEtcdMemberID != tc.want || s.facts != nil && st.EtcdMemberID != tc.told {
			t.Errorf("%s: member %q, last %q, want %q", name, st.EtcdMemberID, st.LastEtcdMemberID, tc.want)
		}
	}
}

// TestNodeNameIsRemembered: a machine that was wiped reports no name, and its Node is still to be removed.
func TestNodeNameIsRemembered(t *testing.T) {
	t.Parallel()

	st := &v1alpha1.TalosMachineStatus{NodeName: "before"}

	for _, tc := range []struct{ told, want string }{{"", "before"}, {"w-0.example.org", "w-0.example.org"}} {
		copyFacts(st, &scope{machine: &v1alpha1.TalosMachine{}, facts: &talos.Facts{NodeName: tc.told}})

		if st.NodeName != tc.want {
			t.Errorf("the node reports %q, the status %q, want %q", tc.told, st.NodeName, tc.want)
		}
	}
}

// TestLongError: an error with a long quotation fits into the status, which would be rejected as a whole otherwise.
func TestLongError(t *testing.T) {
	t.Parallel()

	s := newScope(&v1alpha1.TalosMachine{}, time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	computeStatus(s, failure.Terminal(v1alpha1.ReasonConfigRefused, strings.Repeat("x", 2000), nil))

	if got := len(s.machine.Status.LastError); got == 0 || got > 1024 {
		t.Errorf("the last error has %d bytes", got)
	}
}

// TestTalosTooNew: a Talos that the operator does not know is told, for as long as the machine runs it.
func TestTalosTooNew(t *testing.T) {
	m := &v1alpha1.TalosMachine{}
	told := func(facts *talos.Facts) bool {
		s := newScope(m, time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC))
		s.facts = facts
		computeStatus(s, nil)

		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionTalosVersionUnknown)
		if c != nil && (c.Reason != v1alpha1.ReasonTalosTooNew || !strings.Contains(c.Message, "v1.14.0")) {
			t.Errorf("%+v", c)
		}

		return c != nil
	}

	if told(nil) || told(&talos.Facts{TalosVersion: "v1.13.9"}) {
		t.Error("a known version is told")
	}

	if !told(&talos.Facts{TalosVersion: "v1.14.0"}) || !told(nil) {
		t.Error("a newer minor is not told, or not any more while the machine does not respond")
	}

	if told(&talos.Facts{TalosVersion: "v1.13.10"}) {
		t.Error("it is still told after the machine runs a known version")
	}
}
