package change_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// planned returns a granted change from config a to config b, of a healthy worker that runs a.
func planned(edits ...func(*change.Input)) change.Input {
	in := change.Input{
		Now: now, Name: "w-0", Key: "uid 1/1/1", Live: "a", Want: "b", Fields: "machine.env", BootID: "boot",
		Stage: change.StageRunning, Ready: true,
		Options: change.Options{HealthTimeout: health, TryTimeout: try, Drift: v1alpha1.DriftReport, Reboots: true},
		Record: change.Record{Sent: "a", Change: &v1alpha1.MachineChange{
			ID: "id", Base: "a", Target: "b", Cause: v1alpha1.CauseSpec, Phase: v1alpha1.ChangePending, Since: ago(time.Minute),
			Fields: []v1alpha1.FieldChange{{Field: "machine.env"}},
		}},
		Grant: &v1alpha1.ChangeGrant{ID: "id", Reboot: true},
	}

	for _, edit := range edits {
		edit(&in)
	}

	return in
}

// Edits of an input.
func rebooting(in *change.Input) { in.Record.Change.Reboot, in.Record.Change.Drain = true, true }
func tried(in *change.Input)     { in.Record.Change.Try = true }
func ungranted(in *change.Input) { in.Grant = nil }
func stagedOnly(in *change.Input) {
	rebooting(in)
	in.Grant.Reboot = false
}
func withdrawn(in *change.Input)    { in.Want, in.Equal = "a", true }
func stagedConfig(in *change.Input) { in.Record.Change.Staged = true }
func none(in *change.Input)         { in.Record.Change = nil }
func sick(in *change.Input)         { in.Ready, in.Unmet = false, "kubelet" }
func etcd(in *change.Input)         { in.ControlPlane, in.Record.Change.Etcd = true, true }
func arrived(in *change.Input) {
	in.Live, in.Equal = "b", true
}

func phase(p v1alpha1.ChangePhase, since time.Duration) func(*change.Input) {
	return func(in *change.Input) { in.Record.Change.Phase, in.Record.Change.Since = p, ago(since) }
}

func intent(step string, since time.Duration) func(*change.Input) {
	return func(in *change.Input) {
		in.Record.Intent = &v1alpha1.MachineIntent{Step: step, BootID: "boot", Since: ago(since)}
	}
}

// asked: the node was asked for the reboot for the first time that long ago, which is on record since then.
func asked(since time.Duration) func(*change.Input) {
	return func(in *change.Input) {
		intent(v1alpha1.StepReboot, since)(in)
		in.Asked = now.Add(-since)
	}
}

func pass(p change.Pass) func(*change.Input) { return func(in *change.Input) { in.Pass = p } }

// resting are the rows after which nothing has to be done until something changes.
var resting = []string{
	"no grant", "nothing planned", "a grant for another", "staged only", "staged only, after a crash", "it is", "nothing to do, done",
}

