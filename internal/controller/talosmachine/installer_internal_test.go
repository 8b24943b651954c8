package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig"
	"github.com/talos-operator/talos-operator/internal/talos"
)

const otherImage = "other.example/siderolabs/installer:v1.13.9"

// installs is a reconciliation of a member whose config names one installer, and whose spec another one. reports is
// what it has reported in this boot.
func installs(r *Reconciler, live, image string, reports talos.Image) *scope {
	s := imageScope(v1alpha1.InstallOptions{}, reports)
	s.facts.BootID, s.live, s.image = "now", []byte("machine: {install: {image: \""+live+"\"}}\n"), image

	if reports.Told {
		r.booted.keep(s.key().String(), "now", reports)

		s.booted = nil
	}

	return s
}

// TestCheckInstaller: what is wrong about the installer of the spec follows from what the member has reported in this
// boot. Its config keeps the installer that it names unless that is the one.
func TestCheckInstaller(t *testing.T) {
	on, off := true, false

	for name, c := range map[string]struct {
		live    string
		reports talos.Image
		last    *bool
		reason  string
		keeps   bool
	}{
		"it can take it":                       {otherImage, secured(false), nil, "", false},
		"it has it":                            {stockImage, secured(false), nil, "", false},
		"it could before this boot":            {otherImage, secured(true), &off, v1alpha1.ReasonSecureBootMismatch, true},
		"it has it, and could before":          {stockImage, secured(true), &off, v1alpha1.ReasonSecureBootMismatch, false},
		"it could not before":                  {otherImage, secured(false), &on, "", false},
		"it has it, and could not before":      {stockImage, secured(false), &on, "", false},
		"the status has nothing":               {stockImage, secured(true), nil, v1alpha1.ReasonSecureBootMismatch, false},
		"it has not reported":                  {otherImage, talos.Image{}, &off, v1alpha1.ReasonImageUnknown, true},
		"it has it, and has not reported that": {stockImage, talos.Image{}, &off, "", false},
		"it names none":                        {"", secured(true), nil, "", false},
	} {
		r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
		s := installs(r, c.live, stockImage, c.reports)
		s.machine.Status.Image = &v1alpha1.RunningImage{SecureBoot: c.last}

		if err := r.checkInstaller(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		if (s.refused == nil) != (c.reason == "") || s.refused != nil && s.refused.reason != c.reason ||
			s.keepsInstaller != c.keeps || s.incomplete == c.reports.Told {
			t.Errorf("%s: %+v, keeps %t, incomplete %t", name, s.refused, s.keepsInstaller, s.incomplete)
		}

		if s.mayRest() == s.incomplete {
			t.Errorf("%s: it rests: %t", name, s.mayRest())
		}
	}
}

// TestWaitsForReport: a change that brings an installer stays as it is until the member has reported what it has
// booted: one that has begun for as long as that takes, and one that has not for a short time.
func TestWaitsForReport(t *testing.T) {
	config := func(image string) []byte { return []byte("machine: {install: {image: \"" + image + "\"}}\n") }

	target, err := machineconfig.Hash(config(stockImage))
	if err != nil {
		t.Fatal(err)
	}

	known := names("gvisor")
	known.Told = false

	for name, c := range map[string]struct {
		change  *v1alpha1.MachineChange
		reports talos.Image
		now     bool
		later   bool
		revert  string
	}{
		"none":              {nil, talos.Image{}, false, false, ""},
		"planned":           {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangePending}, talos.Image{}, true, false, ""},
		"drained for it":    {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangeDraining}, talos.Image{}, true, true, ""},
		"of another spec":   {&v1alpha1.MachineChange{Target: "other", Phase: v1alpha1.ChangeDraining}, talos.Image{}, false, false, ""},
		"it has reported":   {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangeDraining}, secured(false), false, false, ""},
		"it cannot take it": {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangeDraining}, known, false, false, ""},
		"staged":            {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangePending, Staged: true}, talos.Image{}, true, true, ""},
		"awaits a reboot":   {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangeAwaitingReboot}, talos.Image{}, true, true, ""},
		"taken back":        {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangeDraining}, talos.Image{}, false, false, target},
		"another is":        {&v1alpha1.MachineChange{Target: target, Phase: v1alpha1.ChangeDraining}, talos.Image{}, true, true, "other"},
	} {
		clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
		r := &Reconciler{Clock: clock}

		for at, want := range map[time.Duration]bool{0: c.now, reportTime: c.later} {
			clock.SetTime(time.Unix(1000, 0))
			r.unreported.forget("/cp-0")

			s := installs(r, otherImage, stockImage, c.reports)
			s.machine.Status.Change = c.change
			s.machine.Annotations = map[string]string{v1alpha1.RevertAnnotation: c.revert}

			if err := r.checkInstaller(t.Context(), s); err != nil {
				t.Fatal(err)
			}

			clock.Step(at)

			planned, err := r.plannedHash(s, &machineconfig.Rendered{Bytes: config(stockImage)})
			if err != nil {
				t.Fatal(err)
			}

			if waits := r.waitsForReport(s, planned); waits != want {
				t.Errorf("%s, after %s: %t", name, at, waits)
			}
		}
	}
}

