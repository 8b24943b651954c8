package change_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// rolledBack returns a granted change that returns to what ran before, a healthy worker unless edited.
func rolledBack(edits ...func(*change.Input)) change.Input {
	return upgraded(append([]func(*change.Input){func(in *change.Input) {
		in.Record.Change.Cause = v1alpha1.CauseRevert
	}}, edits...)...)
}

// TestRollback: one row for each step of a rollback.
func TestRollback(t *testing.T) {
	const rebooting = v1alpha1.ChangeRebooting

	drained, asked := change.Pass{Drained: true}, intent("Reboot", time.Second)
	late := func(in *change.Input) { intent("Reboot", time.Minute)(in) }
	second := func(in *change.Input) { in.Record.Intent.Attempt = 1 }
	leaving := func(in *change.Input) { in.Stage = "rebooting" }
	booting := func(in *change.Input) { in.Stage = "booting" }

	for name, c := range map[string]struct {
		in      change.Input
		act     change.Act
		phase   v1alpha1.ChangePhase
		message string
	}{
		"no grant":                {rolledBack(ungranted), change.None, v1alpha1.ChangePending, ""},
		"drain first, pull never": {rolledBack(), change.Drain, v1alpha1.ChangeDraining, ""},
		"the drain waits":         {rolledBack(pass(change.Pass{Held: "a budget"})), change.None, v1alpha1.ChangeDraining, "a budget"},
		"drained":                 {rolledBack(pass(drained)), change.Rollback, rebooting, ""},
		"unhealthy: no drain":     {rolledBack(sick), change.Rollback, rebooting, ""},
		"no window":               {rolledBack(sick, closed), change.Rollback, rebooting, ""},
		"etcd: ask before":        {rolledBack(sick, etcd), change.Permit, v1alpha1.ChangePending, ""},
		"etcd: not permitted":     {rolledBack(sick, etcd, pass(change.Pass{Held: "quorum"})), change.None, v1alpha1.ChangePending, "quorum"},
		"etcd: permitted":         {rolledBack(sick, etcd, pass(change.Pass{Permitted: true})), change.Rollback, rebooting, ""},
		"it reboots":              {rolledBack(asked, phase(rebooting, time.Second)), change.None, rebooting, ""},
		"reboot again, no more":   {rolledBack(late, phase(rebooting, time.Minute)), change.Reboot, rebooting, ""},
		"legacy: the same":        {rolledBack(legacy, late, phase(rebooting, time.Minute)), change.Reboot, rebooting, ""},
		"another reboot":          {rolledBack(asked, bootedAnew, sick, phase(rebooting, time.Second)), change.Rollback, rebooting, ""},
		"etcd: another reboot":    {rolledBack(etcd, asked, bootedAnew, phase(rebooting, time.Second)), change.Permit, rebooting, ""},
		"booting, reboot again":   {rolledBack(late, booting, phase(rebooting, time.Minute)), change.Reboot, rebooting, ""},
		"booting for long":        {rolledBack(intent("Reboot", health), bootedAnew, booting, phase(rebooting, health)), change.Rollback, rebooting, ""},
		"it goes down":            {rolledBack(late, leaving, phase(rebooting, time.Minute)), change.None, rebooting, ""},
		"another reboot, booting": {rolledBack(asked, bootedAnew, booting, phase(rebooting, time.Second)), change.None, rebooting, "it is booting"},
		"twice in vain":           {rolledBack(asked, second, bootedAnew, phase(rebooting, time.Second)), change.Uncordon, rebooting, ""},
		"was twice in vain":       {rolledBack(asked, second, bootedAnew, phase(rebooting, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "what it ran before does not boot"},
		"it has booted":           {rolledBack(asked, bootedAnew, arrived, phase(rebooting, time.Second)), change.None, v1alpha1.ChangeSettling, ""},
		"asked in this boot":      {rolledBack(requested, pass(drained)), change.Reboot, rebooting, ""},
		"its boot is not known":   {rolledBack(sick, func(in *change.Input) { in.BootID = "" }), change.Rollback, rebooting, ""},
		"another system":          {rolledBack(asked, bootedAnew, func(in *change.Input) { in.Live = "c" }, phase(rebooting, time.Second)), change.Uncordon, rebooting, ""},
		"still unhealthy":         {rolledBack(arrived, sick, phase(v1alpha1.ChangeSettling, health)), change.None, v1alpha1.ChangeFailed, "repair it, or replace it"},
		"done":                    {rolledBack(arrived, phase(v1alpha1.ChangeSettling, time.Second), pass(change.Pass{Uncordoned: true})), change.None, "", ""},
	} {
		step := change.NextTalos(c.in)
		phase, message := v1alpha1.ChangePhase(""), ""

		if got := step.Before.Change; got != nil {
			phase, message = got.Phase, got.Message
		}

		if step.Act != c.act || phase != c.phase || !strings.Contains(message, c.message) {
			t.Errorf("%s: %q in phase %q: %s", name, step.Act, phase, message)
		}

		if c.act != change.Rollback {
			continue
		}

		if i, got := step.Before.Intent, step.Before.Change; i == nil || i.BootID != c.in.BootID ||
			got.RollbackBoot != c.in.BootID || !got.Staged {
			t.Errorf("%s: not recorded for this boot: %+v, %+v", name, i, got)
		}

		if step.Again != 0 {
			t.Errorf("%s: it ends the reconciliation, and a refusal would be known at once", name)
		}
	}
}

// TestRollbackTwiceAtMost: a node whose former system does not boot comes back with what it ran. It is asked once more,
// because the first request may not have reached it, and then the rollback has failed.
func TestRollbackTwiceAtMost(t *testing.T) {
	in := rolledBack(sick, pass(change.Pass{Uncordoned: true}))

	for attempt := range int32(2) {
		step := change.NextTalos(in)
		if i := step.Before.Intent; step.Act != change.Rollback || i.Attempt != attempt || i.BootID != in.BootID {
			t.Fatalf("boot %d: %+v, %+v", attempt, step, i)
		}

		in.Record, in.BootID, in.Now = step.Before, fmt.Sprint("boot ", attempt), in.Now.Add(time.Minute)
	}

	in.Now = in.Now.Add(health)
	if step := change.NextTalos(in); step.Act != change.None || step.Before.Change.Phase != v1alpha1.ChangeFailed {
		t.Errorf("after two requests: %+v, %+v", step, step.Before.Change)
	}
}

// requested: the node was asked in this boot to roll back.
func requested(in *change.Input) {
	in.Record.Change.RollbackBoot, in.Record.Change.Staged = "boot", true
}

// TestRollbackTakenBack: a rollback that is no longer desired leaves what runs to prove itself, and nothing else
// installed.
func TestRollbackTakenBack(t *testing.T) {
	same := func(in *change.Input) { in.Want, in.Equal = in.Live, true }
	fields := func(in *change.Input) {
		in.Record.Change.Fields = []v1alpha1.FieldChange{{Field: "Talos", Old: "b", New: "a"}}
	}

	_, record := change.CompareTalos(rolledBack(same, fields), "installer:a")
	if c := record.Change; c == nil || c.Phase != v1alpha1.ChangeSettling || c.Target != "a" || c.Base != "b" ||
		c.Cause != v1alpha1.CauseSpec || c.Image != "installer:a" || c.OldImage != "installer:b" || !c.Booted || c.Staged ||
		c.Fields[0].Old != "a" || c.Fields[0].New != "b" {
		t.Errorf("it had not begun: %+v", c)
	}

	step := change.NextTalos(rolledBack(same, phase(v1alpha1.ChangeDraining, time.Second), pass(change.Pass{Uncordoned: true})))
	if c := step.Before.Change; c == nil || c.Phase != v1alpha1.ChangeSettling || c.Target != "a" {
		t.Errorf("it had begun: %+v", c)
	}

	in := rolledBack(same, requested, phase(v1alpha1.ChangeFailed, time.Second))
	if step := change.NextTalos(in); step.Act != change.Uninstall {
		t.Errorf("what was requested boots next: %+v", step)
	}

	in = rolledBack(requested, phase(v1alpha1.ChangeFailed, time.Second))
	if c := change.DescribeTalos(in, "installer:b", "installer:a", nil).Change; c.RollbackBoot != "boot" || !c.Staged {
		t.Errorf("the request is forgotten: %+v", c)
	}
}

// TestRefusedRollback: a node that has nothing to boot is schedulable again, and one that was not reached is asked
// again.
func TestRefusedRollback(t *testing.T) {
	asked := []func(*change.Input){
		intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second),
		requested,
	}

	refused := rolledBack(append(asked, pass(change.Pass{Failed: "no fallback entry"}))...)
	if step := change.NextTalos(refused); step.Act != change.Uncordon {
		t.Errorf("refused: %+v", step)
	}

	refused.Pass.Uncordoned = true

	step := change.NextTalos(refused)
	if c := step.Before.Change; c.Phase != v1alpha1.ChangeFailed || c.Staged || c.RollbackBoot != "" || c.Message != "no fallback entry" {
		t.Errorf("refused: %+v", c)
	}

	sent := rolledBack(asked...)

	unsent := change.Unsent(sent, "not reached")
	if c := unsent.Before.Change; unsent.Before.Intent != nil || c.RollbackBoot != "" || c.Staged || c.Message != "not reached" ||
		sent.Record.Change.RollbackBoot == "" {
		t.Errorf("not reached: %+v", c)
	}
}

// node is one node whose boot slot is flipped by each request.
type node struct {
	runs, other string // what runs, and what is in the other slot
	next        string // what boots next
	boot        int
}

func (n *node) restart() {
	if n.next == n.other {
		n.runs, n.other = n.other, n.runs
	}

	n.boot++
}

func (n *node) flip() {
	if n.next == n.runs {
		n.next = n.other
	} else {
		n.next = n.runs
	}
}

// TestRollbackHistories: wherever the manager is killed, whatever the safety kernel says, and whatever else reboots the
// node or retries, the node ends with what it ran before, or with a failure, and never boots what is not desired
// unnoticed.
func TestRollbackHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock, n := now, &node{runs: "b", other: "a", next: "b"}
		others, retries := rapid.IntRange(0, 2).Draw(t, "reboots by others"), rapid.IntRange(0, 2).Draw(t, "retries")

		in := upgraded(unwanted)
		in.Live, in.Equal, in.Reverting, in.ControlPlane = "b", false, true, rapid.Bool().Draw(t, "control plane")
		record := change.DescribeTalos(in, "installer:a", "installer:b", nil)

		input := func(done change.Pass) change.Input {
			out := change.Input{
				Now: clock, Name: "w-0", Key: fmt.Sprint("uid", clock), ControlPlane: in.ControlPlane, Reverting: true, Live: n.runs,
				Want: "a", Equal: n.runs == "a", Options: in.Options, Record: record, BootID: fmt.Sprint(n.boot),
				Stage: change.StageRunning, Ready: n.runs == "a", Unmet: "kubelet", Pass: done,
			}

			if record.Change != nil {
				out.Grant = &v1alpha1.ChangeGrant{ID: record.Change.ID, Reboot: true}
			}

			return out
		}

		for turn := range 300 {
			clock = clock.Add(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second, 6 * time.Minute}).Draw(t, "time"))
			calm := turn > 200

			switch {
			case record.Change == nil:
				continue
			case record.Change.Phase == v1alpha1.ChangeFailed && retries > 0:
				retries--

				retried := input(change.Pass{})
				retried.Retry = true

				outcome, _ := change.CompareTalos(retried, "installer:a")
				if outcome == change.Described {
					record = change.DescribeTalos(retried, "installer:a", "installer:b", nil)
				}
			case !calm && others > 0 && rapid.IntRange(0, 4).Draw(t, "another reboot") == 0:
				others--

				n.restart()
			}

			done, denied := change.Pass{}, !calm && rapid.Bool().Draw(t, "denied")

			for range 8 {
				step := change.NextTalos(input(done))
				if record = step.Before; step.Act == change.None || !calm && rapid.IntRange(0, 5).Draw(t, "killed before the act") == 0 {
					break
				}

				switch step.Act {
				case change.Permit:
					if done.Permitted = !denied; denied {
						done.Held = "quorum"
					}
				case change.Uncordon:
					done.Uncordoned = true
				case change.Rollback:
					n.flip()

					if n.next != "a" {
						t.Fatal("the second request has taken back the first one")
					}

					if calm || rapid.Bool().Draw(t, "it reboots") {
						n.restart()
					}
				case change.Reboot:
					if calm || rapid.Bool().Draw(t, "it reboots") {
						n.restart()
					}
				default:
				}

				if step.Again > 0 {
					break
				}
			}
		}

		c := record.Change

		switch {
		case c == nil && n.runs != "a":
			t.Fatalf("complete, and runs %s", n.runs)
		case c != nil && c.Phase != v1alpha1.ChangeFailed:
			t.Fatalf("it does not end: %+v", c)
		case c != nil && n.next != n.runs && !c.Staged:
			t.Fatalf("%s boots next, and nothing says so: %+v", n.next, c)
		}
	})
}

