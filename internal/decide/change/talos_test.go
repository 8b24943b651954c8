package change_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
)

// upgraded returns a granted change of a healthy worker from Talos a to b.
func upgraded(edits ...func(*change.Input)) change.Input {
	return planned(append([]func(*change.Input){func(in *change.Input) {
		c := in.Record.Change
		c.Kind, c.Image, c.OldImage, c.Reboot, c.Drain = v1alpha1.ChangeTalos, "installer:b", "installer:a", true, true
	}}, edits...)...)
}

func seen(in *change.Input)      { in.Record.Change.Booted = true }
func closed(in *change.Input)    { in.Options.Reboots = false }
func undrained(in *change.Input) { in.Record.Change.Drain = false }
func installed(in *change.Input) { in.Record.Change.Staged = true }
func reverted(in *change.Input)  { in.Record.Change.Cause = v1alpha1.CauseRevert }
func unwanted(in *change.Input)  { in.Want = "a" }
func unbooted(in *change.Input)  { in.Grant.Reboot = false }
func legacy(in *change.Input)    { in.Legacy = true }
func sending(in *change.Input)   { in.Stage = "upgrading" }
func refusing(in *change.Input)  { in.Record.Change.Message = "two members" }
func inThisBoot(in *change.Input) {
	in.Record.Change.InstalledBoot = in.BootID
}

func bootedAnew(in *change.Input) {
	in.BootID = "next"
}

// TestDrainSaysItsOwn: a drain says why it takes long, and nothing that an earlier phase was about.
func TestDrainSaysItsOwn(t *testing.T) {
	pulled := pass(change.Pass{Pulled: true})

	for name, c := range map[string]struct {
		in   change.Input
		want string
	}{
		"an upgrade after its pull": {upgraded(refusing, intent("Pull", time.Second), pulled), ""},
		"a reboot":                  {planned(refusing, rebooting), ""},
		"a drain that goes on":      {upgraded(refusing, phase(v1alpha1.ChangeDraining, time.Second), pulled), "two members"},
	} {
		got := change.Next(c.in)
		if got.Act != change.Drain || got.Before.Change.Message != c.want {
			t.Errorf("%s: %s, %q, want %q", name, got.Act, got.Before.Change.Message, c.want)
		}
	}
}

// TestOutputEnds: what an installer has printed stays while it runs, and is gone with the phase in which it ran.
func TestOutputEnds(t *testing.T) {
	printed := func(in *change.Input) { in.Record.Change.Progress = "copying kernel" }
	applying := phase(v1alpha1.ChangeApplying, time.Second)

	for name, c := range map[string]struct {
		pass change.Pass
		want string
	}{
		"it runs":     {change.Pass{Held: "installing"}, "copying kernel"},
		"it is done":  {change.Pass{Installed: true}, ""},
		"it fails":    {change.Pass{Failed: "exit code 1", Uncordoned: true}, ""},
		"it is ended": {change.Pass{Installed: true, Uncordoned: true}, ""},
	} {
		edits := []func(*change.Input){installed, printed, intent("Install", time.Second), applying, pass(c.pass)}
		if name == "it is ended" { // by a window that closes
			edits = append(edits, closed)
		}

		if got := change.NextTalos(upgraded(edits...)).Before.Change; got.Progress != c.want {
			t.Errorf("%s: %s shows %q, want %q", name, got.Phase, got.Progress, c.want)
		}
	}
}