// TestNext: one row for each step that a change may need.
func TestNext(t *testing.T) {
	const (
		pending, draining, applying = v1alpha1.ChangePending, v1alpha1.ChangeDraining, v1alpha1.ChangeApplying
		awaiting, reboots, settling = v1alpha1.ChangeAwaitingReboot, v1alpha1.ChangeRebooting, v1alpha1.ChangeSettling
		failed                      = v1alpha1.ChangeFailed
		begins, dropped             = "", v1alpha1.ChangePhase("")
	)

	drained, permitted := change.Pass{Drained: true}, change.Pass{Drained: true, Permitted: true}
	aged := func(in *change.Input) { in.Record.Change.Since = ago(time.Hour) }

	tests := []struct {
		name    string
		in      change.Input
		act     change.Act
		phase   v1alpha1.ChangePhase
		intent  string
		message string
		again   time.Duration
	}{
		{"no grant", planned(ungranted), "", pending, begins, "", 0},
		{"a grant for another", planned(func(in *change.Input) { in.Grant.ID = "other" }), "", pending, begins, "", 0},
		{"failed", planned(phase(failed, 0)), "", failed, begins, "", 0},

		{"without a reboot", planned(), change.Apply, applying, v1alpha1.StepApply, "", change.Poll},
		{"of etcd", planned(etcd), change.Permit, pending, begins, "", 0},
		{"denied", planned(etcd, pass(change.Pass{Held: "cp-1 is down"})), "", pending, begins, "cp-1 is down", change.PollGate},
		{"permitted", planned(etcd, pass(permitted)), change.Apply, applying, v1alpha1.StepApply, "", change.Poll},
		{
			"no record", planned(etcd, pass(change.Pass{Unrecorded: true})), "", pending, begins, "no record of this change",
			change.PollGate,
		},
		{"no record, drained", planned(etcd, rebooting, phase(draining, 0),
			pass(change.Pass{Drained: true, Unrecorded: true})), change.Uncordon, draining, begins, "", 0},
		{
			"no record, uncordoned", planned(etcd, rebooting, phase(draining, 0),
				pass(change.Pass{Drained: true, Unrecorded: true, Uncordoned: true})), "", pending, begins,
			"no record of this change", change.PollGate,
		},
		{
			"no record, staged by an older version", planned(etcd, rebooting, phase(awaiting, 0),
				func(in *change.Input) { in.Record.Change.Drain = false }, pass(change.Pass{Unrecorded: true})), "", awaiting,
			begins, "no record of this change", change.PollGate,
		},
		{
			"asked in vain for long, of etcd", planned(rebooting, etcd, asked(time.Hour)), change.Permit,
			pending, v1alpha1.StepReboot, "", 0,
		},
		{"asked in vain for long, denied", planned(rebooting, etcd, asked(time.Hour),
			pass(change.Pass{Held: "cp-1 is down"})), "", failed, begins, "has not done so for 10m0s", 0},
		{"asked in vain for long, permitted", planned(rebooting, etcd, asked(time.Hour),
			pass(change.Pass{Permitted: true})), "", failed, begins, "has not done so for 10m0s", 0},
		{
			"withdrawn, staged by an older version", planned(rebooting, phase(awaiting, 0), withdrawn), change.Apply, awaiting,
			begins, "", 0,
		},

		{"needs a drain", planned(rebooting), change.Drain, draining, begins, "", 0},
		{"does not drain", planned(rebooting, pass(change.Pass{Held: "pod x"})), "", draining, begins, "pod x", change.PollGate},
		{"drained", planned(rebooting, pass(drained)), change.Stage, applying, v1alpha1.StepStage, "", 0},
		{"drained, of etcd", planned(rebooting, etcd, pass(drained)), change.Permit, pending, begins, "", 0},
		{
			"staged", planned(rebooting, pass(change.Pass{Drained: true, Staged: true})), change.Reboot, reboots,
			v1alpha1.StepReboot, "", change.Poll,
		},
		{
			"crashed after staging", planned(rebooting, intent(v1alpha1.StepStage, time.Minute)), change.Stage, applying,
			v1alpha1.StepStage, "", 0,
		},
		{"no drain of a sick node that is reverted", planned(rebooting, sick, func(in *change.Input) {
			in.Record.Change.Cause = v1alpha1.CauseRevert
		}), change.Stage, applying, v1alpha1.StepStage, "", 0},
		{"the window has closed", planned(rebooting, phase(draining, 0), func(in *change.Input) {
			in.Options.Reboots = false
		}), change.Uncordon, draining, begins, "", 0},
		{"the window has closed, uncordoned", planned(rebooting, phase(draining, 0), pass(change.Pass{Uncordoned: true}),
			func(in *change.Input) { in.Options.Reboots = false }), "", pending, begins, "waiting for a time", change.PollGate},
		{"the window has closed for a staged config", planned(rebooting, phase(draining, 0),
			pass(change.Pass{Uncordoned: true}), func(in *change.Input) {
				in.Options.Reboots, in.Record.Change.Staged = false, true
			}), "", awaiting, begins, "waiting for a time", change.PollGate},
		{"a revert waits for no window", planned(rebooting, func(in *change.Input) {
			in.Options.Reboots, in.Record.Change.Cause = false, v1alpha1.CauseRevert
		}), change.Drain, draining, begins, "", 0},

		{"to be staged", planned(stagedOnly), change.Stage, pending, v1alpha1.StepStage, "", 0},
		{"staged only", planned(stagedOnly, pass(change.Pass{Staged: true})), "", awaiting, begins, "when w-0 reboots", 0},
		{"is it still staged", planned(stagedOnly, phase(awaiting, 0)), change.AskStaged, awaiting, begins, "", 0},
		{
			"it is", planned(stagedOnly, phase(awaiting, 0), pass(change.Pass{Asked: true, Holds: true})), "", awaiting, begins, "when w-0 reboots", 0,
		},
		{
			"it is not", planned(stagedOnly, phase(awaiting, 0), pass(change.Pass{Asked: true})), change.Stage, awaiting,
			v1alpha1.StepStage, "", 0,
		},

		{"may cut the node off", planned(tried), change.Try, applying, v1alpha1.StepTry, "on trial", change.Poll},
		{"may cut it off with a reboot", planned(tried, rebooting), "", failed, begins, "change it alone first", 0},
		{
			"on trial, too early", planned(tried, arrived, intent(v1alpha1.StepTry, time.Second)), "", pending,
			v1alpha1.StepTry, "", change.Poll,
		},
		{
			"on trial", planned(tried, arrived, intent(v1alpha1.StepTry, 10*time.Second)), change.Prove, pending,
			v1alpha1.StepTry, "", 0,
		},
		{
			"proven", planned(tried, arrived, intent(v1alpha1.StepTry, 10*time.Second), pass(change.Pass{Proven: true})),
			change.Apply, pending, v1alpha1.StepTry, "", change.Poll,
		},
		{
			"the trial was not sent", planned(tried, intent(v1alpha1.StepTry, 10*time.Second)), change.Try, applying,
			v1alpha1.StepTry, "on trial", change.Poll,
		},
		{
			"the trial was perhaps sent", planned(tried, intent(v1alpha1.StepTry, 40*time.Second)), "", pending,
			v1alpha1.StepTry, "", change.Poll,
		},
		{"rolled back, and checked", planned(tried, intent(v1alpha1.StepTry, 2*time.Minute), func(in *change.Input) {
			in.Record.Intent.Checked = true
		}), "", failed, begins, "it was unreachable over a new connection", 0},
		{
			"rolled back unchecked", planned(tried, intent(v1alpha1.StepTry, 2*time.Minute)), change.Try, applying,
			v1alpha1.StepTry, "on trial", change.Poll,
		},
		{"rolled back unchecked thrice", planned(tried, intent(v1alpha1.StepTry, 2*time.Minute), func(in *change.Input) {
			in.Record.Intent.Attempt = 2
		}), "", failed, begins, "3 times", 0},
		{"on trial, and not wanted", planned(tried, intent(v1alpha1.StepTry, time.Second), func(in *change.Input) {
			in.Want = "c"
		}), "", pending, begins, "", change.Poll},
		{"kept, and not wanted", planned(tried, intent(v1alpha1.StepTry, 2*time.Minute), func(in *change.Input) {
			in.Live, in.Want = "b", "c"
		}), "", pending, begins, "", change.Poll},
		{
			"a trial of nothing", planned(intent(v1alpha1.StepTry, 0), func(in *change.Input) { in.Record.Change = nil }), "",
			dropped, begins, "", change.Poll,
		},

		{
			"asked to reboot", planned(rebooting, intent(v1alpha1.StepReboot, 10*time.Second)), "", pending,
			v1alpha1.StepReboot, "", change.Poll,
		},
		{"asked to reboot, still booting", planned(rebooting, intent(v1alpha1.StepReboot, time.Minute), func(in *change.Input) {
			in.Stage = change.StageBooting
		}), "", pending, v1alpha1.StepReboot, "", change.Poll},
		{"going down, at the last moment", planned(rebooting, intent(v1alpha1.StepReboot, health), func(in *change.Input) {
			in.Stage = "rebooting"
		}), "", pending, v1alpha1.StepReboot, "", change.Poll},
		{"asked to reboot, going down", planned(rebooting, intent(v1alpha1.StepReboot, time.Minute), func(in *change.Input) {
			in.Stage = "rebooting"
		}), "", pending, v1alpha1.StepReboot, "", change.Poll},
		{"going down for long", planned(rebooting, intent(v1alpha1.StepReboot, time.Hour), func(in *change.Input) {
			in.Stage = "rebooting"
		}), "", pending, v1alpha1.StepReboot, "is rebooting and has not rebooted for 10m0s", change.PollGate},
		{
			"asked to reboot in vain", planned(rebooting, intent(v1alpha1.StepReboot, time.Minute)), change.Reboot, pending,
			v1alpha1.StepReboot, "", change.RepeatReboot,
		},
		{
			"asked in vain, of etcd", planned(rebooting, etcd, intent(v1alpha1.StepReboot, time.Minute)), change.Permit,
			pending, v1alpha1.StepReboot, "", 0,
		},
		{"asked in vain, denied", planned(rebooting, etcd, intent(v1alpha1.StepReboot, time.Minute),
			pass(change.Pass{Held: "cp-1 is down"})), "", pending, v1alpha1.StepReboot, "cp-1 is down", change.PollGate},
		{"asked in vain, no record", planned(rebooting, etcd, intent(v1alpha1.StepReboot, time.Minute),
			pass(change.Pass{Unrecorded: true})), "", pending, v1alpha1.StepReboot, "no record", change.PollGate},
		{"asked in vain for long, no record", planned(rebooting, etcd, asked(time.Hour),
			pass(change.Pass{Unrecorded: true, Uncordoned: true})), "", pending, begins, "no record", change.PollGate},
		{
			"asked in vain for long", planned(rebooting, asked(time.Hour)), "", failed, begins,
			"has not done so for 10m0s", 0,
		},
		{"rebooted", planned(rebooting, intent(v1alpha1.StepReboot, time.Minute), arrived, func(in *change.Input) {
			in.BootID = "next"
		}), "", settling, begins, "", change.Poll},
		{"rebooted into another", planned(rebooting, intent(v1alpha1.StepReboot, time.Minute), func(in *change.Input) {
			in.BootID = "next"
		}), "", failed, begins, "does not run the config that was staged", change.Poll},

		{"applied", planned(arrived, phase(applying, 0)), "", settling, begins, "", change.Poll},
		{"healthy for a moment", planned(arrived, phase(settling, time.Second)), "", settling, begins, "", change.Poll},
		{"healthy", planned(arrived, phase(settling, time.Minute)), change.Uncordon, settling, begins, "", 0},
		{"healthy after a reboot", planned(arrived, rebooting, phase(settling, 0)), change.Uncordon, settling, begins, "", 0},
		{
			"uncordoned", planned(arrived, phase(settling, time.Minute), pass(change.Pass{Uncordoned: true})), change.Remember,
			settling, begins, "", 0,
		},
		{
			"remembered", planned(arrived, phase(settling, time.Minute), pass(change.Pass{Uncordoned: true, Remembered: true})),
			"", dropped, begins, "", change.Poll,
		},
		{
			"sick", planned(arrived, sick, phase(settling, time.Minute)), "", settling, begins, "it waits for kubelet",
			change.Poll,
		},
		{"sick for long", planned(arrived, sick, phase(settling, time.Hour)), "", failed, begins, "roll the machine back", 0},
		{"failed, and healthy now", planned(arrived, phase(failed, time.Hour)), change.Uncordon, failed, begins, "", 0},
		{
			"withdrawn", planned(phase(draining, 0), func(in *change.Input) { in.Want, in.Equal = "a", true }),
			change.Uncordon, draining, begins, "", 0,
		},
		{"withdrawn, staged", planned(rebooting, phase(awaiting, 0), func(in *change.Input) {
			in.Want, in.Equal, in.Record.Change.Staged = "a", true, true
		}), change.Apply, awaiting, begins, "", 0},
		{"withdrawn, done", planned(phase(draining, 0), pass(change.Pass{Sent: true, Uncordoned: true}),
			func(in *change.Input) { in.Want, in.Equal = "a", true }), "", dropped, begins, "", change.Poll},
		{
			"nothing to do", planned(arrived, func(in *change.Input) { in.Record.Change = nil }), change.Remember, dropped,
			begins, "", 0,
		},
		{
			"nothing to do, booting", planned(arrived, sick, func(in *change.Input) { in.Record.Change = nil }), "", dropped,
			begins, "", 0,
		},
		{"nothing to do, a left-over intent", planned(arrived, intent(v1alpha1.StepDrain, 0), aged, func(in *change.Input) {
			in.Record.Change = nil
		}), change.Remember, dropped, begins, "", 0},

		{"no grant, after a crash", planned(ungranted, intent(v1alpha1.StepDrain, 0)), "", pending, v1alpha1.StepDrain, "", 0},
		{"failed, no grant", planned(ungranted, phase(failed, 0)), "", failed, begins, "", 0},
		{"healthy for a moment, with little patience", planned(arrived, phase(settling, 2*time.Second),
			func(in *change.Input) { in.Options.HealthTimeout = time.Second }), "", settling, begins, "", change.Poll},
		{"withdrawn before it began", planned(withdrawn), change.Uncordon, pending, begins, "", 0},
		{"nothing planned", planned(none), "", dropped, begins, "", 0},
		{"a sick node is drained, too", planned(rebooting, sick), change.Drain, draining, begins, "", 0},
		{
			"needs no drain", planned(rebooting, func(in *change.Input) { in.Record.Change.Drain = false }), change.Stage,
			applying, v1alpha1.StepStage, "", 0,
		},
		{
			"to be staged, and something else is", planned(stagedOnly, pass(change.Pass{Asked: true, Holds: true})),
			change.Stage, pending, v1alpha1.StepStage, "", 0,
		},
		{
			"staged only, after a crash", planned(stagedOnly, intent(v1alpha1.StepStage, 0), pass(change.Pass{Staged: true})),
			"", awaiting, begins, "when w-0 reboots", 0,
		},

		{
			"on trial, at the first moment", planned(tried, arrived, intent(v1alpha1.StepTry, 5*time.Second)), change.Prove,
			pending, v1alpha1.StepTry, "", 0,
		},
		{"on a short trial, at the first moment", planned(tried, arrived, intent(v1alpha1.StepTry, 2*time.Second),
			func(in *change.Input) { in.Options.TryTimeout = 4 * time.Second }), change.Prove, pending, v1alpha1.StepTry, "", 0},
		{
			"the trial was perhaps sent, at the first moment", planned(tried, intent(v1alpha1.StepTry, 30*time.Second)), "",
			pending, v1alpha1.StepTry, "", change.Poll,
		},
		{
			"the trial may not be over", planned(tried, intent(v1alpha1.StepTry, 65*time.Second)), "", pending,
			v1alpha1.StepTry, "", change.Poll,
		},
		{
			"the trial is just over", planned(tried, intent(v1alpha1.StepTry, 65*time.Second+1)), change.Try, applying,
			v1alpha1.StepTry, "on trial", change.Poll,
		},
		{"live on trial, and not wanted", planned(tried, intent(v1alpha1.StepTry, 10*time.Second), func(in *change.Input) {
			in.Live, in.Want = "b", "c"
		}), "", pending, v1alpha1.StepTry, "", change.Poll},

		{
			"asked to reboot, at the last moment", planned(rebooting, intent(v1alpha1.StepReboot, 15*time.Second)), "",
			pending, v1alpha1.StepReboot, "", change.Poll,
		},
		{
			"asked in vain, at the last moment", planned(rebooting, asked(health-1)), change.Reboot,
			pending, v1alpha1.StepReboot, "", change.RepeatReboot,
		},
		{"asked in vain, no record, at the last moment", planned(rebooting, etcd, asked(health),
			pass(change.Pass{Unrecorded: true})), "", pending, v1alpha1.StepReboot, "no record", change.PollGate},
		{"rebooted for nothing", planned(intent(v1alpha1.StepReboot, time.Minute), func(in *change.Input) {
			in.BootID, in.Record.Change = "next", nil
		}), "", dropped, begins, "", change.Poll},
		{"asked to reboot for nothing", planned(intent(v1alpha1.StepReboot, time.Minute), func(in *change.Input) {
			in.Record.Change = nil
		}), "", dropped, v1alpha1.StepReboot, "", change.Poll},

		{
			"applied, after a crash", planned(arrived, phase(applying, 0), intent(v1alpha1.StepApply, 0)), "", settling,
			begins, "", change.Poll,
		},
		{
			"healthy for just long enough", planned(arrived, phase(settling, change.SettleTime)), change.Uncordon, settling,
			begins, "", 0,
		},
		{
			"booting", planned(arrived, phase(settling, time.Minute), func(in *change.Input) { in.Stage = "booting" }), "",
			settling, begins, "it is booting", change.Poll,
		},
		{
			"sick for just too long", planned(arrived, sick, phase(settling, health)), "", failed, begins,
			"roll the machine back", 0,
		},
		{"failed, and sick", planned(arrived, sick, phase(failed, time.Hour)), "", failed, begins, "", change.PollFailed},
		{"the same in substance", planned(func(in *change.Input) { in.Equal = true }), "", settling, begins, "", change.Poll},
		{"live, and the spec is the same in substance", planned(arrived, phase(draining, 0), func(in *change.Input) {
			in.Want = "c"
		}), "", settling, begins, "", change.Poll},
		{"withdrawn while it is applied", planned(phase(applying, 0), withdrawn), change.Uncordon, applying, begins, "", 0},
		{"taken back while it settles", planned(phase(settling, time.Minute), withdrawn,
			pass(change.Pass{Uncordoned: true})), change.Remember, settling, begins, "", 0},
		{"taken back while it reboots", planned(rebooting, phase(reboots, 0), withdrawn,
			pass(change.Pass{Sent: true, Uncordoned: true})), change.Remember, settling, begins, "", 0},
		{
			"taken back after it failed", planned(phase(failed, time.Hour), withdrawn, pass(change.Pass{Uncordoned: true})),
			change.Remember, failed, begins, "", 0,
		},
		{
			"taken back, staged", planned(rebooting, phase(failed, time.Hour), withdrawn, stagedConfig), change.Apply, failed,
			begins, "", 0,
		},
		{"taken back, no longer staged", planned(rebooting, phase(failed, time.Hour), withdrawn, stagedConfig,
			pass(change.Pass{Sent: true})), change.Uncordon, failed, begins, "", 0},
		{
			"booted from the disk", planned(rebooting, arrived, phase(settling, time.Minute), stagedConfig), change.Uncordon,
			settling, begins, "", 0,
		},
		{
			"nothing to do, after a crash while staging", planned(arrived, intent(v1alpha1.StepStage, 0), none),
			change.Remember, dropped, begins, "", 0,
		},
		{
			"nothing to do, after a crash while applying", planned(arrived, intent(v1alpha1.StepApply, 0), none),
			change.Remember, dropped, begins, "", 0,
		},
		{
			"nothing to do, after a crash while pulling", planned(arrived, intent(v1alpha1.StepPull, 0), none),
			change.Remember, dropped, begins, "", 0,
		},
		{"nothing to do, done", planned(arrived, none, pass(change.Pass{Remembered: true})), "", dropped, begins, "", 0},
		{
			"nothing to do, being reset", planned(arrived, intent(v1alpha1.StepReset, 0), none), change.Remember, dropped,
			v1alpha1.StepReset, "", 0,
		},
	}

	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before := change.Record{
				Change: test.in.Record.Change.DeepCopy(), Intent: test.in.Record.Intent.DeepCopy(), Sent: test.in.Record.Sent,
			}
			step := change.Next(test.in)

			got, message := dropped, ""
			if c := step.Before.Change; c != nil {
				got, message = c.Phase, c.Message
			}

			step2 := ""
			if i := step.Before.Intent; i != nil {
				step2 = i.Step
			}

			if step.Act != test.act || got != test.phase || step2 != test.intent || step.Again != test.again ||
				!strings.Contains(message, test.message) || test.message == "" && message != "" && got != failed {
				t.Errorf("act %q, phase %q, intent %q, message %q, again %s", step.Act, got, step2, message, step.Again)
			}

			if !cmp.Equal(test.in.Record, before) {
				t.Errorf("the input was changed to %+v", test.in.Record)
			}

			if c := step.Before.Change; step.Act == change.Stage && !c.Staged {
				t.Error("it is not recorded that the config may be staged")
			}

			if c := step.Before.Change; step.Rest && got == awaiting && !c.Staged {
				t.Error("it is not recorded that the config is staged")
			}

			if rests := slices.Contains(resting, test.name); step.Rest != rests {
				t.Errorf("rests: %t", step.Rest)
			}

			if warned := step.Event != nil && step.Event.Warning; warned != (got == failed && before.Change.Phase != failed) {
				t.Errorf("event %+v", step.Event)
			}
		})
	}
}

