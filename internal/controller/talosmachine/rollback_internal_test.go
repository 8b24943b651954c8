package talosmachine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/change"
	"github.com/talos-operator/talos-operator/internal/talos"
)

// TestRevertSystem: what a machine runs that was rolled back, or is to be, and what is refused.
func TestRevertSystem(t *testing.T) {
	const stock = "ghcr.io/siderolabs/installer:"

	older, newer, ancient := system{"v1.12.12", ""}, system{"v1.13.9", ""}, system{"v1.10.9", ""}
	before := func(s, by system, config string) *v1alpha1.PreviousSystem {
		return &v1alpha1.PreviousSystem{TalosVersion: s.version, Image: stock + s.version, ReplacedBy: by.hash(), ConfigHash: config}
	}
	back := stock + older.version
	overwritten := before(older, newer, "config")
	overwritten.Image = ""

	for name, c := range map[string]struct {
		runs, unwanted system
		previous       *v1alpha1.PreviousSystem
		worker         bool
		want           system
		image, refused string
		reverting      bool
	}{
		"to be rolled back":     {newer, newer, before(older, newer, "config"), false, older, back, "", true},
		"rolled back":           {older, newer, before(older, newer, "config"), false, older, "", "", true},
		"another is unwanted":   {older, system{"v1.13.8", ""}, nil, false, newer, stock + newer.version, "", false},
		"ahead of the path":     {system{"v1.13.8", ""}, system{"v1.13.8", ""}, before(older, system{"v1.13.8", ""}, "config"), false, older, back, "", true},
		"what ran is not known": {newer, newer, nil, false, newer, "", "is not known", true},
		"installed by others":   {newer, newer, before(older, system{"v1.13.8", ""}, "config"), false, newer, "", "is not known", true},
		"another config":        {newer, newer, before(older, newer, "other"), false, newer, "", "its config has changed", true},
		"another etcd":          {newer, newer, before(ancient, newer, "config"), false, newer, "", "downgrade etcd first", true},
		"another installer":     {newer, newer, overwritten, false, newer, "", "may have overwritten Talos v1.12.12", true},
		"a worker has no etcd":  {newer, newer, before(ancient, newer, "config"), true, ancient, stock + ancient.version, "", true},
	} {
		cp, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{}
		cp.Spec.TalosVersion, cp.Spec.Upgrade = newer.version, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{TalosVersion: newer.version, ControlPlaneDone: true}
		m.Annotations = map[string]string{v1alpha1.RevertAnnotation: c.unwanted.hash()}
		m.Status.PreviousSystem, m.Spec.Role = c.previous, v1alpha1.RoleControlPlane

		if c.worker {
			m.Spec.WorkerRef, m.Spec.Role = &v1alpha1.ObjectReference{Name: "group"}, v1alpha1.RoleWorker
		}

		runs := running{system: c.runs, installer: stock + c.runs.version, config: "config"}

		got := compareSystems(cp, m, runs, stock+newer.version)
		if got.want != c.want || got.image != c.image || got.reverting != c.reverting ||
			!strings.Contains(got.refused, c.refused) || (got.refused == "") != (c.refused == "") {
			t.Errorf("%s: %+v", name, got)
		}

		// Neither the policy nor the step of the path keeps a machine from being rolled back.
		cp.Spec.Upgrade.Talos = v1alpha1.UpgradeReport
		if got := compareSystems(cp, m, runs, stock+newer.version); c.unwanted == c.runs && (got.want != c.want || !got.reverting) {
			t.Errorf("%s, not upgraded: %+v", name, got)
		}
	}
}