// TestNextTalos: one row for each step of an upgrade.
func TestNextTalos(t *testing.T) {
	drained, pulled := change.Pass{Drained: true}, change.Pass{Pulled: true}
	broken := change.Pass{Drained: true, Failed: "exit code 1"}

	for name, c := range map[string]struct {
		in      change.Input
		act     change.Act
		phase   v1alpha1.ChangePhase
		intent  string
		message string
	}{
		"no grant":                {upgraded(ungranted), change.None, v1alpha1.ChangePending, "", ""},
		"pull first":              {upgraded(), change.Pull, v1alpha1.ChangePending, "Pull", "pulling installer:b"},
		"the pull waits":          {upgraded(pass(change.Pass{Held: "50 %"})), change.None, v1alpha1.ChangePending, "Pull", "50 %"},
		"nothing to pull":         {upgraded(intent("Pull", time.Second), pass(change.Pass{Failed: "not found"})), change.None, v1alpha1.ChangeFailed, "", "not found"},
		"pull again":              {upgraded(refusing, intent("Pull", time.Second)), change.Pull, v1alpha1.ChangePending, "Pull", "two members"},
		"taken back in the pull":  {upgraded(ungranted, intent("Pull", time.Second)), change.None, v1alpha1.ChangePending, "", ""},
		"no reboot is granted":    {upgraded(unbooted), change.None, v1alpha1.ChangePending, "", ""},
		"drain then":              {upgraded(intent("Pull", time.Second), pass(pulled)), change.Drain, v1alpha1.ChangeDraining, "Pull", ""},
		"the drain waits":         {upgraded(phase(v1alpha1.ChangeDraining, time.Second), pass(change.Pass{Held: "a budget"})), change.None, v1alpha1.ChangeDraining, "", "a budget"},
		"the window has closed":   {upgraded(closed), change.None, v1alpha1.ChangePending, "", "reboots are allowed"},
		"install":                 {upgraded(phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Install, v1alpha1.ChangeApplying, "Install", "installing installer:b"},
		"without a drain":         {upgraded(undrained, pass(pulled)), change.Install, v1alpha1.ChangeApplying, "Install", "installing installer:b"},
		"etcd: ask before":        {upgraded(etcd, phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Permit, v1alpha1.ChangeDraining, "", ""},
		"etcd: not permitted":     {upgraded(etcd, phase(v1alpha1.ChangeDraining, time.Second), pass(change.Pass{Drained: true, Held: "quorum"})), change.None, v1alpha1.ChangeDraining, "", "quorum"},
		"etcd: permitted":         {upgraded(etcd, phase(v1alpha1.ChangeDraining, time.Second), pass(change.Pass{Drained: true, Permitted: true})), change.Install, v1alpha1.ChangeApplying, "Install", ""},
		"legacy: one call":        {upgraded(legacy, phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Upgrade, v1alpha1.ChangeRebooting, "Reboot", ""},
		"legacy: pull first":      {upgraded(legacy), change.Pull, v1alpha1.ChangePending, "Pull", "pulling"},
		"legacy: ask before":      {upgraded(legacy, etcd, phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Permit, v1alpha1.ChangeDraining, "", ""},
		"legacy: it installs":     {upgraded(legacy, sending, intent("Reboot", time.Minute), phase(v1alpha1.ChangeRebooting, time.Hour)), change.None, v1alpha1.ChangeRebooting, "Reboot", ""},
		"legacy: it is at it":     {upgraded(legacy, sending, intent("Reboot", health+time.Minute), phase(v1alpha1.ChangeRebooting, time.Hour)), change.None, v1alpha1.ChangeRebooting, "Reboot", "it is upgrading"},
		"legacy: it hangs":        {upgraded(legacy, sending, intent("Reboot", health+change.LegacyTime), phase(v1alpha1.ChangeRebooting, time.Hour)), change.None, v1alpha1.ChangeRebooting, "Reboot", "is upgrading and has not rebooted for 40m0s"},
		"legacy: it refuses":      {upgraded(legacy, asked(health), phase(v1alpha1.ChangeRebooting, time.Hour)), change.Uncordon, v1alpha1.ChangeRebooting, "Reboot", ""},
		"legacy: it refused":      {upgraded(legacy, refusing, asked(health), phase(v1alpha1.ChangeRebooting, time.Hour), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "", "it is running: two members"},
		"legacy: call again":      {upgraded(legacy, intent("Reboot", time.Minute), phase(v1alpha1.ChangeRebooting, time.Minute)), change.Upgrade, v1alpha1.ChangeRebooting, "Reboot", ""},
		"legacy: it had failed":   {upgraded(legacy, bootedAnew, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "", "does not run installer:b"},
		"it installs":             {upgraded(installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Drained: true, Held: "10 %"})), change.None, v1alpha1.ChangeApplying, "Install", "10 %"},
		"install again":           {upgraded(refusing, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second)), change.Install, v1alpha1.ChangeApplying, "Install", "two members"},
		"installed at last":       {upgraded(installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Installed: true, Held: "10 %"})), change.Reboot, v1alpha1.ChangeRebooting, "Reboot", ""},
		"installed":               {upgraded(installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Drained: true, Installed: true})), change.Reboot, v1alpha1.ChangeRebooting, "Reboot", ""},
		"etcd: it installs":       {upgraded(etcd, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second)), change.Install, v1alpha1.ChangeApplying, "Install", ""},
		"installed, ask again":    {upgraded(etcd, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Installed: true})), change.Permit, v1alpha1.ChangeApplying, "Install", ""},
		"installed, window shut":  {upgraded(closed, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Drained: true, Installed: true})), change.Uncordon, v1alpha1.ChangeApplying, "Install", ""},
		"window open, installed":  {upgraded(installed, inThisBoot, phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Reboot, v1alpha1.ChangeRebooting, "Reboot", ""},
		"booted since installed":  {upgraded(installed, inThisBoot, bootedAnew, phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Install, v1alpha1.ChangeApplying, "Install", ""},
		"installed, drain first":  {upgraded(installed, inThisBoot, phase(v1alpha1.ChangeAwaitingReboot, time.Second)), change.Drain, v1alpha1.ChangeDraining, "", ""},
		"installed, ask first":    {upgraded(etcd, installed, inThisBoot, phase(v1alpha1.ChangeDraining, time.Second), pass(drained)), change.Permit, v1alpha1.ChangeDraining, "", ""},
		"window shut, released":   {upgraded(closed, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Drained: true, Installed: true, Uncordoned: true})), change.None, v1alpha1.ChangeAwaitingReboot, "", "boots next"},
		"the installer fails":     {upgraded(installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(broken)), change.Uncordon, v1alpha1.ChangeApplying, "Install", ""},
		"the installer failed":    {upgraded(installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Failed: "exit code 1", Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "", "exit code 1"},
		"a user has booted it":    {upgraded(installed, arrived, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second)), change.Uncordon, v1alpha1.ChangeSettling, "", ""},
		"it reboots":              {upgraded(installed, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second)), change.None, v1alpha1.ChangeRebooting, "Reboot", ""},
		"reboot again":            {upgraded(installed, intent("Reboot", time.Minute), phase(v1alpha1.ChangeRebooting, time.Minute)), change.Reboot, v1alpha1.ChangeRebooting, "Reboot", ""},
		"it has booted":           {upgraded(installed, arrived, bootedAnew, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second)), change.None, v1alpha1.ChangeSettling, "", ""},
		"it has rolled back":      {upgraded(installed, bootedAnew, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second)), change.Uncordon, v1alpha1.ChangeRebooting, "Reboot", ""},
		"it rolls back":           {upgraded(installed, bootedAnew, sick, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second)), change.None, v1alpha1.ChangeRebooting, "Reboot", "kubelet"},
		"it rolls back for long":  {upgraded(installed, bootedAnew, sick, intent("Reboot", health), phase(v1alpha1.ChangeRebooting, health)), change.Uncordon, v1alpha1.ChangeRebooting, "Reboot", ""},
		"it had rolled back":      {upgraded(installed, bootedAnew, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "", "rolled back by itself"},
		"it runs something else":  {upgraded(installed, bootedAnew, func(in *change.Input) { in.Live = "c" }, intent("Reboot", time.Second), phase(v1alpha1.ChangeRebooting, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "", "its system extensions are not there"},
		"never again":             {upgraded(installed, phase(v1alpha1.ChangeFailed, time.Second), pass(drained)), change.None, v1alpha1.ChangeFailed, "", ""},
		"failed again":            {upgraded(phase(v1alpha1.ChangeFailed, time.Second), pass(change.Pass{Failed: "exit code 1"})), change.None, v1alpha1.ChangeFailed, "", "exit code 1"},
		"booted, and not settled": {upgraded(installed, arrived, seen, phase(v1alpha1.ChangeRebooting, time.Second)), change.Uncordon, v1alpha1.ChangeSettling, "", ""},
		"not healthy yet":         {upgraded(installed, arrived, sick, phase(v1alpha1.ChangeSettling, time.Second)), change.None, v1alpha1.ChangeSettling, "", "kubelet"},
		"not healthy for long":    {upgraded(installed, arrived, sick, phase(v1alpha1.ChangeSettling, health)), change.None, v1alpha1.ChangeFailed, "", "roll it back"},
		"healthy after all":       {upgraded(installed, arrived, seen, phase(v1alpha1.ChangeFailed, health)), change.Uncordon, v1alpha1.ChangeFailed, "", ""},
		"it came late":            {upgraded(installed, arrived, sick, phase(v1alpha1.ChangeFailed, health)), change.None, v1alpha1.ChangeSettling, "", "kubelet"},
		"failed and unhealthy":    {upgraded(installed, arrived, seen, sick, phase(v1alpha1.ChangeFailed, health)), change.None, v1alpha1.ChangeFailed, "", ""},
		"it falls back":           {upgraded(installed, seen, sick, phase(v1alpha1.ChangeSettling, time.Second)), change.None, v1alpha1.ChangeSettling, "", "has fallen back; it waits for kubelet"},
		"it falls back for long":  {upgraded(installed, seen, sick, phase(v1alpha1.ChangeSettling, health)), change.Uncordon, v1alpha1.ChangeSettling, "", ""},
		"it fell back":            {upgraded(installed, seen, phase(v1alpha1.ChangeSettling, time.Second)), change.Uncordon, v1alpha1.ChangeSettling, "", ""},
		"it had fallen back":      {upgraded(installed, seen, phase(v1alpha1.ChangeSettling, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeFailed, "", "it rolled back by itself"},
		"it fell back, unwanted":  {upgraded(unwanted, installed, seen, phase(v1alpha1.ChangeSettling, time.Second)), change.Uninstall, v1alpha1.ChangeApplying, "Install", "installer:a again"},
		"failed, and fell back":   {upgraded(installed, seen, sick, phase(v1alpha1.ChangeFailed, health)), change.Uncordon, v1alpha1.ChangeFailed, "", ""},
		"done":                    {upgraded(installed, arrived, phase(v1alpha1.ChangeSettling, time.Second), pass(change.Pass{Uncordoned: true})), change.None, "", "", ""},
		"unwanted":                {upgraded(unwanted), change.None, "", "", ""},
		"unwanted, not pulled":    {upgraded(unwanted, intent("Pull", time.Second), pass(change.Pass{Failed: "not found"})), change.None, "", "", ""},
		"unwanted, being pulled":  {upgraded(unwanted, intent("Pull", time.Second), pass(change.Pass{Held: "50 %"})), change.None, "", "", ""},
		"unwanted, drained":       {upgraded(unwanted, phase(v1alpha1.ChangeDraining, time.Second)), change.Uncordon, v1alpha1.ChangeDraining, "", ""},
		"unwanted, installed":     {upgraded(unwanted, installed, phase(v1alpha1.ChangeApplying, time.Second)), change.Uninstall, v1alpha1.ChangeApplying, "Install", "installer:a again"},
		"unwanted, goes back":     {upgraded(unwanted, installed, phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Held: "50 %"})), change.None, v1alpha1.ChangeApplying, "", "50 %"},
		"unwanted, and stays":     {upgraded(unwanted, installed, phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Failed: "exit code 1"})), change.None, v1alpha1.ChangeApplying, "", "boots next: exit code 1"},
		"failed, and not granted": {upgraded(ungranted, installed, phase(v1alpha1.ChangeFailed, time.Second)), change.None, v1alpha1.ChangeFailed, "", ""},
		"granted, but no reboot":  {upgraded(unbooted, installed, phase(v1alpha1.ChangeApplying, time.Second)), change.None, v1alpha1.ChangeApplying, "", ""},
		"wanted again":            {upgraded(ungranted, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second)), change.Uncordon, v1alpha1.ChangeApplying, "Install", ""},
		"wanted again, released":  {upgraded(ungranted, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Uncordoned: true})), change.None, v1alpha1.ChangeAwaitingReboot, "", "permit it again"},
		"unwanted, went back":     {upgraded(unwanted, installed, intent("Install", time.Second), phase(v1alpha1.ChangeApplying, time.Second), pass(change.Pass{Uninstalled: true, Uncordoned: true})), change.None, "", "", ""},
	} {
		step := change.NextTalos(c.in)
		got, i := step.Before.Change, step.Before.Intent

		var (
			phase   v1alpha1.ChangePhase
			message string
			intent  string
		)

		if got != nil {
			phase, message = got.Phase, got.Message
		}

		if i != nil {
			intent = i.Step
		}

		if step.Act != c.act || phase != c.phase || intent != c.intent || !strings.Contains(message, c.message) ||
			step.Before.Sent != "a" {
			t.Errorf("%s: %q in phase %q with intent %q: %s", name, step.Act, phase, intent, message)
		}

		failed := phase == v1alpha1.ChangeFailed && (c.in.Record.Change.Phase != phase || c.in.Pass.Failed != "")
		if warned := step.Event != nil && step.Event.Warning; warned != failed {
			t.Errorf("%s: event %+v", name, step.Event)
		}

		switch step.Act {
		case change.Install:
			if !got.Staged {
				t.Errorf("%s: it is not recorded that the image may boot next", name)
			}
		case change.Reboot, change.Upgrade:
			again := step.Again == change.Poll || step.Again == change.RepeatReboot && c.in.Record.Intent != nil
			if !again || step.Again == change.Poll && (step.Event == nil || step.Event.Message != "Rebooting into installer:b") {
				t.Errorf("%s: again %s, event %+v", name, step.Again, step.Event)
			}
		default:
			if failed && step.Again != change.Poll && !strings.Contains(message, "roll it back, or") {
				t.Errorf("%s: again %s", name, step.Again)
			}
		}
	}
}

