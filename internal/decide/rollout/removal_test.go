package rollout_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// TestHoldRemoval: a machine is taken out while no other one is being changed.
func TestHoldRemoval(t *testing.T) {
	granted := &v1alpha1.ChangeGrant{ID: "id"}

	for name, c := range map[string]struct {
		phase v1alpha1.ChangePhase
		grant *v1alpha1.ChangeGrant
		holds bool
	}{
		"it drains":                    {v1alpha1.ChangeDraining, granted, true},
		"it is sent its config":        {v1alpha1.ChangeApplying, granted, true},
		"it reboots":                   {v1alpha1.ChangeRebooting, granted, true},
		"it proves itself":             {v1alpha1.ChangeSettling, nil, true},
		"it may have begun":            {v1alpha1.ChangePending, granted, true},
		"it has not begun":             {v1alpha1.ChangePending, nil, false},
		"a grant of another change":    {v1alpha1.ChangePending, &v1alpha1.ChangeGrant{ID: "other", Reboot: true}, false},
		"it has failed":                {v1alpha1.ChangeFailed, granted, false},
		"its config is staged":         {v1alpha1.ChangeAwaitingReboot, nil, false},
		"staged, and it may reboot":    {v1alpha1.ChangeAwaitingReboot, &v1alpha1.ChangeGrant{ID: "id", Reboot: true}, true},
		"staged, and a user reboots":   {v1alpha1.ChangeAwaitingReboot, granted, false},
		"nothing is changed, no phase": {"", nil, false},
	} {
		machines := make([]v1alpha1.TalosMachine, 3)
		for i, n := range []string{"cp-0", "cp-1", "cp-2"} {
			machines[i].Name = n
		}

		if m := &machines[1]; c.phase != "" {
			m.Status.Change, m.Spec.Change = &v1alpha1.MachineChange{ID: "id", Phase: c.phase}, c.grant
		}

		want := ""
		if c.holds {
			want = "waiting for cp-1, which is being changed"
		}

		if got := rollout.HoldRemoval(machines, "cp-2"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}

		if got := rollout.HoldRemoval(machines, "cp-1"); got != "" {
			t.Errorf("%s, and it is the one that leaves: %q", name, got)
		}
	}
}