// TestOverwritePrevious: what ran before what runs stays recorded when another installer is started, and a machine is not
// rolled back to it any more.
func TestOverwritePrevious(t *testing.T) {
	for act, image := range map[change.Act]string{
		change.Install: "", change.Upgrade: "", change.Reboot: "old", change.Uninstall: "old", change.Rollback: "old",
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}}
		s.systems = &systems{live: system{"v2", ""}, config: "hash"}
		recorded := &v1alpha1.PreviousSystem{TalosVersion: "v1", Image: "old", ReplacedBy: s.systems.live.hash(), ConfigHash: "hash"}
		s.machine.Status.PreviousSystem = recorded
		s.machine.Status.WorkingSystem = recorded.ReplacedBy

		s.overwritePrevious(act)

		if got := s.machine.Status.PreviousSystem; got.Image != image || recorded.Image != "old" ||
			worked(&s.machine.Status, system{"v1", ""}.hash()) != s.systems.live.hash() {
			t.Errorf("%s: %+v", act, got)
		}
	}
}

// TestMustRollBack: only a machine that booted what is new, had its time and is not healthy is rolled back by itself.
func TestMustRollBack(t *testing.T) {
	const patience = 10 * time.Minute

	runs, now := system{"v2", ""}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	failedAt := metav1.NewTime(now.Add(-time.Minute))
	before := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(now.Add(-d))) }
	reachable := func(s *scope, status metav1.ConditionStatus, since time.Duration) {
		s.machine.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReachable, Status: status, LastTransitionTime: *before(since),
		}}
	}
	late := func(s *scope, unfit time.Duration) {
		s.machine.Status.Change.Since, s.machine.Status.Change.UnfitSince = *before(time.Hour), before(unfit)
		reachable(s, metav1.ConditionTrue, time.Hour)
	}

	for name, c := range map[string]struct {
		edit func(*scope)
		want bool
	}{
		"it must":               {func(*scope) {}, true},
		"it is healthy":         {func(s *scope) { s.facts.Ready = true }, false},
		"a check is false":      {func(s *scope) { s.facts.Ready, s.lagging, s.refuted = true, "check a: the expression is false", true }, true},
		"it was not unfit":      {func(s *scope) { s.machine.Status.Change.UnfitSince = nil }, false},
		"a moment after a lag":  {func(s *scope) { late(s, time.Second) }, false},
		"long after a lag":      {func(s *scope) { late(s, patience) }, true},
		"it has just come back": {func(s *scope) { late(s, patience); reachable(s, metav1.ConditionTrue, time.Second) }, false},
		"it was not reachable":  {func(s *scope) { late(s, patience); reachable(s, metav1.ConditionFalse, time.Hour) }, false},
		"no evidence":           {func(s *scope) { s.facts.Ready, s.lagging = true, "check a: no API server responds" }, false},
		"it is not known":       {func(s *scope) { s.facts = nil }, false},
		"it runs another":       {func(s *scope) { s.systems.live = system{"v1", ""} }, false},
		"it came late":          {func(s *scope) { s.machine.Status.Change.Booted = false }, false},
		"it has not failed":     {func(s *scope) { s.machine.Status.Change.Phase = v1alpha1.ChangeSettling }, false},
		"it was rolled back":    {func(s *scope) { s.machine.Status.Change.Cause = v1alpha1.CauseRevert }, false},
		"it is requested":       {func(s *scope) { s.machine.Annotations = map[string]string{v1alpha1.RevertAnnotation: runs.hash()} }, false},
		"the config changes":    {func(s *scope) { s.machine.Status.Change.Kind = "" }, false},
		"there is no upgrade":   {func(s *scope) { s.machine.Status.Change = nil }, false},
	} {
		s := &scope{machine: &v1alpha1.TalosMachine{}, controlPlane: &v1alpha1.TalosControlPlane{}}
		s.controlPlane.Spec.Rollout = &v1alpha1.RolloutOptions{HealthTimeout: &metav1.Duration{Duration: patience}}
		s.systems, s.facts = &systems{live: runs}, &talos.Facts{}
		s.machine.Status.Change = &v1alpha1.MachineChange{
			Kind: v1alpha1.ChangeTalos, Phase: v1alpha1.ChangeFailed, Booted: true, Target: runs.hash(), Cause: v1alpha1.CauseSpec,
			Since: failedAt, UnfitSince: before(patience),
		}

		c.edit(s)

		if got := s.mustRollBack(now); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