// TestTalosRests: a change that waits for a grant needs no further reconciliation, and one that has begun does.
func TestTalosRests(t *testing.T) {
	for name, c := range map[string]struct {
		in   change.Input
		want bool
	}{
		"waits for a grant":  {upgraded(ungranted), true},
		"waits for a reboot": {upgraded(ungranted, installed, phase(v1alpha1.ChangeAwaitingReboot, time.Second)), true},
		"has begun":          {upgraded(ungranted, installed, phase(v1alpha1.ChangeApplying, time.Second)), false},
		"may begin":          {upgraded(), false},
	} {
		if step := change.NextTalos(c.in); step.Rest != c.want || c.want && (step.Act != "" || step.Before.Change.ID != "id") {
			t.Errorf("%s: %+v, %+v", name, step, step.Before.Change)
		}
	}
}

// TestDescribeTalos: an upgrade always reboots, and has an ID of its own.
func TestDescribeTalos(t *testing.T) {
	controlPlane := func(in *change.Input) { in.ControlPlane = true }
	drains := func(in *change.Input) { in.Options.Drains = true }
	ids := map[string]string{}

	for name, c := range map[string]struct {
		in          change.Input
		image       string
		drain, etcd bool
	}{
		"worker":        {planned(), "installer:b", false, false},
		"control plane": {planned(controlPlane), "installer:b", false, true},
		"another image": {planned(drains), "elsewhere:b", true, false},
	} {
		record := change.DescribeTalos(c.in, c.image, "installer:a", nil)

		got := record.Change
		if got.Kind != v1alpha1.ChangeTalos || !got.Reboot || got.Try || got.Staged || got.Drain != c.drain ||
			got.Etcd != c.etcd || got.Image != c.image || got.OldImage != "installer:a" || record.Intent != nil {
			t.Errorf("%s: %+v", name, got)
		}

		if other, is := ids[got.ID]; is || got.ID == "" {
			t.Errorf("%s has the ID %q of %q", name, got.ID, other)
		}

		ids[got.ID] = name
	}
}