// TestGrantIsReturned: a grant that is returned is worth nothing any more.
func TestGrantIsReturned(t *testing.T) {
	in := planned(rebooting, pass(change.Pass{Uncordoned: true}))
	in.Options.Reboots = false
	in.Key = "uid 1/1/2" // the grant was written

	if id := change.Next(in).Before.Change.ID; id == "id" {
		t.Error("the ID is the same")
	}
}

// TestSent: what was sent counts as sent once it was, and not before.
func TestSent(t *testing.T) {
	for name, test := range map[string]struct {
		in            change.Input
		before, after string
	}{
		"applied":  {planned(), "a", "b"},
		"on trial": {planned(tried), "a", ""},
		"confirmed": {
			planned(tried, arrived, intent(v1alpha1.StepTry, 10*time.Second), pass(change.Pass{Proven: true})),
			"a", "b",
		},
		"rebooted": {planned(rebooting, arrived, intent(v1alpha1.StepReboot, time.Minute), func(in *change.Input) {
			in.BootID = "next"
		}), "b", ""},
		"kept": {
			planned(tried, arrived, intent(v1alpha1.StepTry, time.Hour), func(in *change.Input) { in.Want = "c" }),
			"b", "",
		},
	} {
		step := change.Next(test.in)

		after := ""
		if step.After != nil {
			after = step.After.Sent

			if c := step.After.Change; c.Phase != v1alpha1.ChangeSettling || step.After.Intent != nil {
				t.Errorf("%s: after it %+v, %+v", name, c, step.After.Intent)
			}
		}

		if step.Before.Sent != test.before || after != test.after {
			t.Errorf("%s: %q before, %q after", name, step.Before.Sent, after)
		}
	}
}