// TestStaysUnfit: what a node lags behind when its change fails is no reason to boot an older system, and one sample of
// an unhealthy node after that is none either; a node that was unfit all the time need not wait longer.
func TestStaysUnfit(t *testing.T) {
	lagging := func(in *change.Input) { in.Lags = "etcd: it has not caught up" }
	refuted := func(in *change.Input) { in.Lags, in.Refuted = "check a: the expression is false", true }

	for name, c := range map[string]struct {
		first, then, last func(*change.Input)
		atOnce, later     bool
	}{
		"unhealthy all the time":      {sick, sick, sick, true, true},
		"refuted all the time":        {refuted, refuted, refuted, true, true},
		"it lags all the time":        {lagging, lagging, lagging, false, false},
		"it lags and then restarts":   {lagging, lagging, sick, false, true},
		"it lags and then is refuted": {lagging, lagging, refuted, false, true},
		"unhealthy only at the end":   {lagging, sick, sick, false, true},
		"no longer unhealthy":         {sick, sick, lagging, false, false},
	} {
		in := upgraded(installed, arrived, seen, c.first, phase(v1alpha1.ChangeSettling, 0))
		answers := in.Now

		next := func(after time.Duration, edit func(*change.Input)) {
			in.Now = in.Now.Add(after)
			in.Ready, in.Unmet, in.Lags, in.Refuted = true, "", "", false
			edit(&in)

			in.Record = change.NextTalos(in).Before
		}
		unfit := func() bool { return change.MustRollBack(in, answers, "") }

		next(0, c.first)
		next(health, c.then)

		if in.Record.Change.Phase != v1alpha1.ChangeFailed {
			t.Fatalf("%s: %+v", name, in.Record.Change)
		}

		next(time.Second, c.last)

		if got := unfit(); got != c.atOnce {
			t.Errorf("%s: at once: %t", name, got)
		}

		next(health, c.last)

		if got := unfit(); got != c.later {
			t.Errorf("%s: later: %t", name, got)
		}
	}
}