// TestBegun: pulling an image is no beginning, and what is installed boots next.
func TestBegun(t *testing.T) {
	for name, c := range map[string]struct {
		change *v1alpha1.MachineChange
		want   bool
	}{
		"none":      {nil, false},
		"pending":   {&v1alpha1.MachineChange{Phase: v1alpha1.ChangePending}, false},
		"installed": {&v1alpha1.MachineChange{Phase: v1alpha1.ChangePending, Staged: true}, true},
		"draining":  {&v1alpha1.MachineChange{Phase: v1alpha1.ChangeDraining}, true},
	} {
		if got := change.Begun(c.change); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// machine is one node with two systems, of which one boots.
type machine struct {
	*rapid.T

	now           time.Time
	runs, boots   string
	broken        bool // what is desired does not boot
	brief         bool // what is desired boots, and falls back some time later
	boot          int
	record        change.Record
	want          string
	permitted     bool // in the reconciliation that acts
	deny, crowded bool
	missing       bool // the image cannot be had
	busy          int  // how many reconciliations an installer still takes
	rolledBack    bool
	byAct         bool   // the operator has booted what runs
	fails         bool   // an installer fails
	worked        string // what it was healthy with after its last upgrade
	previous      *v1alpha1.PreviousSystem
	legacy        bool   // it installs and reboots by one call
	retry         bool   // a user asks for it
	shut          bool   // no maintenance window is open
	done          string // what an installer has installed in this boot, and the operator knows
}

// TestTalosHistories: whatever happens in between, a machine is rebooted for an upgrade only when it is permitted, only
// into what was installed, and never twice into a system that does not boot; in the end it runs what is desired, or
// what it ran, and says so.
func TestTalosHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{T: t, now: now, runs: "a", boots: "a", want: "b", broken: rapid.Bool().Draw(t, "broken")}
		m.legacy, m.brief = rapid.Bool().Draw(t, "legacy"), !m.broken && rapid.Bool().Draw(t, "brief")
		m.record = change.DescribeTalos(m.input(), "b", "a", nil)

		t.Repeat(map[string]func(*rapid.T){
			"reconcile":   func(t *rapid.T) { m.reconcile(rapid.IntRange(0, 6).Draw(t, "acts")) },
			"power cut":   func(*rapid.T) { m.restart() },
			"fall back":   func(*rapid.T) { m.fallBack() },
			"deny":        func(*rapid.T) { m.deny = !m.deny },
			"crowd":       func(*rapid.T) { m.crowded = !m.crowded },
			"change mind": func(*rapid.T) { m.want, m.rolledBack = map[string]string{"a": "b", "b": "a"}[m.want], false },
			"registry":    func(*rapid.T) { m.missing = !m.missing },
			"installer":   func(*rapid.T) { m.fails = !m.fails },
			"window":      func(*rapid.T) { m.shut = !m.shut },
			"wait":        func(*rapid.T) { m.now = m.now.Add(time.Minute) },
		})

		m.deny, m.crowded, m.missing, m.fails, m.shut = false, false, false, false, false
		m.retry = m.record.Change != nil && m.record.Change.Phase == v1alpha1.ChangeFailed && !m.broken && !m.brief
		for range 40 {
			m.now = m.now.Add(time.Minute)
			m.reconcile(16)
		}

		if c := m.record.Change; c == nil && m.runs != m.want || c != nil &&
			(c.Phase != v1alpha1.ChangeFailed || !m.broken && !m.brief) {
			t.Fatalf("it runs %s, wanted is %s, the change is %+v", m.runs, m.want, c)
		}
	})
}

