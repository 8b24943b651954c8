package change_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// disruptive are the acts that take something from a node, or make its next boot another one.
var disruptive = []change.Act{
	change.Drain, change.Try, change.Stage, change.Install, change.Upgrade, change.Rollback, change.Reboot,
}

// recordedAs is the step that is recorded before an act that takes a node down, or may.
var recordedAs = map[change.Act]string{
	change.Try: v1alpha1.StepTry, change.Stage: v1alpha1.StepStage, change.Install: v1alpha1.StepInstall,
	change.Upgrade: v1alpha1.StepReboot, change.Rollback: v1alpha1.StepReboot, change.Reboot: v1alpha1.StepReboot,
}

// TestPropertiesTotal: whatever is recorded and observed, also what no history leads to, such as a record that a user has
// edited or a restore has brought back, there is a next step; and none that disrupts a node without a grant, without the
// permission of the safety kernel, or without a record.
func TestPropertiesTotal(t *testing.T) {
	for name, next := range map[string]func(change.Input) change.Step{"configuration": change.Next, "Talos": change.NextTalos} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				in := anyInput(t)
				checkStep(t, in, next(in))
			})
		})
	}
}

func checkStep(t *rapid.T, in change.Input, step change.Step) {
	c, i := in.Record.Change, in.Record.Intent

	if step.Act == change.Apply && !in.Equal || slices.Contains(disruptive, step.Act) {
		// A reboot or a trial that is recorded had its grant when it was: what has begun is carried to its end.
		begun := i != nil && (i.Step == v1alpha1.StepReboot || i.Step == v1alpha1.StepTry)

		switch {
		case c == nil:
			t.Fatalf("%s without a change", step.Act)
		case begun:
		case in.Grant == nil, in.Grant.ID != c.ID:
			t.Fatalf("%s without a grant", step.Act)
		case recordedAs[step.Act] == v1alpha1.StepReboot && !in.Grant.Reboot:
			t.Fatalf("%s with a grant that allows no reboot", step.Act)
		}
	}

	if want := recordedAs[step.Act]; want == v1alpha1.StepReboot && !in.Options.Reboots && c.Cause != v1alpha1.CauseRevert {
		t.Fatalf("%s outside of a window", step.Act)
	}

	want, recorded := recordedAs[step.Act]
	if !recorded {
		return
	}

	// What is staged without a reboot takes effect with one that others cause. An installer that has begun was permitted
	// then, and reboots nothing.
	stays := step.Act == change.Stage || step.Act == change.Install && i != nil && i.Step == v1alpha1.StepInstall
	if c.Etcd && !in.Pass.Permitted && !stays {
		t.Fatalf("%s without the permission of the safety kernel", step.Act)
	}

	if step.Before.Intent == nil || step.Before.Intent.Step != want {
		t.Fatalf("%s without a record of it: %+v", step.Act, step.Before.Intent)
	}
}

