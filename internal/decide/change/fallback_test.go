package change_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// TestFellBack: a node that has run the new system, and then runs another one, is not given it again, and that is told
// once. The same holds for what a node was rolled back to.
func TestFellBack(t *testing.T) {
	uncordoned := pass(change.Pass{Uncordoned: true})

	for name, in := range map[string]change.Input{
		"in the boot of the upgrade": upgraded(installed, arrived, bootedAnew, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second), uncordoned),
		"while it settles":           upgraded(installed, arrived, sick, phase(v1alpha1.ChangeSettling, time.Second), uncordoned),
		"after it has failed":        upgraded(installed, arrived, sick, phase(v1alpha1.ChangeSettling, health), uncordoned),
		"a rollback":                 rolledBack(installed, arrived, sick, phase(v1alpha1.ChangeSettling, time.Second), uncordoned),
	} {
		in.Record = change.NextTalos(in).Before
		in.Live, in.Equal, in.Ready, in.BootID = "a", false, true, "later"

		step := change.NextTalos(in)
		if c := step.Before.Change; step.Act != change.None || c.Phase != v1alpha1.ChangeFailed || c.Staged ||
			step.Event == nil || !strings.Contains(c.Message, "w-0 booted installer:b and then another system") {
			t.Errorf("%s: %+v, %+v", name, step, c)
		}

		in.Record = step.Before
		if step := change.NextTalos(in); step.Act != change.None || step.Event != nil || step.Before.Change.Phase != v1alpha1.ChangeFailed {
			t.Errorf("%s, told already: %+v", name, step)
		}
	}
}

// TestDescribeFallback: what a machine has completed and no longer runs is a change that has failed, whatever has taken
// it back.
func TestDescribeFallback(t *testing.T) {
	record, event := change.DescribeFallback(upgraded(none), "installer:b", "installer:a", nil)
	if c := record.Change; c.Phase != v1alpha1.ChangeFailed || c.Target != "b" || c.Base != "a" || c.OldImage != "installer:a" ||
		event == nil || !event.Warning || !strings.Contains(event.Message, "does not run it any more") {
		t.Errorf("%+v, %+v", c, event)
	}

	in := upgraded(none)
	in.Record = record
	in.Grant.ID = record.Change.ID

	if step := change.NextTalos(in); step.Act != change.None || step.Before.Change.Phase != v1alpha1.ChangeFailed {
		t.Errorf("it begins by itself: %+v", step)
	}
}

// TestFallsIntoDrained: a machine that was drained for a system that is no longer desired, and has fallen back to that
// very system, does not count as changed: what it fell back from would be installed again.
func TestFallsIntoDrained(t *testing.T) {
	uncordoned := pass(change.Pass{Uncordoned: true})
	in := upgraded(arrived, unwanted, uncordoned, phase(v1alpha1.ChangeDraining, time.Minute))
	in.Equal, in.Worked = false, "a"

	step := change.NextTalos(in)
	if step.Completed || step.Before.Change != nil {
		t.Errorf("it has not proved itself: %+v", step)
	}

	in.Record = step.Before
	if plan, _ := change.CompareTalos(in, "installer:a"); plan != change.FellBack {
		t.Errorf("it fell back: %s", plan)
	}

	in = upgraded(arrived, unwanted, uncordoned, installed, phase(v1alpha1.ChangeApplying, time.Minute))
	in.Equal, in.Worked = false, "a"

	if step := change.NextTalos(in); !step.Completed {
		t.Errorf("what was installed was booted: %+v", step)
	}
}
