package change_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// edited: the live config was changed by hand, and the spec demands nothing new.
func edited(drift v1alpha1.DriftPolicy) func(*change.Input) {
	return func(in *change.Input) {
		in.Live, in.Want, in.Edited, in.Options.Drift = "edited", "a", []string{"machine.env"}, drift
		in.Record.Change = nil
	}
}

// TestCompare: one row for each meaning of a comparison.
func TestCompare(t *testing.T) {
	failed := phase(v1alpha1.ChangeFailed, time.Hour)
	retried := func(in *change.Input) { in.Retry = true }
	undoes := func(in *change.Input) {
		in.Live, in.Edited = "edited", []string{"machine.env"}
		in.Record.Change.Base, in.Record.Change.Undoes = "edited", in.Edited
	}

	for name, test := range map[string]struct {
		in      change.Input
		outcome change.Outcome
		sent    string
		phase   v1alpha1.ChangePhase
	}{
		"new":                  {planned(func(in *change.Input) { in.Record.Change = nil }), change.Described, "a", ""},
		"known":                {planned(), change.Kept, "a", v1alpha1.ChangePending},
		"the spec has changed": {planned(func(in *change.Input) { in.Want = "c" }), change.Described, "a", v1alpha1.ChangePending},
		"equal":                {planned(arrived), change.Kept, "b", v1alpha1.ChangePending},
		"equal, on trial":      {planned(arrived, intent(v1alpha1.StepTry, 0)), change.Kept, "a", v1alpha1.ChangePending},
		"equal, not imported":  {planned(arrived, func(in *change.Input) { in.Importing = true }), change.Kept, "a", v1alpha1.ChangePending},
		"on trial":             {planned(intent(v1alpha1.StepTry, 0)), change.Unfinished, "a", v1alpha1.ChangePending},
		"rebooting":            {planned(intent(v1alpha1.StepReboot, 0)), change.Unfinished, "a", v1alpha1.ChangePending},
		"applying":             {planned(intent(v1alpha1.StepApply, 0)), change.Kept, "a", v1alpha1.ChangePending},
		"applying, and edited": {planned(intent(v1alpha1.StepApply, 0), undoes, func(in *change.Input) { in.Live = "again" }), change.Kept, "a", v1alpha1.ChangePending},
		"edited, reported":     {planned(edited(v1alpha1.DriftReport)), change.Forgone, "a", ""},
		"differs, and nobody edited it": {planned(func(in *change.Input) {
			in.Live, in.Want, in.Record.Change = "x", "a", nil
		}), change.Described, "a", ""},
		"edited, adopted":      {planned(edited(v1alpha1.DriftAdopt)), change.TakenOver, "a", ""},
		"edited, undone":       {planned(edited(v1alpha1.DriftEnforce)), change.Described, "a", ""},
		"undoes an edit":       {planned(undoes), change.Kept, "a", v1alpha1.ChangePending},
		"undoes another edit":  {planned(undoes, func(in *change.Input) { in.Edited = []string{"x"} }), change.Described, "a", v1alpha1.ChangePending},
		"undoes another value": {planned(undoes, func(in *change.Input) { in.Live = "again" }), change.Described, "a", v1alpha1.ChangePending},
		"failed":               {planned(failed, func(in *change.Input) { in.Live = "again" }), change.Kept, "a", v1alpha1.ChangeFailed},
		"failed, again, nothing but an edit": {planned(edited(v1alpha1.DriftReport), func(in *change.Input) {
			in.Record.Change = &v1alpha1.MachineChange{Target: "b", Phase: v1alpha1.ChangeFailed}
		}, retried), change.Forgone, "a", v1alpha1.ChangeFailed},
		"failed, again":          {planned(failed, retried), change.Described, "a", v1alpha1.ChangeFailed},
		"failed and live, again": {planned(failed, retried, arrived), change.Kept, "b", v1alpha1.ChangeSettling},
		"failed and live, again, the spec has changed": {planned(failed, retried, func(in *change.Input) {
			in.Live, in.Want = "b", "c"
		}), change.Described, "a", v1alpha1.ChangeFailed},
		"settles, and is another": {planned(phase(v1alpha1.ChangeSettling, 0), func(in *change.Input) {
			in.Live = "again"
		}), change.Kept, "a", v1alpha1.ChangeSettling},
		"not failed, again": {planned(retried), change.Kept, "a", v1alpha1.ChangePending},
		"failed, not live, at rest": {planned(failed, retried, func(in *change.Input) {
			in.Want, in.Equal = "a", true
		}), change.Kept, "a", v1alpha1.ChangeFailed},
	} {
		before := change.Record{
			Change: test.in.Record.Change.DeepCopy(), Intent: test.in.Record.Intent.DeepCopy(), Sent: test.in.Record.Sent,
		}

		outcome, record := change.Compare(test.in)
		if !cmp.Equal(test.in.Record, before) {
			t.Errorf("%s: the input was changed", name)
		}

		got := v1alpha1.ChangePhase("")
		if record.Change != nil {
			got = record.Change.Phase
		}

		if outcome != test.outcome || record.Sent != test.sent || got != test.phase {
			t.Errorf("%s: outcome %s, sent %q, phase %q", name, outcome, record.Sent, got)
		}

		if got == v1alpha1.ChangeSettling && !record.Change.Since.Time.Equal(now) {
			t.Errorf("%s: since %s", name, record.Change.Since)
		}
	}
}

