package taloscontrolplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestUpgradeOf: what machines run and what the spec asks for become the version of now, or a reason why there is none.
func TestUpgradeOf(t *testing.T) {
	machine := func(name, talos string, configured bool) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     v1alpha1.TalosMachineStatus{TalosVersion: talos, KubeletVersion: "v1.34.0"},
		}
		if name == "w" || name == "new" {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "group"}
		}

		if configured {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told"})
		}

		return m
	}

	for name, c := range map[string]struct {
		cp, worker, target string
		now, message       string
		done               bool
	}{
		"there already":        {"v1.12.0", "v1.12.0", "v1.12.0", "", "", false},
		"one patch":            {"v1.12.0", "v1.12.0", "v1.12.1", "v1.12.1", "", false},
		"the worker is left":   {"v1.12.1", "v1.12.0", "v1.12.1", "v1.12.1", "", true},
		"two minors":           {"v1.11.6", "v1.11.6", "v1.13.9", "v1.12.12", "", false},
		"the worker, half-way": {"v1.12.12", "v1.11.6", "v1.13.9", "v1.12.12", "", true},
		"half-way":             {"v1.12.12", "v1.12.12", "v1.13.9", "v1.13.9", "", false},
		"the way back":         {"v1.12.1", "v1.12.0", "v1.12.0", "", "no way back", false},
		"unknown":              {"v1.12.1", "", "v1.12.1", "", "waiting for the versions of w", false},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = c.target, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.ObservedKubeVersion = "v1.34.0"

		got := upgradeOf(cp, nil, []v1alpha1.TalosMachine{
			machine("cp", c.cp, true), machine("w", c.worker, true), machine("new", "v1.10.0", false),
		})

		if got == nil {
			if c.now != "" || c.message != "" {
				t.Errorf("%s: nothing to do", name)
			}

			continue
		}

		if got.TalosVersion != c.now || !strings.Contains(got.Message, c.message) || c.message == "" && got.Message != "" ||
			got.ControlPlaneDone != c.done || got.ObservedGeneration != 7 || name == "there already" ||
			(got.Reason == v1alpha1.ReasonNoUpgradePath) != (name == "the way back") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestUpgradeOfUnselected: an upgrade says that what is left of it was not selected.
func TestUpgradeOfUnselected(t *testing.T) {
	machine := func(name, talos, ring string) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ring": ring}},
			Status:     v1alpha1.TalosMachineStatus{TalosVersion: talos, KubeletVersion: "v1.34.0"},
		}
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told"})

		return m
	}

	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion, cp.Status.ObservedKubeVersion = "v1.12.1", "v1.34.0"
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{
		Talos:           v1alpha1.UpgradeAutomatic,
		MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "first"}},
	}

	for first, message := range map[string]string{
		"v1.12.0": "",
		"v1.12.1": "not selected by upgrade.machineSelector: b",
	} {
		got := upgradeOf(cp, nil, []v1alpha1.TalosMachine{machine("a", first, "first"), machine("b", "v1.12.0", "second")})
		if got == nil || got.TalosVersion != "v1.12.1" || got.Message != message {
			t.Errorf("%s: %+v", first, got)
		}
	}
}

// TestUpgradeOfManyUnselected: machines that the status has no room for count, too.
func TestUpgradeOfManyUnselected(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion, cp.Status.ObservedKubeVersion = "v1.12.1", "v1.34.0"
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{
		Talos:           v1alpha1.UpgradeAutomatic,
		MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "first"}},
	}

	machines := make([]v1alpha1.TalosMachine, maxUpgraded+1)
	for i := range machines {
		m := &machines[i]
		m.Name, m.Status.TalosVersion, m.Status.KubeletVersion = fmt.Sprintf("m-%02d", i), "v1.12.0", "v1.34.0"
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told"})
	}

	last := &machines[maxUpgraded]
	last.Labels = map[string]string{"ring": "first"}

	if got := upgradeOf(cp, nil, machines); got.Message != "" || len(got.Machines) != maxUpgraded {
		t.Errorf("a selected one is due: %+v", got)
	}

	meta.SetStatusCondition(&last.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionUpToDate, Status: "False", Reason: v1alpha1.ReasonReverted})

	if got := upgradeOf(cp, nil, machines); !strings.HasPrefix(got.Message, "m-16: rolled back from Talos v1.12.1;") {
		t.Errorf("it was rolled back: %+v", got)
	}
}