// TestRevertOfKeptInstaller: a user takes a change back by the hash that it was planned with, also while the installer of
// the spec is kept away from the machine; without a request, an empty hash takes nothing back.
func TestRevertOfKeptInstaller(t *testing.T) {
	for _, c := range []struct {
		unwanted, planned string
		want              bool
	}{{"planned", "planned", true}, {"planned", "", false}, {"", "", false}, {"other", "planned", false}} {
		r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
		s := installs(r, otherImage, stockImage, talos.Image{})
		s.machine.Annotations = map[string]string{v1alpha1.RevertAnnotation: c.unwanted}
		s.stored.Working, s.wantHash = s.live, "kept"

		if err := r.makeReverted(s, "rendered", c.planned); err != nil || s.reverting != c.want {
			t.Errorf("%+v: %t, %v", c, s.reverting, err)
		}
	}
}

// TestRefusalStays: while a member has not reported everything, its condition says of the installer what it said
// before, as long as that is about the same spec, and what a report says counts at once.
func TestRefusalStays(t *testing.T) {
	lost := metav1.Condition{
		Type: v1alpha1.ConditionUpToDate, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonExtensionsLost, Message: "gvisor",
	}
	differs, past := lost, lost
	differs.Reason, past.Status = v1alpha1.ReasonConfigDiffers, metav1.ConditionUnknown

	for name, c := range map[string]struct {
		live    string
		reports talos.Image
		last    metav1.Condition
		of      string
		want    string
	}{
		"it keeps its installer":      {otherImage, talos.Image{}, lost, "0/0/0", v1alpha1.ReasonExtensionsLost},
		"its config has it":           {stockImage, talos.Image{}, lost, "0/0/0", v1alpha1.ReasonExtensionsLost},
		"of another spec":             {otherImage, talos.Image{}, lost, "1/0/0", v1alpha1.ReasonImageUnknown},
		"it has it, of another spec":  {stockImage, talos.Image{}, lost, "1/0/0", ""},
		"something else":              {otherImage, talos.Image{}, differs, "0/0/0", v1alpha1.ReasonImageUnknown},
		"what is not known any more":  {otherImage, talos.Image{}, past, "0/0/0", v1alpha1.ReasonImageUnknown},
		"more is known to be wrong":   {otherImage, talos.Image{SecureBoot: new(true)}, lost, "0/0/0", v1alpha1.ReasonSecureBootMismatch},
		"it has reported":             {otherImage, secured(false), lost, "0/0/0", ""},
		"its config has it, reported": {stockImage, secured(false), lost, "0/0/0", ""},
	} {
		r := &Reconciler{Clock: clocktesting.NewFakePassiveClock(time.Unix(1000, 0))}
		s := installs(r, c.live, stockImage, c.reports)
		s.machine.Status.Conditions, s.machine.Status.ComparedTo = []metav1.Condition{c.last}, c.of

		if err := r.checkInstaller(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		if (s.refused == nil) != (c.want == "") || s.refused != nil && (s.refused.reason != c.want ||
			(s.refused.message == "gvisor") != (c.want == v1alpha1.ReasonExtensionsLost)) {
			t.Errorf("%s: %+v, want %q", name, s.refused, c.want)
		}

		if s.unknownInstaller != (c.live == otherImage && !c.reports.Told && c.reports.SecureBoot == nil) {
			t.Errorf("%s: unknown: %t", name, s.unknownInstaller)
		}
	}
}

// TestRetryReport: a machine that does not report what it has booted is queried again later and later, and anew once it
// has reported. One whose installer is refused by what it has reported is not queried.
func TestRetryReport(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	r := &Reconciler{Clock: clock}

	boot := "now"
	check := func(reports talos.Image) time.Duration {
		s := installs(r, otherImage, stockImage, reports)
		s.facts.BootID = boot

		if err := r.checkInstaller(t.Context(), s); err != nil {
			t.Fatal(err)
		}

		if s.refused == nil {
			t.Fatal("it is not refused")
		}

		return s.again
	}

	var total time.Duration

	for i, want := range []time.Duration{firstRetry, firstRetry, 2 * firstRetry, 4 * firstRetry} {
		got := check(talos.Image{})
		if got != want {
			t.Errorf("%d: again after %s", i, got)
		}

		total += got
		clock.Step(got)
	}

	clock.Step(time.Hour)

	if got := check(talos.Image{}); got != lastRetry {
		t.Errorf("after %s: again after %s", time.Hour+total, got)
	}

	boot = "next"

	if got := check(talos.Image{}); got != firstRetry {
		t.Errorf("after a boot without a report: again after %s", got)
	}

	boot = "now"

	if got := check(secured(true)); got != 0 {
		t.Errorf("it has reported: again after %s", got)
	}

	r.booted.forget("/cp-0")

	if got := check(talos.Image{}); got != firstRetry {
		t.Errorf("in its next boot: again after %s", got)
	}
}

// TestUpgradeWaitsForReport: an upgrade stays as it is until the member has reported what it has booted, and says so.
func TestUpgradeWaitsForReport(t *testing.T) {
	told := names()
	told.SecureBoot = new(false)

	for name, c := range map[string]struct {
		phase      v1alpha1.ChangePhase
		reports    talos.Image
		now, later bool
	}{
		"planned":         {v1alpha1.ChangePending, talos.Image{}, true, false},
		"drained for it":  {v1alpha1.ChangeDraining, talos.Image{}, true, true},
		"it has reported": {v1alpha1.ChangeDraining, told, false, false},
	} {
		for at, want := range map[time.Duration]bool{0: c.now, reportTime: c.later} {
			clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
			r := &Reconciler{Clock: clock}

			s := installs(r, stockImage, stockImage, c.reports)
			s.compared, s.machine.Status.Change = true, &v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: c.phase}

			r.unreportedFor(s)
			clock.Step(at)

			if _, err := r.compareSystem(t.Context(), s); err != nil {
				t.Fatal(err)
			}

			says, polls := "waiting for the machine to report", firstRetry
			if at > 0 {
				says, polls = "reboot it", at
			}

			waits := strings.Contains(s.machine.Status.Change.Message, says)
			if waits != want || (s.systems == nil) != want {
				t.Errorf("%s, after %s: %t, %+v", name, at, waits, s.systems)
			}

			// It is not asked each second for ever.
			if want && (s.again != polls || r.untilReported(s) != polls) {
				t.Errorf("%s, after %s: asked again after %s, %s", name, at, s.again, r.untilReported(s))
			}

			if s.systems != nil && s.systems.mayChange() != !c.reports.Told {
				t.Errorf("%s, after %s: it may change: %t", name, at, s.systems.mayChange())
			}
		}
	}
}