// TestLateIsUnfitAnew: a node that comes back after its change had failed without it has its time to become healthy.
func TestLateIsUnfitAnew(t *testing.T) {
	in := upgraded(installed, arrived, sick, phase(v1alpha1.ChangeFailed, health))
	in.Record.Change.UnfitSince = new(metav1.NewTime(in.Now.Add(-time.Hour)))

	if c := change.NextTalos(in).Before.Change; c.UnfitSince == nil || in.Now.Sub(c.UnfitSince.Time) > time.Second {
		t.Errorf("unfit since %v", c.UnfitSince)
	}
}

// TestMustRollBack: only a machine that booted what is new, had its time and is not healthy is rolled back by itself.
func TestMustRollBack(t *testing.T) {
	late := func(unfit, reachable time.Duration) func(*rollbackEvidence) {
		return func(e *rollbackEvidence) {
			e.in.Record.Change.Since, e.in.Record.Change.UnfitSince = ago(time.Hour), new(ago(unfit))
			e.answers = ago(reachable).Time
		}
	}

	for name, c := range map[string]struct {
		edit func(*rollbackEvidence)
		want bool
	}{
		"it must":                 {func(*rollbackEvidence) {}, true},
		"it is healthy":           {func(e *rollbackEvidence) { e.in.Ready = true }, false},
		"a check is false":        {func(e *rollbackEvidence) { e.in.Ready, e.in.Lags, e.in.Refuted = true, "check a: false", true }, true},
		"no evidence":             {func(e *rollbackEvidence) { e.in.Ready, e.in.Lags = true, "check a: no API server responds" }, false},
		"it was not unfit":        {func(e *rollbackEvidence) { e.in.Record.Change.UnfitSince = nil }, false},
		"a moment after a lag":    {late(time.Second, time.Hour), false},
		"long after a lag":        {late(health, time.Hour), true},
		"it has just come back":   {late(health, time.Second), false},
		"it was not reachable":    {func(e *rollbackEvidence) { late(health, 0)(e); e.answers = time.Time{} }, false},
		"it runs another":         {func(e *rollbackEvidence) { e.in.Live = "a" }, false},
		"it came late":            {func(e *rollbackEvidence) { e.in.Record.Change.Booted = false }, false},
		"it has not failed":       {func(e *rollbackEvidence) { e.in.Record.Change.Phase = v1alpha1.ChangeSettling }, false},
		"it was rolled back":      {func(e *rollbackEvidence) { e.in.Record.Change.Cause = v1alpha1.CauseRevert }, false},
		"it is requested":         {func(e *rollbackEvidence) { e.asked = "b" }, false},
		"another was rolled back": {func(e *rollbackEvidence) { e.asked = "c" }, true},
		"the config changes":      {func(e *rollbackEvidence) { e.in.Record.Change.Kind = "" }, false},
		"there is no upgrade":     {func(e *rollbackEvidence) { e.in.Record.Change = nil }, false},
	} {
		e := &rollbackEvidence{in: upgraded(arrived, sick, phase(v1alpha1.ChangeFailed, time.Minute))}
		e.in.Record.Change.Booted, e.in.Record.Change.UnfitSince = true, new(ago(health))
		c.edit(e)

		if got := change.MustRollBack(e.in, e.answers, e.asked); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// rollbackEvidence is what decides whether a machine is rolled back by itself.
type rollbackEvidence struct {
	in      change.Input
	answers time.Time
	asked   string
}

// TestMustFinish: an upgrade ends before the configuration changes while it is in progress, and while its image may be
// the next to boot.
func TestMustFinish(t *testing.T) {
	const target = "b"

	for p, want := range map[v1alpha1.ChangePhase][3]bool{ // in the order of the cases below
		v1alpha1.ChangePending:        {false, true, false},
		v1alpha1.ChangeAwaitingReboot: {false, true, false},
		v1alpha1.ChangeFailed:         {false, true, false},
		v1alpha1.ChangeDraining:       {true, true, true},
		v1alpha1.ChangeApplying:       {true, true, true},
		v1alpha1.ChangeRebooting:      {true, true, true},
		v1alpha1.ChangeSettling:       {true, true, true},
	} {
		c := &v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: p, Target: target}
		got := [3]bool{change.MustFinish(c, "a")}
		c.Staged = true
		got[1] = change.MustFinish(c, "a") && change.MustFinish(c, "")
		got[2] = change.MustFinish(c, target)

		if got != want {
			t.Errorf("%s: %v, want %v", p, got, want)
		}

		if c.Kind = ""; change.MustFinish(c, "a") {
			t.Errorf("%s: a change of the configuration has to finish", p)
		}
	}

	if change.MustFinish(nil, "a") {
		t.Error("no change has to finish")
	}
}