func (m *machine) restart() {
	if m.boot++; m.boots == "b" && m.broken {
		m.boots = "a" // the boot loader falls back
	}

	m.runs, m.busy, m.done = m.boots, 0, ""
}

// fallBack boots the system of before, in the middle of what is desired. One that a power cut has booted, and that fell
// back before the operator saw it, may be booted once more.
func (m *machine) fallBack() {
	if !m.brief || m.runs != "b" {
		return
	}

	c := m.record.Change
	known := m.byAct || m.worked == "b" || c != nil && c.Booted
	installs := c != nil && c.Target == "a" && c.Staged // it may as well have booted what was installed
	m.boots, m.rolledBack, m.byAct = "a", known && m.want == "b" && !installs, false
	m.restart()
}

func (m *machine) input() change.Input {
	in := change.Input{
		Now: m.now, Name: "node", Key: "k", ControlPlane: true, Live: m.runs, Want: m.want, BootID: fmt.Sprint(m.boot),
		Stage: change.StageRunning, Ready: true, Record: m.record, Equal: m.runs == m.want, Retry: m.retry,
		Options: change.Options{HealthTimeout: health, TryTimeout: try, Drains: true, Reboots: !m.shut},
		Legacy:  m.legacy, Runs: v1alpha1.PreviousSystem{TalosVersion: m.runs},
	}

	// As the controller does: the last upgrade was complete, and has replaced what runs now.
	if p := m.previous; p != nil && p.ReplacedBy == m.worked && p.TalosVersion == m.runs {
		in.Worked = m.worked
	}

	if c := m.record.Change; c != nil {
		in.Grant = &v1alpha1.ChangeGrant{ID: c.ID, Reboot: true}
	}

	return in
}