// TestIntent: a step that is repeated keeps its beginning; a repeated trial is another step.
func TestIntent(t *testing.T) {
	for name, test := range map[string]struct {
		in      change.Input
		began   time.Duration
		attempt int32
	}{
		"first":                     {planned(), 0, 0},
		"again":                     {planned(rebooting, intent(v1alpha1.StepStage, time.Minute)), time.Minute, 0},
		"another step":              {planned(rebooting, intent(v1alpha1.StepDrain, time.Minute), pass(change.Pass{Drained: true})), 0, 0},
		"a trial that was not sent": {planned(tried, intent(v1alpha1.StepTry, 10*time.Second)), 10 * time.Second, 0},
		"a second trial":            {planned(tried, intent(v1alpha1.StepTry, 2*time.Minute)), 0, 1},
	} {
		i := change.Next(test.in).Before.Intent
		if i == nil || !i.Since.Time.Equal(now.Add(-test.began)) || i.Attempt != test.attempt {
			t.Errorf("%s: %+v", name, i)
		}
	}
}

// TestEvents: a user is told what was done to a node.
func TestEvents(t *testing.T) {
	for want, in := range map[string]change.Input{
		"Apply: Changed machine.env":        planned(),
		"Reboot: Rebooting for machine.env": planned(rebooting, pass(change.Pass{Drained: true, Staged: true})),
		"Confirm: Changed machine.env; the node is still reachable": planned(tried, arrived,
			intent(v1alpha1.StepTry, 10*time.Second), pass(change.Pass{Proven: true})),
		"Complete: Runs the desired config and is healthy": planned(arrived, phase(v1alpha1.ChangeSettling, time.Minute),
			pass(change.Pass{Uncordoned: true, Remembered: true})),
	} {
		e := change.Next(in).Event
		if e == nil || e.Action+": "+e.Message != want || e.Warning {
			t.Errorf("%+v, want %s", e, want)
		}
	}
}