// TestStuckOnARefusal: the machines that must not be given the Talos of their path are named, with the reason, and no others.
func TestStuckOnARefusal(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "first"}}}

	machine := func(name, ring, reason string) v1alpha1.TalosMachine {
		m := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"ring": ring}}}
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionUpToDate, Status: "False", Reason: reason, Message: "machine " + name + " keeps its installer",
		})

		return m
	}

	busy := machine("d", "first", v1alpha1.ReasonExtensionsLost)
	busy.Status.Change = &v1alpha1.MachineChange{}

	machines := []v1alpha1.TalosMachine{
		machine("a", "first", v1alpha1.ReasonExtensionsLost), machine("b", "second", v1alpha1.ReasonExtensionsLost),
		machine("c", "first", v1alpha1.ReasonConfigDiffers), busy, machine("e", "first", v1alpha1.ReasonExtensionsLost),
	}
	now := upgrade.Now{Talos: "v1.13.9", Machines: []string{"a", "b", "c", "d"}}

	if got, want := stuck(cp, machines, &v1alpha1.UpgradeStatus{}, now), "a: keeps its installer"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStuckOnTheWayBack: what is taken back is not said to be unselected.
func TestStuckOnTheWayBack(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{MachineSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"ring": "first"}}}

	machines := []v1alpha1.TalosMachine{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}
	now := upgrade.Now{Kubernetes: "v1.34.0", Components: []v1alpha1.KubernetesComponent{v1alpha1.ComponentScheduler}, Machines: []string{"a"}}

	for back, want := range map[bool]string{false: "not selected by upgrade.machineSelector: a", true: ""} {
		now.Back = back

		if got := stuck(cp, machines, &v1alpha1.UpgradeStatus{}, now); got != want {
			t.Errorf("back: %t: %q", back, got)
		}
	}
}

// TestUpgradeKeepsItsStep: while a control-plane machine does not tell its version, nothing begins, and what has begun goes
// on; it is not forgotten because its object was made anew, or because the spec has changed otherwise.
func TestUpgradeKeepsItsStep(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
	cp.Spec.TalosVersion, cp.Spec.Upgrade = "v1.13.9", &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	cp.Spec.Machines = []v1alpha1.MachineEntry{{Name: "cp-0"}, {Name: "cp-1"}}

	machine := v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "cp-0"},
		Status:     v1alpha1.TalosMachineStatus{TalosVersion: "v1.13.9", KubeletVersion: "v1.34.0"},
	}
	meta.SetStatusCondition(&machine.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told",
	})

	anew := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Name: "cp-1"}}
	running := &v1alpha1.UpgradeStatus{ObservedGeneration: 7, Target: "v1.13.9", TalosVersion: "v1.12.12"}

	for name, c := range map[string]struct {
		machines []v1alpha1.TalosMachine
		was      *v1alpha1.UpgradeStatus
		now      string
		spec     int64
	}{
		"gone":                 {[]v1alpha1.TalosMachine{machine}, nil, "", 7},
		"gone, half-way":       {[]v1alpha1.TalosMachine{machine}, running, "v1.12.12", 7},
		"not observed":         {[]v1alpha1.TalosMachine{machine, anew}, nil, "", 7},
		"of another spec":      {[]v1alpha1.TalosMachine{machine, anew}, &v1alpha1.UpgradeStatus{ObservedGeneration: 6, Target: "v1.13.9", TalosVersion: "v1.12.12"}, "v1.12.12", 6},
		"to another version":   {[]v1alpha1.TalosMachine{machine, anew}, &v1alpha1.UpgradeStatus{ObservedGeneration: 6, Target: "v1.12.12", TalosVersion: "v1.12.12"}, "", 7},
		"with another one":     {[]v1alpha1.TalosMachine{machine, anew}, &v1alpha1.UpgradeStatus{ObservedGeneration: 6, Target: "v1.13.9", TalosVersion: "v1.12.12", TargetKubernetes: "v1.34.0"}, "", 7},
		"not observed anymore": {[]v1alpha1.TalosMachine{machine, anew}, running, "v1.12.12", 7},
	} {
		cp.Status.Upgrade = c.was

		got := upgradeOf(cp, cp.Spec.Machines, c.machines)
		if got == nil || got.TalosVersion != c.now || got.ObservedGeneration != c.spec || got.Message != "waiting for the versions of cp-1" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestUnprovedTalos: the path goes on once each machine has proved the Talos that it was given, or the spec asks for
// another one.
func TestUnprovedTalos(t *testing.T) {
	at := func(phase v1alpha1.ChangePhase, booted bool, cause v1alpha1.ChangeCause) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: phase, Booted: booted, Cause: cause}
	}

	for name, c := range map[string]struct {
		change *v1alpha1.MachineChange
		target string
		now    string
	}{
		"it settles":           {at(v1alpha1.ChangeSettling, true, v1alpha1.CauseSpec), "v1.13.9", "v1.12.12"},
		"it is not healthy":    {at(v1alpha1.ChangeFailed, true, v1alpha1.CauseSpec), "v1.13.9", "v1.12.12"},
		"it is rolled back":    {at(v1alpha1.ChangePending, false, v1alpha1.CauseRevert), "v1.13.9", "v1.12.12"},
		"another is wanted":    {at(v1alpha1.ChangeFailed, true, v1alpha1.CauseSpec), "v1.13.8", "v1.13.8"},
		"it never booted that": {at(v1alpha1.ChangeFailed, false, v1alpha1.CauseSpec), "v1.13.9", "v1.13.9"},
		"it is proved":         {nil, "v1.13.9", "v1.13.9"},
		"the last version":     {at(v1alpha1.ChangeSettling, true, v1alpha1.CauseSpec), "v1.12.12", "v1.12.12"},
		"and that is proved":   {nil, "v1.12.12", ""},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 8}}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = c.target, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.ObservedKubeVersion = "v1.34.0"
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{ObservedGeneration: 7, Target: "v1.13.9", TalosVersion: "v1.12.12"}
		if c.target == "v1.12.12" {
			cp.Status.Upgrade.Target = c.target
		}

		m := v1alpha1.TalosMachine{
			ObjectMeta: metav1.ObjectMeta{Name: "cp-0"},
			Status:     v1alpha1.TalosMachineStatus{TalosVersion: "v1.12.12", KubeletVersion: "v1.34.0", Change: c.change},
		}
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told",
		})

		got := upgradeOf(cp, nil, []v1alpha1.TalosMachine{m})
		if got == nil && c.now == "" {
			continue
		}

		if got == nil || got.TalosVersion != c.now || got.ObservedGeneration != 8 ||
			strings.Contains(got.Message, "waiting until cp-0 has proved Talos v1.12.12") != (c.now == "v1.12.12") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestWorkersWaitForProof: workers get a version once each control-plane machine has proved it.
