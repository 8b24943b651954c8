package talosmachine

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestUnsatisfied: an upgrade waits for what its checks have found, and whether an expression is false is kept with
// that. A component of Kubernetes that is taken back waits for no check.
func TestUnsatisfied(t *testing.T) {
	const older, newer = "registry.k8s.io/kube-apiserver:v1.35.1", "registry.k8s.io/kube-apiserver:v1.36.2"

	for name, c := range map[string]struct {
		old, new string
		refuted  bool
		why      string
	}{
		"an upgrade":                  {older, newer, true, "check gate: the reason"},
		"an upgrade without evidence": {older, newer, false, "check gate: the reason"},
		"taken back":                  {newer, older, true, ""},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}, controlPlane: &v1alpha1.TalosControlPlane{}}
		s.controlPlane.Spec.Upgrade = &v1alpha1.UpgradeOptions{Checks: []v1alpha1.UpgradeCheck{{Name: "gate"}}}
		s.facts, s.liveHash = &talos.Facts{Stage: change.StageRunning, Ready: true}, "target"
		s.machine.Status.Change = &v1alpha1.MachineChange{
			ID: "id", Kind: v1alpha1.ChangeKubernetes, Target: "target", Cause: v1alpha1.CauseSpec,
			Fields: []v1alpha1.FieldChange{{Field: "cluster.apiServer.image", Old: c.old, New: c.new}},
		}

		r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))}
		r.verdicts.Make(s.key(), "0/id", r.Clock, time.Minute, func() group.Verdict {
			return group.Verdict{Name: "gate", Why: "the reason", Refuted: c.refuted}
		})

		if why, refuted := r.unsatisfied(t.Context(), s); why != c.why || refuted != (c.refuted && why != "") {
			t.Errorf("%s: %q, refuted: %t", name, why, refuted)
		}
	}
}
