package change_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

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

// TestPrevious: what an installer was to replace was replaced once the machine has booted what it has installed. A crash
// between any two steps, a failed installer, and a system that never boots leave what was recorded.
func TestPrevious(t *testing.T) {
	recorded := &v1alpha1.PreviousSystem{TalosVersion: "x", ReplacedBy: "a"}
	runs := func(in *change.Input) {
		in.Runs = v1alpha1.PreviousSystem{TalosVersion: "v1", Schematic: "s", ConfigHash: "c"}
	}
	drained := pass(change.Pass{Drained: true, Pulled: true})
	want := v1alpha1.PreviousSystem{TalosVersion: "v1", Schematic: "s", Image: "installer:a", ReplacedBy: "b", ConfigHash: "c"}

	for name, in := range map[string]change.Input{
		"one call":           upgraded(runs, legacy, drained, phase(v1alpha1.ChangeDraining, time.Second)),
		"an installer first": upgraded(runs, drained, phase(v1alpha1.ChangeDraining, time.Second)),
	} {
		if got := change.Previous(in.Record.Change, recorded, "b"); got != recorded {
			t.Errorf("%s, not begun: %+v", name, got)
		}

		c := change.NextTalos(in).Before.Change
		if got := change.Previous(c, recorded, "a"); got != recorded {
			t.Errorf("%s, still the same: %+v", name, got)
		}

		if got := change.Previous(c, recorded, "b"); got == nil || *got != want {
			t.Errorf("%s, booted: %+v", name, got)
		}

		in.Record.Change = c
		in.Pass = change.Pass{Failed: "exit code 1", Uncordoned: true}
		in.Record.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepReboot, BootID: in.BootID}

		if c := change.NextTalos(in).Before.Change; c.Phase != v1alpha1.ChangeFailed || c.Replaces == nil {
			t.Errorf("%s, failed, a user may boot it: %+v", name, c)
		}
	}

	if got := change.Previous(nil, recorded, "b"); got != recorded {
		t.Errorf("no change: %+v", got)
	}

	in := upgraded(runs, phase(v1alpha1.ChangeFailed, time.Second), func(in *change.Input) { in.Record.Change.Replaces = &want })
	if c := change.DescribeTalos(in, "installer:c", "installer:a", nil).Change; c.Replaces == nil || c.Replaces.ReplacedBy != "b" {
		t.Errorf("what may boot at any time is forgotten: %+v", c)
	}

	in.Runs.TalosVersion = "v2"
	if c := change.DescribeTalos(in, "installer:c", "installer:a", nil).Change; c.Replaces != nil {
		t.Errorf("something else runs: %+v", c)
	}
}

// TestFallbackAfterFailedInstall: a machine that has completed an upgrade, and on which the installer of the next one has
// failed, wherever the operator has crashed meanwhile, is not reinstalled when it falls back to what it ran before.
func TestFallbackAfterFailedInstall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, now: now, runs: "a", boots: "a", want: "b", brief: true}
		m.record = change.DescribeTalos(m.input(), "b", "a", nil)

		reconcile := func(times int, acts func() int) {
			for range times {
				m.now = m.now.Add(time.Minute)
				m.reconcile(acts())
			}
		}
		whole := func() int { return 16 }

		reconcile(20, whole)

		m.want, m.fails = "a", true
		reconcile(rapid.IntRange(1, 12).Draw(t, "reconciliations"), func() int { return rapid.IntRange(0, 6).Draw(t, "acts") })

		m.want, m.fails = "b", false
		reconcile(20, whole)

		if m.runs != "b" || m.record.Change != nil {
			t.Fatalf("it runs %s, the change is %+v", m.runs, m.record.Change)
		}

		m.fallBack()
		reconcile(20, whole)

		if c := m.record.Change; m.runs != "a" || c == nil || c.Phase != v1alpha1.ChangeFailed {
			t.Fatalf("it runs %s, the change is %+v", m.runs, c)
		}
	})
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
	if outcome, _ := change.CompareTalos(in, "installer:a"); outcome != change.FellBack {
		t.Errorf("it fell back: %s", outcome)
	}

	in = upgraded(arrived, unwanted, uncordoned, installed, phase(v1alpha1.ChangeApplying, time.Minute))
	in.Equal, in.Worked = false, "a"

	if step := change.NextTalos(in); !step.Completed {
		t.Errorf("what was installed was booted: %+v", step)
	}
}