// TestDrainsWithoutAPI: only the configuration of an unhealthy control-plane node may be why no API responds.
func TestDrainsWithoutAPI(t *testing.T) {
	for _, test := range []struct {
		in   change.Input
		want bool
	}{{planned(etcd, sick), true}, {planned(etcd), false}, {planned(sick), false}, {planned(), false}} {
		if got := test.in.DrainsWithoutAPI(); got != test.want {
			t.Errorf("control plane %t, ready %t: %t", test.in.ControlPlane, test.in.Ready, got)
		}
	}
}

// TestMayBeDrained: a node was not drained for a change that waits.
func TestMayBeDrained(t *testing.T) {
	for phase, want := range map[v1alpha1.ChangePhase]bool{
		v1alpha1.ChangePending: false, v1alpha1.ChangeAwaitingReboot: false, v1alpha1.ChangeDraining: true,
		v1alpha1.ChangeFailed: true,
	} {
		if got := change.MayBeDrained(&v1alpha1.MachineChange{Phase: phase}); got != want {
			t.Errorf("%s: %t", phase, got)
		}
	}
}

// TestRefuse: a config that the node rejects ends the change, if there is one.
func TestRefuse(t *testing.T) {
	if step := change.Refuse(planned(none), "bad label"); step.Before.Change != nil || step.Event != nil {
		t.Errorf("without a change: %+v", step)
	}

	in := planned(intent(v1alpha1.StepApply, 0))
	step := change.Refuse(in, "bad label")

	if in.Record.Change.Phase != v1alpha1.ChangePending {
		t.Error("the input was changed")
	}

	if c := step.Before.Change; c.Phase != v1alpha1.ChangeFailed || c.Message != "bad label" || step.Before.Intent != nil ||
		step.Event == nil {
		t.Errorf("%+v, event %+v", c, step.Event)
	}
}

