package change_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// lose returns a change of a machine that was abandoned, and has come back healthy with what it ran before, in another
// boot.
func lose(t *testing.T, in change.Input) change.Input {
	t.Helper()

	step, ends := change.Silent(in, true, time.Hour)
	if c := step.Before.Change; !ends || c.Phase != v1alpha1.ChangeFailed || c.LostPhase != string(in.Record.Change.Phase) {
		t.Fatalf("%t: %+v", ends, c)
	}

	in.Record, in.BootID = step.Before, "later"

	return in
}

// TestLostAndBack: a machine that was abandoned and comes back with what it ran before is made schedulable once, its
// upgrade has failed, and that is told once.
func TestLostAndBack(t *testing.T) {
	old := time.Hour

	for name, c := range map[string]struct {
		in      change.Input
		boot    string
		staged  bool
		message string
	}{
		"drained":                                 {upgraded(phase(v1alpha1.ChangeDraining, old)), "", false, "responds again, runs what it ran before, and is schedulable"},
		"installed, in its boot":                  {upgraded(installed, intent("Install", old), phase(v1alpha1.ChangeApplying, old)), "boot", true, "may boot that image next"},
		"installed, power-cycled":                 {upgraded(installed, intent("Install", old), phase(v1alpha1.ChangeApplying, old)), "", false, "it fell back to what it ran before"},
		"rebooted":                                {upgraded(installed, intent("Reboot", old), phase(v1alpha1.ChangeRebooting, old)), "", false, "it fell back to what it ran before"},
		"never rebooted":                          {upgraded(installed, intent("Reboot", old), phase(v1alpha1.ChangeRebooting, old)), "boot", true, "has not rebooted"},
		"booted, not healthy":                     {upgraded(installed, seen, phase(v1alpha1.ChangeSettling, old)), "", false, "it fell back to what it ran before"},
		"installed before, drained":               {upgraded(installed, phase(v1alpha1.ChangeDraining, old)), "boot", true, "has not rebooted"},
		"installed before, drained, power-cycled": {upgraded(installed, phase(v1alpha1.ChangeDraining, old)), "", false, "the upgrade to installer:b; it responds again and does not run that: it fell back"},
		"a rollback, drained":                     {upgraded(reverted, phase(v1alpha1.ChangeDraining, old)), "", false, "during the rollback to installer:b; it responds again, still runs"},
		"a rollback, rebooted":                    {upgraded(reverted, installed, intent("Reboot", old), phase(v1alpha1.ChangeRebooting, old)), "", false, "after the rollback to installer:b; it responds again and does not run that: what it ran before does not boot"},
		"a rollback, never rebooted":              {upgraded(reverted, installed, intent("Reboot", old), phase(v1alpha1.ChangeRebooting, old)), "boot", true, "during the rollback to installer:b; it responds again and has not rebooted"},
		"a configuration that is staged":          {planned(rebooting, installed, intent("Reboot", old), phase(v1alpha1.ChangeRebooting, old)), "boot", true, "takes effect at its next reboot"},
		"a configuration":                         {planned(rebooting, phase(v1alpha1.ChangeDraining, old)), "", false, "without that change, and is schedulable"},
	} {
		in := lose(t, c.in)
		if c.boot != "" {
			in.BootID = in.Record.Change.LostBootID
		}

		next := change.NextTalos
		if in.Record.Change.Kind != v1alpha1.ChangeTalos {
			next = change.Next
		}

		unhealthy := in
		unhealthy.Ready = false

		if step := next(unhealthy); step.Act != change.None || step.Before.Change.LostPhase == "" || step.Event != nil {
			t.Errorf("%s, not healthy: %+v", name, step)
		}

		// A crash after the act repeats it.
		for range 2 {
			if step := next(in); step.Act != change.Uncordon || step.Before.Change.LostPhase == "" || step.Event != nil {
				t.Fatalf("%s: %+v", name, step)
			}
		}

		in.Pass.Uncordoned = true

		step := next(in)
		if got := step.Before.Change; step.Act != change.None || got.Phase != v1alpha1.ChangeFailed || got.LostPhase != "" ||
			got.LostBootID != "" || got.Staged != c.staged || step.Event == nil || !step.Event.Warning ||
			!strings.Contains(got.Message, c.message) || !strings.Contains(got.Message, v1alpha1.RetryAnnotation) {
			t.Errorf("%s: %+v, %+v", name, step, got)
		}

		in.Record, in.Pass = step.Before, change.Pass{}
		if step := next(in); step.Act != change.None || step.Event != nil {
			t.Errorf("%s, told already: %+v", name, step)
		}
	}
}

// TestLostAndArrived: a machine that was abandoned and comes back with what its change brings proves itself with that,
// and what was noted about its loss says nothing about a later failure.
func TestLostAndArrived(t *testing.T) {
	in := lose(t, upgraded(installed, intent("Reboot", time.Hour), phase(v1alpha1.ChangeRebooting, time.Hour)))
	in.Live, in.Equal, in.Ready = "b", true, false

	if c := change.NextTalos(in).Before.Change; c.Phase != v1alpha1.ChangeSettling || c.LostPhase != "" || c.LostBootID != "" {
		t.Errorf("%+v", c)
	}
}

// TestLostAndLive: the same holds for a configuration, also if a user has it tried again.
func TestLostAndLive(t *testing.T) {
	in := lose(t, planned(rebooting, intent("Reboot", time.Hour), phase(v1alpha1.ChangeRebooting, time.Hour)))
	in.Live, in.Equal, in.Ready = "b", true, false

	if c := change.Next(in).Before.Change; c.Phase != v1alpha1.ChangeFailed || c.LostPhase != "" || c.LostBootID != "" {
		t.Errorf("it settles: %+v", c)
	}

	in.Retry = true

	if _, r := change.Compare(in); r.Change.Phase != v1alpha1.ChangeSettling || r.Change.LostPhase != "" || r.Change.LostBootID != "" {
		t.Errorf("again: %+v", r.Change)
	}

	// What it was to leave runs, and is desired again: what was noted stays until it is healthy.
	in.Live, in.Want, in.Retry = "a", "a", false

	if c := change.Next(in).Before.Change; c.LostPhase == "" {
		t.Errorf("unhealthy, with something else: %+v", c)
	}
}
