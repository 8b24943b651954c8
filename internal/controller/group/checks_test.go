package group_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// checked is a control plane whose upgrades have a check.
func checked(when v1alpha1.CheckTime) *v1alpha1.TalosControlPlane {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Checks: []v1alpha1.UpgradeCheck{{
		Name: "ready", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", ObjectName: "gate", Expression: "true", When: when,
	}}}

	return cp
}

// TestHoldUpgrades: upgrades wait for checks, and an API that does not respond satisfies none. Other changes do not wait,
// and nothing is asked for them.
func TestHoldUpgrades(t *testing.T) {
	const (
		waits = "check ready has not been satisfied since 2026-11-25T12:00:00Z: no API server responds"
		still = "check ready has not been satisfied since 2026-11-25T11:00:00Z: no API server responds"
	)

	upgrade := rollout.Candidate{Name: "up", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseSpec}}
	kubelet := rollout.Candidate{Name: "k8s", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Cause: v1alpha1.CauseSpec}}
	image := func(tag string) string { return "registry.k8s.io/kube-apiserver:" + tag }
	calledOff := rollout.Candidate{Name: "off", Change: v1alpha1.MachineChange{
		Kind: v1alpha1.ChangeKubernetes, Cause: v1alpha1.CauseSpec,
		Fields: []v1alpha1.FieldChange{{Field: "cluster.apiServer.image", Old: image("v1.36.2"), New: image("v1.35.1")}},
	}}
	back := rollout.Candidate{Name: "back", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseRevert}}
	config := rollout.Candidate{Name: "config", Change: v1alpha1.MachineChange{Cause: v1alpha1.CauseSpec}}

	before := &v1alpha1.FailedCheck{Name: "ready", Since: metav1.NewTime(now.Add(-time.Hour))}

	for name, c := range map[string]struct {
		when       v1alpha1.CheckTime
		soaked     bool
		was        *v1alpha1.FailedCheck
		again      time.Duration
		candidates []rollout.Candidate
		begin      string
		message    string
		asked      int
		in         time.Duration
	}{
		"upgrades":             {"", false, nil, 0, []rollout.Candidate{upgrade, kubelet}, "", waits, 1, group.CheckAgain},
		"for an hour":          {"", false, before, 0, []rollout.Candidate{upgrade}, "", still, 1, group.CheckAgain},
		"other changes":        {"", false, nil, 0, []rollout.Candidate{config, back}, "config back", "", 0, 0},
		"called off":           {"", false, nil, 0, []rollout.Candidate{calledOff}, "off", "", 0, 0},
		"afterwards, soaked":   {v1alpha1.CheckAfter, true, nil, 0, []rollout.Candidate{upgrade}, "", waits, 1, group.CheckAgain},
		"still, after a soak":  {v1alpha1.CheckAfter, false, before, 0, []rollout.Candidate{upgrade}, "", still, 1, group.CheckAgain},
		"another one before":   {v1alpha1.CheckAfter, false, &v1alpha1.FailedCheck{Name: "other"}, 0, []rollout.Candidate{upgrade}, "up", "", 0, 0},
		"among others":         {"", false, nil, 0, []rollout.Candidate{config, upgrade, back}, "config back", "", 1, group.CheckAgain},
		"afterwards only":      {v1alpha1.CheckAfter, false, nil, 0, []rollout.Candidate{upgrade}, "up", "", 0, 0},
		"nothing begins":       {"", false, before, 0, nil, "", "", 0, 0},
		"a window opens soon":  {"", false, nil, time.Second, []rollout.Candidate{upgrade}, "", waits, 1, time.Second},
		"a window opens later": {"", false, nil, time.Hour, []rollout.Candidate{upgrade}, "", waits, 1, group.CheckAgain},
	} {
		out, asked := rollout.Output{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut}, Soaked: c.soaked}, 0
		if c.again > 0 {
			out.Again = now.Add(c.again)
		}

		begin := group.Upgrades{
			ControlPlane: checked(c.when), Was: c.was, Clock: clocktesting.NewFakePassiveClock(now), Verdicts: &group.Verdicts{},
			Connect: func(context.Context) (*workload.Cluster, error) {
				asked++

				return nil, failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server responds", nil)
			},
		}.Hold(t.Context(), c.candidates, &out)

		var names []string
		for _, b := range begin {
			names = append(names, b.Name)
		}

		var in time.Duration
		if !out.Again.IsZero() {
			in = out.Again.Sub(now)
		}

		if strings.Join(names, " ") != c.begin || out.Plan.Message != c.message || asked != c.asked || in != c.in ||
			(out.Plan.Check != nil) != (c.asked > 0) || (out.Plan.Phase == v1alpha1.PlanWaiting) != (c.message != "") {
			t.Errorf("%s: %v begin, asked %d times, again in %s: %+v", name, names, asked, in, out.Plan)
		}
	}
}