// reconcile is one reconciliation, which crashes after so many acts.
func (m *machine) reconcile(acts int) {
	m.previous = change.Previous(m.record.Change, m.previous, m.runs)
	outcome, record := change.CompareTalos(m.input(), m.want)
	m.record, m.retry = record, false

	switch outcome {
	case change.Described:
		m.record = change.DescribeTalos(m.input(), m.want, m.runs, nil)
	case change.FellBack:
		m.record, _ = change.DescribeFallback(m.input(), m.want, m.runs, nil)
	case change.Forgone:
		m.record.Change, m.record.Intent = nil, nil
	default:
	}

	if m.record.Change == nil {
		return
	}

	m.permitted = false
	done := change.Pass{}

	for range acts {
		in := m.input()
		in.Pass = done
		step := change.NextTalos(in)
		if m.record = step.Before; step.Completed {
			m.worked = m.runs
		}

		// An operator that dies before it has recorded that an installer has ended runs it again.
		if done.Installed && m.record.Change != nil {
			m.done = m.boots
		}

		m.perform(step.Act, &done)

		if step.Act == change.None || step.Again > 0 || m.record.Change == nil {
			return
		}
	}
}

func (m *machine) perform(act change.Act, done *change.Pass) {
	switch act {
	case change.Drain:
		if done.Drained = !m.crowded; m.crowded {
			done.Held = "crowded"
		}
	case change.Permit:
		if done.Permitted, m.permitted = !m.deny, !m.deny; m.deny {
			done.Held = "denied"
		}
	case change.Pull:
		done.Pulled = !m.missing
		if m.missing {
			done.Failed = "missing"
		}
	case change.Install, change.Uninstall:
		m.install(act, done)
	case change.Upgrade:
		if !m.legacy {
			m.Fatal("the call of before 1.13 to a node that does not need it")
		}

		m.boots = m.record.Change.Target
		m.reboot()
	case change.Reboot:
		m.reboot()
	case change.Uncordon:
		done.Uncordoned = true
	default:
	}
}

// reboot boots what was installed, and checks that it may.
func (m *machine) reboot() {
	switch {
	case !m.permitted:
		m.Fatal("rebooted without a permission of this reconciliation")
	case m.boots != m.record.Change.Target:
		m.Fatalf("rebooted into %s", m.boots)
	case m.rolledBack:
		m.Fatal("rebooted again into a system that does not boot")
	}

	m.restart()
	m.rolledBack, m.byAct = m.runs != m.record.Change.Target, true
}

// install takes a few reconciliations.
func (m *machine) install(act change.Act, done *change.Pass) {
	if act == change.Uninstall { // whatever comes of it, what was installed may be gone
		m.done = ""
	}

	if m.busy++; m.busy < 3 {
		done.Held = "installing"

		return
	}

	m.busy = 0

	switch {
	case m.fails:
		done.Failed = "exit code 1"
	case act == change.Install:
		if m.done == m.record.Change.Target {
			m.Fatalf("installed %s again, which boots next", m.done)
		}

		m.boots, done.Installed = m.record.Change.Target, true
	default:
		m.boots, done.Uninstalled = m.record.Change.Base, true
	}
}

