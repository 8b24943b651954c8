package taloscontrolplane

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/decide/hook"
	"github.com/talos-operator/talos-operator/internal/decide/manifests"
	"github.com/talos-operator/talos-operator/internal/decide/upgrade"
)

// TestGuardOf: what hooks are decided from follows from the plan and from the machines.
func TestGuardOf(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	one := func(api string, c *v1alpha1.MachineChange) []v1alpha1.TalosMachine {
		return []v1alpha1.TalosMachine{kubernetesMachine("a", api, old, old, c)}
	}
	next := func(kubernetes, talos string) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{ObservedGeneration: 7, KubernetesVersion: kubernetes, TalosVersion: talos}
	}
	changes := func(phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: phase, Image: "kube-apiserver:" + wanted}
	}
	schematic := func(phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{
			Kind: v1alpha1.ChangeTalos, Phase: phase, Fields: []v1alpha1.FieldChange{{Field: upgrade.FieldSchematic, New: "b"}},
		}
	}
	same := &hook.Planned{Component: upgrade.Talos, From: "v1.13.9", To: "v1.13.9"}
	first := &clusterstate.UpgradeRun{Component: "Talos", From: "v1.13.9", To: "v1.13.9"}
	forward := &hook.Planned{Component: upgrade.Kubernetes, From: old, To: wanted}
	run := &clusterstate.UpgradeRun{Component: "Kubernetes", From: old, To: wanted}

	for name, c := range map[string]struct {
		run      *clusterstate.UpgradeRun
		next     *v1alpha1.UpgradeStatus
		machines []v1alpha1.TalosMachine
		planned  *hook.Planned
		busy     bool
		moving   bool
		backup   bool
		phase    v1alpha1.UpgradeRunPhase
	}{
		"nothing":        {machines: one(old, nil)},
		"a minor":        {next: next(wanted, ""), machines: one(old, nil), planned: forward, backup: true},
		"a pending one":  {next: next(wanted, ""), machines: one(old, changes(v1alpha1.ChangePending)), planned: forward, backup: true},
		"one has begun":  {next: next(wanted, ""), machines: one(old, changes(v1alpha1.ChangeApplying)), planned: forward, backup: true, busy: true},
		"one has failed": {next: next(wanted, ""), machines: one(old, changes(v1alpha1.ChangeFailed)), planned: forward, backup: true, busy: true},
		"one has failed with another version": {
			next: next("v1.35.4", ""), machines: one(old, changes(v1alpha1.ChangeFailed)),
			planned: &hook.Planned{Component: upgrade.Kubernetes, From: old, To: "v1.35.4"},
		},
		"the last run still moves a machine": {
			run: run, next: next("v1.35.4", ""), machines: one(old, changes(v1alpha1.ChangeApplying)), moving: true,
			planned: &hook.Planned{Component: upgrade.Kubernetes, From: old, To: "v1.35.4"}, phase: v1alpha1.UpgradeRunRunning,
		},
		"the last run has failed": {
			run: run, next: next("v1.35.4", ""), machines: one(old, changes(v1alpha1.ChangeFailed)),
			planned: &hook.Planned{Component: upgrade.Kubernetes, From: old, To: "v1.35.4"}, phase: v1alpha1.UpgradeRunFailed,
		},
		"a patch": {
			next: next("v1.35.4", ""), machines: one(old, nil),
			planned: &hook.Planned{Component: upgrade.Kubernetes, From: old, To: "v1.35.4"},
		},
		"taken back": {
			run: run, next: next(old, ""), machines: one(wanted, nil),
			planned: &hook.Planned{Component: upgrade.Kubernetes, From: wanted, To: old}, phase: v1alpha1.UpgradeRunCalledOff,
		},
		"Talos": {
			next: next("", "v1.13.10"), machines: one(old, nil),
			planned: &hook.Planned{Component: upgrade.Talos, From: "v1.13.9", To: "v1.13.10"},
		},
		"schematics": {
			next:     &v1alpha1.UpgradeStatus{ObservedGeneration: 7, TalosVersion: "v1.13.9", SchematicsOnly: true},
			machines: one(old, schematic(v1alpha1.ChangePending)), planned: same,
		},
		"schematics, one has begun": {
			run: first, next: &v1alpha1.UpgradeStatus{ObservedGeneration: 7, TalosVersion: "v1.13.9", SchematicsOnly: true},
			machines: one(old, schematic(v1alpha1.ChangeRebooting)), planned: same, busy: true, moving: true,
			phase: v1alpha1.UpgradeRunRunning,
		},
		"schematics after a version": {
			run:      &clusterstate.UpgradeRun{Component: "Talos", From: "v1.13.8", To: "v1.13.9"},
			next:     &v1alpha1.UpgradeStatus{ObservedGeneration: 7, TalosVersion: "v1.13.9", SchematicsOnly: true},
			machines: one(old, schematic(v1alpha1.ChangeRebooting)), planned: same, busy: true, phase: v1alpha1.UpgradeRunSucceeded,
		},
		"schematics that no machine wants any more": {
			run:      &clusterstate.UpgradeRun{Component: "Talos", From: "v1.13.9", To: "v1.13.9", Phase: clusterstate.UpgradePlanned},
			machines: one(old, nil), phase: v1alpha1.UpgradeRunCalledOff,
		},
		"schematics are there": {run: first, machines: one(old, nil), phase: v1alpha1.UpgradeRunSucceeded},
		"goes on": {
			run: run, next: next(wanted, ""), machines: one(wanted, nil), planned: forward, backup: true, phase: v1alpha1.UpgradeRunRunning,
		},
		"called off": {run: run, machines: one(old, nil), phase: v1alpha1.UpgradeRunCalledOff},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 7}}
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
		cp.Spec.BackupBeforeDisruption = &v1alpha1.BackupBeforeDisruption{}

		got := guardOf(cp, nil, c.run, c.next, c.machines)
		if d := cmp.Diff(c.planned, got.Planned); d != "" || got.Busy != c.busy || got.Moving != c.moving || got.Backup != c.backup || got.Phase != c.phase {
			t.Errorf("%s: %+v %s", name, got, d)
		}

		if cp.Status.Upgrade != nil {
			t.Errorf("%s: the control plane has changed", name)
		}
	}
}

