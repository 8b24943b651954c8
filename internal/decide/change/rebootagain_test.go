package change_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// TestRebootAgain: a reboot that is on record and has not happened is requested again, in a maintenance window only, and
// fails its change only once the node was asked for long enough by the operator that judges it.
func TestRebootAgain(t *testing.T) {
	uncordoned := pass(change.Pass{Uncordoned: true})
	recorded := func(since time.Duration) func(*change.Input) { return intent(v1alpha1.StepReboot, since) }
	booting := phase(v1alpha1.ChangeRebooting, time.Minute)

	for name, c := range map[string]struct {
		in      change.Input
		next    func(change.Input) change.Step
		act     change.Act
		phase   v1alpha1.ChangePhase
		intends bool
		message string
	}{
		"recorded by an operator that was away": {
			planned(rebooting, booting, recorded(time.Hour)), change.Next, change.Reboot, v1alpha1.ChangeRebooting, true, "",
		},
		"an upgrade, by one that was away": {
			upgraded(installed, booting, recorded(time.Hour)), change.NextTalos, change.Reboot, v1alpha1.ChangeRebooting, true, "",
		},
		"a legacy upgrade, by one that was away": {
			upgraded(legacy, booting, recorded(time.Hour)), change.NextTalos, change.Upgrade, v1alpha1.ChangeRebooting, true, "",
		},
		"away, and asked since": {
			planned(rebooting, booting, recorded(time.Hour), askedLately), change.Next, change.Reboot, v1alpha1.ChangeRebooting,
			true, "",
		},
		"asked lately, and it goes down": {
			planned(rebooting, booting, recorded(time.Hour), askedLately, sending), change.Next, change.None,
			v1alpha1.ChangeRebooting, true, "",
		},
		"the window closed": {
			planned(rebooting, stagedConfig, booting, recorded(time.Minute), closed), change.Next, change.None,
			v1alpha1.ChangeRebooting, true, "no maintenance window is open",
		},
		"the window closed, and it was asked in vain": {
			planned(rebooting, stagedConfig, booting, asked(health), closed), change.Next, change.None, v1alpha1.ChangeFailed,
			false, "has not done so for 10m0s",
		},
		"the window closed, long ago": {
			planned(rebooting, stagedConfig, booting, recorded(time.Hour), closed), change.Next, change.Uncordon,
			v1alpha1.ChangeRebooting, true, "",
		},
		"the window closed, schedulable again": {
			planned(rebooting, stagedConfig, booting, recorded(time.Hour), closed, uncordoned), change.Next, change.None,
			v1alpha1.ChangeAwaitingReboot, false, "waiting for a time in which reboots are allowed",
		},
		"an upgrade, the window closed": {
			upgraded(installed, booting, recorded(time.Hour), closed, uncordoned), change.NextTalos, change.None,
			v1alpha1.ChangeAwaitingReboot, false, "waiting for a time in which reboots are allowed",
		},
		"a legacy upgrade, the window closed": {
			upgraded(legacy, booting, recorded(time.Hour), closed, uncordoned), change.NextTalos, change.None,
			v1alpha1.ChangePending, false, "waiting for a time in which reboots are allowed",
		},
		"a rollback waits for no window": {
			upgraded(installed, reverted, booting, recorded(time.Hour), closed), change.NextTalos, change.Reboot,
			v1alpha1.ChangeRebooting, true, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			step := c.next(c.in)
			got := step.Before.Change

			if step.Act != c.act || got.Phase != c.phase || (step.Before.Intent != nil) != c.intends {
				t.Errorf("%s, %s, intent %+v", step.Act, got.Phase, step.Before.Intent)
			}

			if !strings.Contains(got.Message, c.message) || c.message == "" && got.Message != "" {
				t.Errorf("it says %q, want %q", got.Message, c.message)
			}
		})
	}
}

func askedLately(in *change.Input) { in.Asked = now.Add(-time.Minute) }