// TestHoldAfterSoak: the checks after upgrades are made before the next one only with a soak, and if one of them is known
// not to be satisfied.
func TestHoldAfterSoak(t *testing.T) {
	for name, c := range map[string]struct {
		soaked    bool
		was, want string
	}{
		"without a soak":          {false, "", "always"},
		"soaked":                  {true, "", "afterwards"},
		"another one was not":     {false, "always", "always"},
		"it was not, in the soak": {false, "afterwards", "afterwards"},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Checks: []v1alpha1.UpgradeCheck{{Name: "afterwards", When: v1alpha1.CheckAfter}, {Name: "always"}}}

		out := rollout.Output{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut}, Soaked: c.soaked}
		group.Upgrades{
			ControlPlane: cp, Was: &v1alpha1.FailedCheck{Name: c.was}, Clock: clocktesting.NewFakePassiveClock(now), Verdicts: &group.Verdicts{},
			Connect: func(context.Context) (*workload.Cluster, error) {
				return nil, failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server responds", nil)
			},
		}.Hold(t.Context(), []rollout.Candidate{{Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos}}}, &out)

		if out.Plan.Check == nil || out.Plan.Check.Name != c.want {
			t.Errorf("%s: %+v", name, out.Plan.Check)
		}
	}
}

// TestHoldAsksSeldom: a cluster whose check is not satisfied is asked again after the documented time, which counts from
// the answer, and at once for another spec or another object, and for one that was forgotten.
func TestHoldAsksSeldom(t *testing.T) {
	const answer = 10 * time.Second

	c, verdicts, asked := clocktesting.NewFakePassiveClock(now), group.Verdicts{}, 0
	of, other := types.NamespacedName{Name: "of"}, types.NamespacedName{Name: "other"}
	cp := checked("")

	hold := func(name string, of types.NamespacedName, want int) {
		t.Helper()

		out := rollout.Output{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut}}
		begin := group.Upgrades{
			Of: of, ControlPlane: cp, Clock: c, Verdicts: &verdicts,
			Connect: func(context.Context) (*workload.Cluster, error) {
				asked++
				c.SetTime(c.Now().Add(answer))

				return nil, failure.Transient(v1alpha1.ReasonAPIServerUnavailable, "no API server responds", nil)
			},
		}.Hold(t.Context(), []rollout.Candidate{{Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos}}}, &out)

		if len(begin) > 0 || asked != want || out.Plan.Check == nil || !out.Again.After(c.Now()) {
			t.Errorf("%s: %d begin, asked %d times, again at %s: %+v", name, len(begin), asked, out.Again, out.Plan)
		}
	}

	hold("first", of, 1)
	c.SetTime(c.Now().Add(group.CheckAgain - time.Second))
	hold("within the time", of, 1)
	hold("another object", other, 2)
	hold("over", of, 3)
	hold("just made", of, 3)

	cp.Generation++

	hold("another spec", of, 4)
	verdicts.Forget(of)
	hold("forgotten", of, 5)
}

// TestVerdicts: what is satisfied is not recorded, and ends what was.
func TestVerdicts(t *testing.T) {
	c, verdicts, key := clocktesting.NewFakePassiveClock(now), group.Verdicts{}, types.NamespacedName{Name: "a"}

	for i, step := range []struct{ finds, want string }{{"x", "x"}, {"y", "x"}} {
		got, until := verdicts.Make(key, "of", c, time.Minute, func() group.Verdict { return group.Verdict{Name: step.finds, Refuted: true} })
		if got.Name != step.want || !got.Refuted || !until.Equal(now.Add(time.Minute)) {
			t.Errorf("%d: %+v until %s", i, got, until)
		}
	}

	c.SetTime(now.Add(time.Minute))

	if got, until := verdicts.Make(key, "of", c, time.Minute, func() group.Verdict { return group.Verdict{} }); got.Name != "" || !until.IsZero() {
		t.Errorf("satisfied: %+v until %s", got, until)
	}

	if got, _ := verdicts.Make(key, "of", c, time.Minute, func() group.Verdict { return group.Verdict{Name: "z"} }); got.Name != "z" {
		t.Errorf("after that: %+v", got)
	}
}