// TestHalted: an upgrade is halted once a control-plane machine has failed with it, nothing else goes on, and no worker
// has begun.
func TestHalted(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	change := func(phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{ID: "1", Kind: v1alpha1.ChangeKubernetes, Phase: phase, Image: "kube-apiserver:" + wanted}
	}
	broken := func(edit func(*v1alpha1.TalosMachine)) v1alpha1.TalosMachine {
		m := kubernetesMachine("a", old, old, old, change(v1alpha1.ChangeFailed))
		edit(&m)

		return m
	}
	other := func(phase v1alpha1.ChangePhase) v1alpha1.TalosMachine {
		return kubernetesMachine("b", old, old, old, change(phase))
	}
	plain := func(*v1alpha1.TalosMachine) {}
	api := []v1alpha1.KubernetesComponent{v1alpha1.ComponentAPIServer}

	for name, c := range map[string]struct {
		machines   []v1alpha1.TalosMachine
		components []v1alpha1.KubernetesComponent
		to         string
		want       bool
	}{
		"failed":                  {[]v1alpha1.TalosMachine{broken(plain), other(v1alpha1.ChangePending)}, api, wanted, true},
		"with another version":    {[]v1alpha1.TalosMachine{broken(plain)}, api, "v1.36.4", false},
		"nothing has failed":      {[]v1alpha1.TalosMachine{other(v1alpha1.ChangePending)}, api, wanted, false},
		"another one goes on":     {[]v1alpha1.TalosMachine{broken(plain), other(v1alpha1.ChangeSettling)}, api, wanted, false},
		"it is the workers' turn": {[]v1alpha1.TalosMachine{broken(plain)}, append(api[:1:1], v1alpha1.ComponentKubelet), wanted, false},
		"another one is to go on": {[]v1alpha1.TalosMachine{broken(plain), func() v1alpha1.TalosMachine {
			m := other(v1alpha1.ChangePending)
			m.Spec.Change = &v1alpha1.ChangeGrant{ID: "1"}

			return m
		}()}, api, wanted, false},
		"it is retried": {[]v1alpha1.TalosMachine{broken(func(m *v1alpha1.TalosMachine) {
			m.Annotations = map[string]string{v1alpha1.RetryAnnotation: "true"}
		})}, api, wanted, false},
		"a worker": {[]v1alpha1.TalosMachine{broken(func(m *v1alpha1.TalosMachine) {
			m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "w"}
		})}, api, wanted, false},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 7}}
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
		next := &v1alpha1.UpgradeStatus{ObservedGeneration: 7, KubernetesVersion: c.to, Components: c.components}

		run := &clusterstate.UpgradeRun{Component: "Kubernetes", From: old, To: c.to}
		if got := guardOf(cp, nil, run, next, c.machines); got.Halted != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestGuardOfManifests: bootstrap manifests that are waited for do not keep the hooks after a version from running once