// TestArrived: a configuration of the change that was staged or applied, and is live, counts as sent.
func TestArrived(t *testing.T) {
	staged := func(in *change.Input) { in.Record.Change.Staged = true }

	for name, test := range map[string]struct {
		in   change.Input
		sent string
	}{
		"staged":           {planned(staged), "a"},
		"booted":           {planned(staged, arrived), "b"},
		"not staged":       {planned(arrived), "a"},
		"applied":          {planned(arrived, intent(v1alpha1.StepApply, 0)), "b"},
		"on trial":         {planned(arrived, intent(v1alpha1.StepTry, 0)), "a"},
		"not applied":      {planned(intent(v1alpha1.StepApply, 0)), "a"},
		"being rebooted":   {planned(staged, arrived, intent(v1alpha1.StepReboot, 0)), "a"},
		"nothing to do":    {planned(arrived, func(in *change.Input) { in.Record.Change = nil }), "a"},
		"runs another one": {planned(staged, func(in *change.Input) { in.Live = "c" }), "a"},
	} {
		if got := change.Arrived(test.in.Record, test.in.Live).Sent; got != test.sent {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestDrainsLater: a change that was planned while reboots were manual drains the node once they are not.
func TestDrainsLater(t *testing.T) {
	in := planned(stagedOnly)
	in.Record.Change.Drain, in.Options.Drains = false, true

	if _, record := change.Compare(in); !record.Change.Drain {
		t.Errorf("%+v", record.Change)
	}

	in.Record.Change.Drain, in.Options.Drains = true, false

	if _, record := change.Compare(in); !record.Change.Drain {
		t.Errorf("it was planned to drain: %+v", record.Change)
	}
}

// TestDescribe: what a change is depends on its effect on the node.
func TestDescribe(t *testing.T) {
	controlPlane := func(in *change.Input) { in.ControlPlane = true }
	reverts := func(in *change.Input) { in.Reverting = true }
	drains := func(in *change.Input) { in.Options.Drains = true }

	for name, test := range map[string]struct {
		in                       change.Input
		effect                   change.Effect
		reboot, drain, try, etcd bool
		cause                    v1alpha1.ChangeCause
	}{
		"harmless":                    {planned(drains), change.Effect{}, false, false, false, false, v1alpha1.CauseSpec},
		"reboots":                     {planned(drains), change.Effect{Reboot: true}, true, true, false, false, v1alpha1.CauseSpec},
		"reboots by hand":             {planned(), change.Effect{Reboot: true}, true, false, false, false, v1alpha1.CauseSpec},
		"reverts with a reboot":       {planned(reverts), change.Effect{Reboot: true, Cuts: true}, true, true, false, false, v1alpha1.CauseRevert},
		"cuts":                        {planned(), change.Effect{Cuts: true}, false, false, true, false, v1alpha1.CauseSpec},
		"cuts, and reboots":           {planned(), change.Effect{Cuts: true, Reboot: true}, true, false, true, false, v1alpha1.CauseSpec},
		"etcd":                        {planned(controlPlane), change.Effect{Etcd: true}, false, false, false, true, v1alpha1.CauseSpec},
		"control plane reboots":       {planned(controlPlane), change.Effect{Reboot: true}, true, false, false, true, v1alpha1.CauseSpec},
		"control plane is cut":        {planned(controlPlane), change.Effect{Cuts: true}, false, false, true, true, v1alpha1.CauseSpec},
		"worker with etcd":            {planned(), change.Effect{Etcd: true}, false, false, false, false, v1alpha1.CauseSpec},
		"undoes, and cuts":            {planned(edited(v1alpha1.DriftEnforce)), change.Effect{Cuts: true}, false, false, true, false, v1alpha1.CauseDrift},
		"undoes on the way":           {planned(func(in *change.Input) { in.Edited = []string{"x"} }), change.Effect{}, false, false, false, false, v1alpha1.CauseSpec},
		"differs":                     {planned(func(in *change.Input) { in.Live, in.Want = "x", "a" }), change.Effect{}, false, false, false, false, v1alpha1.CauseSpec},
		"harmless in a control plane": {planned(controlPlane), change.Effect{}, false, false, false, false, v1alpha1.CauseSpec},
		"undoes":                      {planned(edited(v1alpha1.DriftEnforce)), change.Effect{}, false, false, false, false, v1alpha1.CauseDrift},
	} {
		test.in.Record.Intent = &v1alpha1.MachineIntent{Step: v1alpha1.StepDrain}

		before := test.in.Record.Intent.DeepCopy()

		record := change.Describe(test.in, test.effect)
		if !cmp.Equal(test.in.Record.Intent, before) {
			t.Errorf("%s: the input was changed", name)
		}

		c := record.Change
		if c.Reboot != test.reboot || c.Drain != test.drain || c.Try != test.try || c.Etcd != test.etcd ||
			c.Cause != test.cause || c.Base != test.in.Live || c.Target != test.in.Want ||
			c.Phase != v1alpha1.ChangePending || record.Intent != nil || !c.Since.Time.Equal(now) {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

// TestIDs: a change has the same ID whenever it is found, and another one for another difference, effect or spec.
func TestIDs(t *testing.T) {
	seen := map[string]string{}

	for name, in := range map[string]change.Input{
		"change": planned(), "target": planned(func(in *change.Input) { in.Want = "c" }),
		"base": planned(func(in *change.Input) { in.Live = "c" }),
		"spec": planned(func(in *change.Input) { in.Key = "uid 1/1/2" }),
	} {
		for _, effect := range []change.Effect{{}, {Reboot: true}, {Cuts: true}} {
			id := change.Describe(in, effect).Change.ID
			if other, is := seen[id]; is || id == "" {
				t.Errorf("%s %+v has the ID of %s", name, effect, other)
			}

			in.Now = in.Now.Add(time.Hour)
			if again := change.Describe(in, effect).Change.ID; again != id {
				t.Errorf("%s: %s later, %s before", name, again, id)
			}

			seen[id] = name
		}
	}
}

// TestFieldNames: a document that changes as a whole counts once, and long lists are cut.
func TestFieldNames(t *testing.T) {
	for want, fields := range map[string][]string{
		"doc, x, y and 1 more": {"doc", "doc: a", "doc: b", "x", "y", "z"},
		"doc, x, y":            {"doc", "x", "y"},
		"x, x":                 {"x", "x"},
		"doc: a, doc: b":       {"doc: a", "doc: b"},
	} {
		c := &v1alpha1.MachineChange{}
		for _, f := range fields {
			c.Fields = append(c.Fields, v1alpha1.FieldChange{Field: f})
		}

		if got := change.FieldNames(c); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAfter: a text that there is not adds nothing to a sentence.
func TestAfter(t *testing.T) {
	if none, some := change.After(": ", ""), change.After(": ", "why"); none != "" || some != ": why" {
		t.Errorf("%q, %q", none, some)
	}
}

// TestBetween: a node may run either of two configurations while one is sent, tried or booted.
func TestBetween(t *testing.T) {
	for step, want := range map[string]bool{
		v1alpha1.StepApply: true, v1alpha1.StepTry: true, v1alpha1.StepReboot: true, v1alpha1.StepStage: false,
		v1alpha1.StepDrain: false,
	} {
		if got := (change.Record{Intent: &v1alpha1.MachineIntent{Step: step}}).Between(); got != want {
			t.Errorf("%s: %t", step, got)
		}
	}

	if (change.Record{}).Between() {
		t.Error("nothing is done")
	}
}

// TestChecked: only an observation in the middle of a trial proves that the operator watched it.
func TestChecked(t *testing.T) {
	for _, test := range []struct {
		step    string
		since   time.Duration
		checked bool
		want    bool
	}{
		{v1alpha1.StepTry, time.Second, false, false},
		{v1alpha1.StepTry, 5 * time.Second, false, true},
		{v1alpha1.StepTry, 59 * time.Second, false, true},
		{v1alpha1.StepTry, time.Minute, false, false},
		{v1alpha1.StepTry, time.Hour, true, true},
		{v1alpha1.StepReboot, 10 * time.Second, false, false},
	} {
		i := &v1alpha1.MachineIntent{Step: test.step, Since: ago(test.since), Checked: test.checked}
		if got := change.Checked(i, try, now); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}

	if change.Checked(nil, try, now) {
		t.Error("there is no trial")
	}
}