// TestSilent: one row for each state in which a node may become unreachable.
func TestSilent(t *testing.T) {
	for name, test := range map[string]struct {
		in          change.Input
		unreachable bool
		silence     time.Duration
		ends        bool
		phase       v1alpha1.ChangePhase
		sameID      bool
	}{
		"granted, for a moment":     {planned(), true, time.Minute, false, v1alpha1.ChangePending, true},
		"granted, for long":         {planned(), true, time.Hour, true, v1alpha1.ChangePending, false},
		"not granted":               {planned(ungranted), true, time.Hour, false, v1alpha1.ChangePending, true},
		"draining for long":         {planned(phase(v1alpha1.ChangeDraining, time.Hour)), true, time.Minute, false, "", true},
		"draining, silent for long": {planned(phase(v1alpha1.ChangeDraining, 0)), true, time.Hour, true, v1alpha1.ChangeFailed, true},
		"drained, without a disk":   {planned(phase(v1alpha1.ChangeDraining, time.Hour)), false, 0, true, v1alpha1.ChangeFailed, true},
		"rebooting":                 {planned(phase(v1alpha1.ChangeRebooting, time.Minute)), true, time.Minute, false, "", true},
		"rebooting for long":        {planned(phase(v1alpha1.ChangeRebooting, time.Hour)), true, time.Minute, true, v1alpha1.ChangeFailed, true},
		"staged, for long":          {planned(phase(v1alpha1.ChangeAwaitingReboot, 0)), true, time.Hour, true, v1alpha1.ChangeAwaitingReboot, false},
		"granted, just too long":    {planned(), true, health, true, v1alpha1.ChangePending, false},
		"draining, just too long":   {planned(phase(v1alpha1.ChangeDraining, 0)), true, health, true, v1alpha1.ChangeFailed, true},
		"rebooting, just too long":  {planned(phase(v1alpha1.ChangeRebooting, health)), true, 0, true, v1alpha1.ChangeFailed, true},
		"pulling for long":          {planned(intent(v1alpha1.StepPull, time.Hour)), true, time.Hour, true, v1alpha1.ChangePending, false},
		"upgrade, just too long":    {upgraded(phase(v1alpha1.ChangeRebooting, health)), true, 0, true, v1alpha1.ChangeFailed, true},
		"legacy, settles":           {upgraded(legacy, phase(v1alpha1.ChangeSettling, health)), true, 0, true, v1alpha1.ChangeFailed, true},
		"installing, without disk":  {upgraded(phase(v1alpha1.ChangeApplying, time.Hour)), false, 0, true, v1alpha1.ChangeFailed, true},
		"legacy, no upgrade":        {planned(legacy, phase(v1alpha1.ChangeRebooting, health)), true, 0, true, v1alpha1.ChangeFailed, true},
		"applying for long":         {planned(phase(v1alpha1.ChangeApplying, time.Hour)), true, time.Minute, true, v1alpha1.ChangeFailed, true},
		"nothing to do":             {planned(none), true, time.Hour, false, "", true},
		"failed":                    {planned(phase(v1alpha1.ChangeFailed, time.Hour)), true, time.Hour, false, "", true},
	} {
		test.in.Key = "uid 1/1/2"

		before := change.Record{
			Change: test.in.Record.Change.DeepCopy(), Intent: test.in.Record.Intent.DeepCopy(), Sent: "a",
		}

		step, ends := change.Silent(test.in, test.unreachable, test.silence)
		if !cmp.Equal(test.in.Record, before) {
			t.Errorf("%s: the input was changed", name)
		}

		if ends != test.ends {
			t.Errorf("%s: ends %t", name, ends)
		}

		if step.Before.Intent != nil {
			t.Errorf("%s: the step goes on: %+v", name, step.Before.Intent)
		}

		if ends && (step.Before.Change.Phase != test.phase || (step.Before.Change.ID == "id") != test.sameID) {
			t.Errorf("%s: %+v", name, step.Before.Change)
		}
	}
}