// each machine has it; a machine that does not, or of which that is not known, does.
func TestGuardOfManifests(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	all := kubernetesMachine("a", wanted, wanted, wanted, nil)
	run := &clusterstate.UpgradeRun{Component: "Kubernetes", From: old, To: wanted}

	for name, c := range map[string]struct {
		entries  []v1alpha1.MachineEntry
		machines []v1alpha1.TalosMachine
		manual   bool
		want     v1alpha1.UpgradeRunPhase
	}{
		"each machine has it": {machines: []v1alpha1.TalosMachine{all}, want: v1alpha1.UpgradeRunSucceeded},
		"a kubelet does not": {
			machines: []v1alpha1.TalosMachine{all, kubernetesMachine("w", "", "", old, nil)}, want: v1alpha1.UpgradeRunRunning,
		},
		"a machine is missing": {
			entries: []v1alpha1.MachineEntry{{Name: "b"}}, machines: []v1alpha1.TalosMachine{all}, want: v1alpha1.UpgradeRunWaiting,
		},
		"nothing is automatic any more": {machines: []v1alpha1.TalosMachine{all}, manual: true, want: v1alpha1.UpgradeRunWaiting},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Name: "c", Generation: 7}}
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = "v1.13.9", wanted
		cp.Status.ObservedKubeVersion, cp.Status.Manifests = wanted, &v1alpha1.ManifestsStatus{KubernetesVersion: wanted}
		cp.Status.Upgrade = manifests.Held(cp, nil, wanted, "a manifest is refused")

		if !c.manual {
			cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
		}

		if got := guardOf(cp, c.entries, run, cp.Status.Upgrade, c.machines); got.Phase != c.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAwaitsRetry: a retry that nothing was planned for is still to come; one that has begun an attempt, or that