// TestInstalledBoot: what an installer has installed is on record for its boot, until something else is installed.
func TestInstalledBoot(t *testing.T) {
	applying := phase(v1alpha1.ChangeApplying, time.Second)
	boot := planned().BootID

	shut := change.NextTalos(upgraded(closed, installed, applying, intent("Install", time.Second),
		pass(change.Pass{Installed: true, Uncordoned: true})))
	if got := shut.Before.Change; got.Phase != v1alpha1.ChangeAwaitingReboot || got.InstalledBoot != boot {
		t.Errorf("a window closes: %+v", got)
	}

	// The machine may be asked for the old one and, before that is known to be done, for the new one again.
	back := change.NextTalos(upgraded(unwanted, installed, inThisBoot))
	if got := back.Before.Change; back.Act != change.Uninstall || got.InstalledBoot != "" {
		t.Errorf("no longer desired: %s, %+v", back.Act, got)
	}

	for name, c := range map[string]struct {
		image string
		edit  func(*change.Input)
		want  string
	}{
		"the same":             {"installer:b", installed, boot},
		"another image":        {"elsewhere:b", installed, ""},
		"another system":       {"installer:b", func(in *change.Input) { installed(in); in.Want = "c" }, ""},
		"nothing is installed": {"installer:b", func(*change.Input) {}, ""},
	} {
		if got := change.DescribeTalos(upgraded(inThisBoot, c.edit), c.image, "installer:a", nil).Change; got.InstalledBoot != c.want {
			t.Errorf("%s: %q, want %q", name, got.InstalledBoot, c.want)
		}
	}
}

// TestCompareTalos: one row for each way in which what runs, what is desired and what is recorded go together.
func TestCompareTalos(t *testing.T) {
	failed := phase(v1alpha1.ChangeFailed, time.Second)
	runsIt := func(in *change.Input) { in.Live, in.Equal = "b", in.Want == "b" }
	same := func(in *change.Input) { in.Want, in.Equal = in.Live, true }
	none := func(in *change.Input) { in.Record.Change = nil }
	config := func(in *change.Input) { in.Record.Change.Kind = "" }
	other := func(in *change.Input) { in.Want = "c" }
	elsewhere := func(in *change.Input) { in.Live = "c" }
	again := func(in *change.Input) { in.Retry = true }
	complete := func(in *change.Input) { in.Worked = "b" }
	fell := func(in *change.Input) { in.Worked = "c" }
	older := func(in *change.Input) { in.Record.Change.Image = "elsewhere:b" }

	for name, c := range map[string]struct {
		in      change.Input
		outcome change.Outcome
		phase   v1alpha1.ChangePhase
	}{
		"another image":            {upgraded(older), change.Described, v1alpha1.ChangePending},
		"failed, another image":    {upgraded(failed, older), change.Described, v1alpha1.ChangeFailed},
		"begun, another image":     {upgraded(older, phase(v1alpha1.ChangeApplying, time.Second)), change.Kept, v1alpha1.ChangeApplying},
		"nothing to do":            {upgraded(none, same), change.Kept, ""},
		"another one is wanted":    {upgraded(none), change.Described, ""},
		"the config first":         {upgraded(config), change.Kept, v1alpha1.ChangePending},
		"the config first, still":  {upgraded(config, other), change.Kept, v1alpha1.ChangePending},
		"it waits":                 {upgraded(), change.Kept, v1alpha1.ChangePending},
		"no longer wanted":         {upgraded(same), change.Forgone, v1alpha1.ChangePending},
		"it may boot next":         {upgraded(same, installed), change.Kept, v1alpha1.ChangePending},
		"yet another one":          {upgraded(other), change.Described, v1alpha1.ChangePending},
		"fell back on the way":     {upgraded(other, fell), change.FellBack, v1alpha1.ChangePending},
		"on the way, again":        {upgraded(other, fell, again), change.Described, v1alpha1.ChangePending},
		"installed by hand":        {upgraded(elsewhere), change.Described, v1alpha1.ChangePending},
		"begun":                    {upgraded(other, phase(v1alpha1.ChangeApplying, time.Second)), change.Kept, v1alpha1.ChangeApplying},
		"failed":                   {upgraded(failed), change.Kept, v1alpha1.ChangeFailed},
		"failed, once more":        {upgraded(failed, again), change.Described, v1alpha1.ChangeFailed},
		"failed, no longer wanted": {upgraded(failed, other), change.Kept, v1alpha1.ChangeFailed},
		"runs it, unhealthy":       {upgraded(failed, runsIt), change.Kept, v1alpha1.ChangeFailed},
		"unhealthy, more time":     {upgraded(failed, runsIt, again), change.Kept, v1alpha1.ChangeSettling},
		"unhealthy, back, retried": {upgraded(failed, unwanted, runsIt, again), change.Described, v1alpha1.ChangeFailed},
		"runs it, another image":   {upgraded(failed, runsIt, older), change.Kept, v1alpha1.ChangeFailed},
		"no longer wanted, again":  {upgraded(failed, other, again), change.Kept, v1alpha1.ChangeFailed},
		"yet another, installed":   {upgraded(installed, other), change.Described, v1alpha1.ChangePending},
		"a rollback waits":         {rolledBack(), change.Kept, v1alpha1.ChangePending},
		"it fell back, complete":   {upgraded(none, complete), change.FellBack, ""},
		"it fell back, once more":  {upgraded(none, complete, again), change.Described, ""},
		"it fell back, another":    {upgraded(none, complete, other), change.Described, ""},
		"rolled back on purpose":   {upgraded(none, complete, func(in *change.Input) { in.Reverting = true }), change.Described, ""},
		"failed, fell back to it":  {upgraded(failed, unwanted, runsIt, func(in *change.Input) { in.Worked = "a" }), change.FellBack, v1alpha1.ChangeFailed},
		"failed, installed, back":  {upgraded(failed, unwanted, runsIt, installed, func(in *change.Input) { in.Worked = "a" }), change.Described, v1alpha1.ChangeFailed},
		"failed, booted, back":     {upgraded(failed, unwanted, runsIt, seen, func(in *change.Input) { in.Worked = "a" }), change.Described, v1alpha1.ChangeFailed},
		"unhealthy, back":          {upgraded(failed, unwanted, runsIt), change.Described, v1alpha1.ChangeFailed},
	} {
		before := c.in.Record.Change.DeepCopy()

		outcome, record := change.CompareTalos(c.in, "installer:b")
		if !cmp.Equal(c.in.Record.Change, before) {
			t.Errorf("%s: the input was changed", name)
		}

		phase := v1alpha1.ChangePhase("")
		if record.Change != nil {
			phase = record.Change.Phase
		}

		if outcome != c.outcome || phase != c.phase {
			t.Errorf("%s: %s, in phase %q", name, outcome, phase)
		}
	}
}