// anyInput draws an input without regard to whether it can be.
func anyInput(t *rapid.T) change.Input {
	hash := rapid.SampledFrom([]string{"a", "b", "c"})
	boot := rapid.SampledFrom([]string{"", "boot", "next"})
	id := rapid.SampledFrom([]string{"id", "id", "id", "other"})
	yes := rapid.Bool()
	at := rapid.Custom(func(t *rapid.T) metav1.Time {
		return ago(rapid.SampledFrom([]time.Duration{0, time.Second, 20 * time.Second, try / 2, try, health, 3 * health, -health}).Draw(t, "ago"))
	})

	in := change.Input{
		Now: now, Name: "w-0", Key: "uid 1/1/1", ControlPlane: yes.Draw(t, "control plane"), Live: hash.Draw(t, "live"),
		Want: hash.Draw(t, "want"), Equal: yes.Draw(t, "equal"), Reverting: yes.Draw(t, "reverting"), Retry: yes.Draw(t, "retry"),
		Worked: hash.Draw(t, "worked"), Legacy: yes.Draw(t, "legacy"), BootID: boot.Draw(t, "boot"), Ready: yes.Draw(t, "ready"),
		Stage:   rapid.SampledFrom([]string{"", change.StageRunning, change.StageBooting, "upgrading"}).Draw(t, "stage"),
		Lags:    rapid.SampledFrom([]string{"", "kubelet"}).Draw(t, "lags"),
		Refuted: yes.Draw(t, "refuted"),
		Options: change.Options{
			HealthTimeout: health, TryTimeout: try, Drift: v1alpha1.DriftReport, Drains: yes.Draw(t, "drains"),
			Reboots: yes.Draw(t, "reboots"), Closed: yes.Draw(t, "closed"),
		},
		Record: change.Record{Sent: hash.Draw(t, "sent")},
		Pass:   anyPass(t),
	}

	if yes.Draw(t, "asked") {
		in.Asked = at.Draw(t, "asked since").Time
	}

	if yes.Draw(t, "a grant") {
		in.Grant = &v1alpha1.ChangeGrant{ID: id.Draw(t, "granted"), Reboot: yes.Draw(t, "reboot granted")}
	}

	if yes.Draw(t, "an intent") {
		in.Record.Intent = &v1alpha1.MachineIntent{
			Step: rapid.SampledFrom([]string{
				v1alpha1.StepTry, v1alpha1.StepApply, v1alpha1.StepStage, v1alpha1.StepPull, v1alpha1.StepInstall, v1alpha1.StepReboot,
				v1alpha1.StepDrain, v1alpha1.StepLeave, v1alpha1.StepReset, "",
			}).Draw(t, "step"),
			BootID: boot.Draw(t, "boot of the intent"), Attempt: rapid.Int32Range(0, 3).Draw(t, "attempt"),
			Since: at.Draw(t, "since of the intent"), Checked: yes.Draw(t, "checked"),
		}
	}

	if rapid.IntRange(0, 9).Draw(t, "a change") > 0 {
		in.Record.Change = &v1alpha1.MachineChange{
			ID: id.Draw(t, "id"), Target: hash.Draw(t, "target"), Base: hash.Draw(t, "base"), Since: at.Draw(t, "since"),
			Kind:  rapid.SampledFrom([]v1alpha1.ChangeKind{"", v1alpha1.ChangeTalos, v1alpha1.ChangeKubernetes}).Draw(t, "kind"),
			Cause: rapid.SampledFrom([]v1alpha1.ChangeCause{"", v1alpha1.CauseSpec, v1alpha1.CauseDrift, v1alpha1.CauseRevert}).Draw(t, "cause"),
			Phase: rapid.SampledFrom([]v1alpha1.ChangePhase{
				"", v1alpha1.ChangePending, v1alpha1.ChangeDraining, v1alpha1.ChangeApplying, v1alpha1.ChangeAwaitingReboot,
				v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling, v1alpha1.ChangeFailed,
			}).Draw(t, "phase"),
			Reboot: yes.Draw(t, "reboot"), Drain: yes.Draw(t, "drain"), Try: yes.Draw(t, "try"), Etcd: yes.Draw(t, "etcd"),
			Staged: yes.Draw(t, "staged"), Booted: yes.Draw(t, "booted"), RollbackBoot: boot.Draw(t, "rollback boot"),
			InstalledBoot: boot.Draw(t, "installed boot"),
			LostPhase:     rapid.SampledFrom([]string{"", string(v1alpha1.ChangeDraining), string(v1alpha1.ChangeRebooting), "?"}).Draw(t, "lost"),
		}

		if yes.Draw(t, "unfit") {
			in.Record.Change.UnfitSince = new(at.Draw(t, "unfit since"))
		}
	}

	return in
}

func anyPass(t *rapid.T) change.Pass {
	yes, text := rapid.Bool(), rapid.SampledFrom([]string{"", "", "a reason"})

	return change.Pass{
		Drained: yes.Draw(t, "drained"), Permitted: yes.Draw(t, "permitted"), Unrecorded: yes.Draw(t, "unrecorded"),
		Held: text.Draw(t, "held"), Proven: yes.Draw(t, "proven"), Asked: yes.Draw(t, "asked"), Holds: yes.Draw(t, "holds"),
		Staged: yes.Draw(t, "was staged"), Sent: yes.Draw(t, "was sent"), Pulled: yes.Draw(t, "pulled"),
		Installed: yes.Draw(t, "installed"), Uninstalled: yes.Draw(t, "uninstalled"), Failed: text.Draw(t, "failed"),
		Unsure: yes.Draw(t, "unsure"), Uncordoned: yes.Draw(t, "uncordoned"), Remembered: yes.Draw(t, "remembered"),
	}
}

// TestLegacyIsPermittedAnew: a machine whose Talos installs and reboots by one call is not upgraded because an
// installation is recorded, which needs no permission to go on.
func TestLegacyIsPermittedAnew(t *testing.T) {
	in := upgraded(etcd, legacy, installed, intent(v1alpha1.StepInstall, 0))
	in.Options.Reboots = true

	if step := change.NextTalos(in); step.Act != change.Drain {
		t.Errorf("not drained, got %s", step.Act)
	}

	in.Pass.Drained = true
	if step := change.NextTalos(in); step.Act != change.Permit {
		t.Errorf("got %s", step.Act)
	}

	in.Pass.Permitted = true
	if step := change.NextTalos(in); step.Act != change.Upgrade {
		t.Errorf("permitted, got %s", step.Act)
	}

	in.Options.Reboots = false
	if step := change.NextTalos(in); step.Act == change.Upgrade {
		t.Error("upgraded outside of the window")
	}
}
