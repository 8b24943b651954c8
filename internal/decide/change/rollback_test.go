package change_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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
		"another reboot, booting": {rolledBack(asked, bootedAnew, booting, phase(rebooting, time.Second)), change.None, rebooting, "it is booting"},
		"twice in vain":           {rolledBack(asked, second, bootedAnew, phase(rebooting, time.Second)), change.Uncordon, rebooting, ""},
		"was twice in vain":       {rolledBack(asked, second, bootedAnew, phase(rebooting, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "what it ran before does not boot"},
		"it has booted":           {rolledBack(asked, bootedAnew, arrived, phase(rebooting, time.Second)), change.None, v1alpha1.ChangeSettling, ""},
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

		if i := step.Before.Intent; c.act == change.Rollback && (i == nil || i.BootID != c.in.BootID) {
			t.Errorf("%s: not recorded for this boot: %+v", name, i)
		}
	}
}

// TestRollbackHistories: a node flips which system boots next with each request. Wherever the manager is killed, and
// whoever else reboots the node, it gets one request in a boot, and ends with what it ran before, or says that it does
// not.
func TestRollbackHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock, runs, next, boot, requests := now, "b", "b", 0, 0
		others := rapid.IntRange(0, 2).Draw(t, "reboots by others")

		restart := func() { runs, boot, requests = next, boot+1, 0 }

		in := upgraded(unwanted)
		in.Live, in.Equal, in.Reverting, in.ControlPlane = "b", false, true, rapid.Bool().Draw(t, "control plane")
		record := change.DescribeTalos(in, "installer:a", "installer:b", nil)

		for range 200 {
			if record.Change == nil || record.Change.Phase == v1alpha1.ChangeFailed {
				break
			}

			clock = clock.Add(rapid.SampledFrom([]time.Duration{time.Second, 20 * time.Second}).Draw(t, "time"))

			if others > 0 && rapid.IntRange(0, 4).Draw(t, "another reboot") == 0 {
				others--

				restart()
			}

			done := change.Pass{}

			for range 8 {
				step := change.NextTalos(change.Input{
					Now: clock, Name: "w-0", Key: "uid", ControlPlane: in.ControlPlane, Live: runs, Want: "a", Equal: runs == "a",
					Options: in.Options, Record: record, Grant: &v1alpha1.ChangeGrant{ID: record.Change.ID, Reboot: true},
					BootID: fmt.Sprint(boot), Stage: change.StageRunning, Ready: runs == "a", Unmet: "kubelet", Pass: done,
				})
				record = step.Before

				if rapid.IntRange(0, 5).Draw(t, "killed before the act") == 0 {
					break
				}

				switch step.Act {
				case change.Permit:
					done.Permitted = true
				case change.Uncordon:
					done.Uncordoned = true
				case change.Rollback:
					if requests++; requests > 1 {
						t.Fatal("requested twice in one boot: the second request takes back the first one")
					}

					if next = "a"; rapid.Bool().Draw(t, "it reboots") {
						restart()
					}
				case change.Reboot:
					restart()
				default:
				}

				if step.Act == change.None || step.Again > 0 {
					break
				}
			}
		}

		if c := record.Change; c == nil && runs != "a" || c != nil && c.Phase != v1alpha1.ChangeFailed {
			t.Fatalf("runs %s: %+v", runs, c)
		}
	})
}
