package group_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/workload"
)

// TestHoldUpgrades: upgrades wait for checks, and an API that does not respond satisfies none. Other changes do not wait,
// and nothing is asked for them.
func TestHoldUpgrades(t *testing.T) {
	const (
		waits = "check ready has not been satisfied since 2026-11-25T12:00:00Z: no API server responds"
		still = "check ready has not been satisfied since 2026-11-25T11:00:00Z: no API server responds"
	)

	upgrade := rollout.Candidate{Name: "up", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseSpec}}
	kubelet := rollout.Candidate{Name: "k8s", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Cause: v1alpha1.CauseSpec}}
	back := rollout.Candidate{Name: "back", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseRevert}}
	config := rollout.Candidate{Name: "config", Change: v1alpha1.MachineChange{Cause: v1alpha1.CauseSpec}}

	before := &v1alpha1.FailedCheck{Name: "ready", Since: metav1.NewTime(now.Add(-time.Hour))}

	for name, c := range map[string]struct {
		when       v1alpha1.CheckTime
		was        *v1alpha1.FailedCheck
		again      time.Duration
		candidates []rollout.Candidate
		begin      string
		message    string
		asked      int
		in         time.Duration
	}{
		"upgrades":             {"", nil, 0, []rollout.Candidate{upgrade, kubelet}, "", waits, 1, group.CheckAgain},
		"for an hour":          {"", before, 0, []rollout.Candidate{upgrade}, "", still, 1, group.CheckAgain},
		"other changes":        {"", nil, 0, []rollout.Candidate{config, back}, "config back", "", 0, 0},
		"among others":         {"", nil, 0, []rollout.Candidate{config, upgrade, back}, "config back", "", 1, group.CheckAgain},
		"afterwards only":      {v1alpha1.CheckAfter, before, 0, []rollout.Candidate{upgrade}, "up", "", 0, 0},
		"nothing begins":       {"", before, 0, nil, "", "", 0, 0},
		"a window opens soon":  {"", nil, time.Second, []rollout.Candidate{upgrade}, "", waits, 1, time.Second},
		"a window opens later": {"", nil, time.Hour, []rollout.Candidate{upgrade}, "", waits, 1, group.CheckAgain},
	} {
		out, asked := rollout.Output{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut}}, 0
		if c.again > 0 {
			out.Again = now.Add(c.again)
		}

		begin := group.Upgrades{
			Options: &v1alpha1.UpgradeOptions{Checks: []v1alpha1.UpgradeCheck{{
				Name: "ready", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", ObjectName: "gate", Expression: "true", When: c.when,
			}}},
			Was: c.was, Now: now,
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