// TestSilentInstall: an installer may take longer than a machine may be unhealthy, as long as the machine responds.
func TestSilentInstall(t *testing.T) {
	in := upgraded(installed, intent("Install", time.Hour), phase(v1alpha1.ChangeApplying, time.Hour))

	for silence, ends := range map[time.Duration]bool{time.Second: false, health: true} {
		step, over := change.Silent(in, true, silence)
		if over != ends || over && !strings.Contains(step.Before.Change.Message, "installer:b was installed on it") {
			t.Errorf("silent for %s: %t, %+v", silence, over, step.Before.Change)
		}
	}
}

// TestSilentLegacyUpgrade: a legacy upgrade installs before it reboots, so it may be unreachable for longer.
func TestSilentLegacyUpgrade(t *testing.T) {
	for since, ends := range map[time.Duration]bool{health: false, health + change.LegacyTime: true} {
		in := upgraded(legacy, intent("Reboot", since), phase(v1alpha1.ChangeRebooting, since))
		if _, over := change.Silent(in, true, time.Minute); over != ends {
			t.Errorf("after %s: %t", since, over)
		}
	}
}

// TestDescribeKeepsStaged: an image that a failed change has installed is not forgotten by the next change.
func TestDescribeKeepsStaged(t *testing.T) {
	for name, c := range map[string]struct {
		in     change.Input
		staged bool
	}{
		"it may boot next": {upgraded(installed, phase(v1alpha1.ChangeFailed, time.Second)), true},
		"it has booted":    {upgraded(installed, arrived, phase(v1alpha1.ChangeFailed, time.Second)), false},
		"never installed":  {upgraded(phase(v1alpha1.ChangeFailed, time.Second)), false},
		"a configuration":  {planned(installed, phase(v1alpha1.ChangeFailed, time.Second)), false},
	} {
		if got := change.DescribeTalos(c.in, "installer:c", "installer:a", nil).Change; got.Staged != c.staged {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestFailedInstaller: what a failed installer has written is forgotten only if the node has told that it failed.
func TestFailedInstaller(t *testing.T) {
	for unsure, name := range map[bool]string{false: "exit code 1", true: "the stream has ended"} {
		step := change.NextTalos(upgraded(installed, intent("Install", time.Hour), phase(v1alpha1.ChangeApplying, time.Hour),
			pass(change.Pass{Failed: name, Unsure: unsure, Uncordoned: true})))
		if c := step.Before.Change; c.Phase != v1alpha1.ChangeFailed || c.Staged != unsure {
			t.Errorf("%s: %+v", name, c)
		}
	}

	step := change.NextTalos(upgraded(requested, intent("Pull", time.Second), pass(change.Pass{Failed: "not found"})))
	if c := step.Before.Change; c.Phase != v1alpha1.ChangeFailed || !c.Staged || step.Again != change.Poll {
		t.Errorf("what a rollback has requested boots next: %+v", c)
	}
}

// TestSilentSettling: a node that is away while it has to prove itself gets its time anew when it is back.
func TestSilentSettling(t *testing.T) {
	step, over := change.Silent(upgraded(seen, arrived, phase(v1alpha1.ChangeSettling, health)), true, time.Minute)
	if c := step.Before.Change; !over || c.Phase != v1alpha1.ChangeFailed || c.Booted {
		t.Fatalf("%t: %+v", over, c)
	}

	in := upgraded(arrived, sick)
	in.Record = step.Before

	if c := change.NextTalos(in).Before.Change; c.Phase != v1alpha1.ChangeSettling || !c.Booted {
		t.Errorf("back: %+v", c)
	}
}