func TestWorkersWaitForProof(t *testing.T) {
	for name, c := range map[string]struct {
		change  *v1alpha1.MachineChange
		deleted bool
		done    bool
	}{
		"proved":          {nil, false, true},
		"it settles":      {&v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangeSettling}, false, false},
		"it is not well":  {&v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangeFailed, Booted: true}, false, false},
		"another change":  {&v1alpha1.MachineChange{Phase: v1alpha1.ChangeSettling}, false, true},
		"it is taken out": {&v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangeSettling}, true, true},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = "v1.13.9", &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.ObservedKubeVersion = "v1.34.0"

		machines := make([]v1alpha1.TalosMachine, 3)
		for i := range machines {
			m := &machines[i]
			m.Name, m.Status.TalosVersion, m.Status.KubeletVersion = []string{"cp-0", "cp-1", "w"}[i], "v1.13.9", "v1.34.0"
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
				Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told",
			})
		}

		machines[2].Status.TalosVersion, machines[2].Spec.WorkerRef = "v1.12.12", &v1alpha1.ObjectReference{Name: "group"}
		machines[1].Status.Change = c.change

		if c.deleted {
			machines[1].DeletionTimestamp = &metav1.Time{}
			machines[1].DeletionTimestamp.Time = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		}

		if got := upgradeOf(cp, nil, machines); got == nil || got.ControlPlaneDone != c.done {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestWaitingSince: since when an upgrade waits stays for as long as it waits for the same.
func TestWaitingSince(t *testing.T) {
	now := time.Date(2026, 5, 4, 10, 0, 0, 0, time.UTC)
	before := metav1.NewTime(now.Add(-time.Hour))

	for name, c := range map[string]struct {
		was     *v1alpha1.UpgradeStatus
		message string
		want    time.Time
	}{
		"nothing":          {&v1alpha1.UpgradeStatus{Message: "a", WaitingSince: &before}, "", time.Time{}},
		"the same":         {&v1alpha1.UpgradeStatus{Message: "a", WaitingSince: &before}, "a", before.Time},
		"something else":   {&v1alpha1.UpgradeStatus{Message: "a", WaitingSince: &before}, "b", now},
		"for the first":    {nil, "a", now},
		"of an older kind": {&v1alpha1.UpgradeStatus{Message: "a"}, "a", now},
	} {
		got := waitingSince(c.was, &v1alpha1.UpgradeStatus{Message: c.message}, now)
		if (got == nil) != c.want.IsZero() || got != nil && !got.Time.Equal(c.want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