// concerns no hook, is not.
func TestAwaitsRetry(t *testing.T) {
	run := func(attempt int, phase clusterstate.UpgradePhase, failure string) *clusterstate.UpgradeRun {
		return &clusterstate.UpgradeRun{
			Attempt: attempt, Phase: phase, Hooks: []clusterstate.HookRun{{Name: "one", When: v1alpha1.HookBefore, Failure: failure}},
		}
	}
	stopped := run(3, clusterstate.UpgradePlanned, "it broke")

	for name, c := range map[string]struct {
		was, run *clusterstate.UpgradeRun
		want     bool
	}{
		"no run":                         {},
		"still stopped":                  {stopped, stopped, true},
		"fails while nothing is planned": {run(3, clusterstate.UpgradePlanned, ""), stopped, true},
		"begun again":                    {stopped, &clusterstate.UpgradeRun{Attempt: 4, Phase: clusterstate.UpgradePlanned}, false},
		"begun again, and refused":       {stopped, run(4, clusterstate.UpgradePlanned, "refused"), false},
		"the first one is refused":       {nil, stopped, false},
		"nothing has failed":             {run(3, clusterstate.UpgradePlanned, ""), run(3, clusterstate.UpgradePlanned, ""), false},
		"called off":                     {stopped, run(3, clusterstate.UpgradeOver, "it broke"), false},
	} {
		if got := awaitsRetry(c.was, c.run); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestFreesWorkers: workers begin as soon as kubelets are published, or another Talos that each control-plane machine has.
func TestFreesWorkers(t *testing.T) {
	const api, kubelet = v1alpha1.ComponentAPIServer, v1alpha1.ComponentKubelet

	for name, c := range map[string]struct {
		next *v1alpha1.UpgradeStatus
		want bool
	}{
		"nothing":              {nil, false},
		"waits":                {&v1alpha1.UpgradeStatus{ControlPlaneDone: true}, false},
		"Talos":                {&v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9"}, false},
		"Talos of workers":     {&v1alpha1.UpgradeStatus{TalosVersion: "v1.13.9", ControlPlaneDone: true}, true},
		"API servers":          {&v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", Components: []v1alpha1.KubernetesComponent{api}}, false},
		"kubelets":             {&v1alpha1.UpgradeStatus{KubernetesVersion: "v1.36.2", Components: []v1alpha1.KubernetesComponent{api, kubelet}}, true},
		"kubelets of the past": {&v1alpha1.UpgradeStatus{Components: []v1alpha1.KubernetesComponent{api, kubelet}}, false},
	} {
		if got := freesWorkers(c.next); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestHeldWorkers: while hooks hold workers that are left behind, the obstacles of their upgrade stay.
func TestHeldWorkers(t *testing.T) {
	pulling := &v1alpha1.UpgradeImages{TalosVersion: "v1.13.10"}
	next := &v1alpha1.UpgradeStatus{TalosVersion: "v1.13.10", Obstacles: "no backup", Pulling: pulling}

	// Without the request, machines would forget their images, pull them again, and be waited for again.
	if got := heldWorkers(next, nil, "a hook"); got.TalosVersion != "" || got.Message != "a hook" || got.Obstacles != "no backup" ||
		got.Pulling != pulling {
		t.Errorf("%+v", got)
	}
}

// TestHookStays: a failed hook stays the reason for what is not up to date while it is not asked for, and no longer.
func TestHookStays(t *testing.T) {
	stopped := &clusterstate.UpgradeRun{
		Phase: clusterstate.UpgradePlanned, Hooks: []clusterstate.HookRun{{Name: "one", When: v1alpha1.HookBefore, Failure: "it did"}},
	}

	for name, c := range map[string]struct {
		reason string
		asked  bool
		run    *clusterstate.UpgradeRun
		stays  bool
	}{
		"not asked":           {v1alpha1.ReasonUpgradeHookFailed, false, stopped, true},
		"asked":               {v1alpha1.ReasonUpgradeHookFailed, true, stopped, false},
		"another reason":      {v1alpha1.ReasonUpgradePending, false, stopped, false},
		"the run is no more":  {v1alpha1.ReasonUpgradeHookFailed, false, nil, false},
		"the run is finished": {v1alpha1.ReasonUpgradeHookFailed, false, &clusterstate.UpgradeRun{Phase: clusterstate.UpgradeFinished, Hooks: stopped.Hooks}, false},
	} {
		s := &scope{cp: &v1alpha1.TalosControlPlane{}, held: &clusterstate.Held{State: &clusterstate.State{}}}
		s.held.State.Runtime.Upgrade = c.run
		meta.SetStatusCondition(&s.cp.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionUpToDate, Status: "False", Reason: c.reason,
		})

		if c.asked {
			s.guard.UID = "uid"
		}

		if got := s.hookStays(); got != c.stays {
			t.Errorf("%s: %t", name, got)
		}
	}

	if (&scope{cp: &v1alpha1.TalosControlPlane{}}).hookStays() {
		t.Error("it stays without a state")
	}
}
