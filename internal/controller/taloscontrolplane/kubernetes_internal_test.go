package taloscontrolplane

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// kubernetesMachine is a control-plane machine, or a worker if its name begins with w.
func kubernetesMachine(name, api, rest, kubelet string, c *v1alpha1.MachineChange) v1alpha1.TalosMachine {
	m := v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     v1alpha1.TalosMachineStatus{TalosVersion: "v1.13.9", KubeletVersion: kubelet, Change: c},
	}

	if strings.HasPrefix(name, "w") {
		m.Spec.WorkerRef = &v1alpha1.ObjectReference{Name: "group"}
	} else if api != "unknown" {
		m.Status.ComponentVersions = &v1alpha1.ComponentVersions{
			APIServer: api, ControllerManager: rest, Scheduler: rest, Proxy: rest,
		}
	}

	meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionConfigured, Status: "True", Reason: "Told",
	})

	return m
}

// TestUpgradeOfKubernetesStatus: the component of now goes on once each machine has proved the one before.
func TestUpgradeOfKubernetesStatus(t *testing.T) {
	const old, wanted = "v1.35.1", "v1.36.2"

	machine := kubernetesMachine
	begun := func(kind v1alpha1.ChangeKind, phase v1alpha1.ChangePhase) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{Kind: kind, Phase: phase}
	}
	was := func(generation int64, version string, of ...v1alpha1.KubernetesComponent) *v1alpha1.UpgradeStatus {
		return &v1alpha1.UpgradeStatus{
			ObservedGeneration: generation, KubernetesVersion: version, Components: of, Approved: true, KubernetesBegun: version,
			TargetKubernetes: wanted,
		}
	}
	begunBefore := was(6, wanted, v1alpha1.ComponentAPIServer)
	another := was(7, "v1.35.9", v1alpha1.ComponentAPIServer)
	another.TargetKubernetes = "v1.35.9"

	const api, manager, kubelet = v1alpha1.ComponentAPIServer, v1alpha1.ComponentControllerManager, v1alpha1.ComponentKubelet

	type machines = []v1alpha1.TalosMachine

	for name, c := range map[string]struct {
		machines machines
		was      *v1alpha1.UpgradeStatus
		version  string
		of       v1alpha1.KubernetesComponent
		approved bool
		message  string
		begun    string
	}{
		"there already": {machines: machines{machine("a", wanted, wanted, wanted, nil), machine("w", "", "", wanted, nil)}},
		"begins":        {machines: machines{machine("a", old, old, old, nil)}, version: wanted, of: api},
		"goes on": {
			machines: machines{machine("a", wanted, old, old, nil)}, was: was(7, wanted, api), version: wanted, of: manager,
			approved: true,
		},
		"another version needs its own approval": {
			machines: machines{machine("a", old, old, old, nil)}, was: another, version: wanted, of: api,
		},
		"proves itself": {
			machines: machines{machine("a", wanted, old, old, begun(v1alpha1.ChangeKubernetes, v1alpha1.ChangeSettling))},
			was:      was(7, wanted, api), version: wanted, of: api, approved: true,
		},
		"is being sent": {
			machines: machines{machine("a", wanted, old, old, begun(v1alpha1.ChangeKubernetes, v1alpha1.ChangeApplying))},
			was:      was(7, wanted, api), version: wanted, of: api, approved: true,
		},
		"the last one proves itself": {
			machines: machines{machine("a", wanted, wanted, wanted, nil), machine("w", "", "", wanted, begun(v1alpha1.ChangeKubernetes, v1alpha1.ChangeSettling))},
			was:      was(7, wanted, api, kubelet), version: wanted, of: kubelet, approved: true,
		},
		"has failed": {
			machines: machines{machine("a", wanted, old, old, begun(v1alpha1.ChangeKubernetes, v1alpha1.ChangeFailed))},
			was:      was(7, wanted, api), version: wanted, of: api, approved: true,
		},
		"has failed, and the spec has changed otherwise": {
			machines: machines{machine("a", wanted, old, old, begun(v1alpha1.ChangeKubernetes, v1alpha1.ChangeFailed))},
			was:      was(6, wanted, api), version: wanted, of: api, approved: true,
		},
		"has failed, and another version is asked for": {
			machines: machines{machine("a", "v1.35.9", old, old, begun(v1alpha1.ChangeKubernetes, v1alpha1.ChangeFailed))},
			was:      another, version: wanted, of: api,
		},
		"another kind of change is nothing of it": {
			machines: machines{machine("a", wanted, old, old, begun("", v1alpha1.ChangeSettling))},
			was:      was(7, wanted, api), version: wanted, of: manager, approved: true,
		},
		"unknown": {machines: machines{machine("a", "unknown", "", old, nil)}, message: "waiting for the versions of a"},
		"not named": {
			machines: machines{machine("a", "", "", old, nil)}, message: "the configuration of a names no version of APIServer",
		},
		"pinned": {
			machines: machines{func() v1alpha1.TalosMachine {
				m := machine("a", old, old, old, nil)
				m.Status.ComparedTo = "7/0/0//false/7/v1.36.2/APIServer"

				return m
			}()}, version: wanted, of: api, message: "a: the image of APIServer has a tag of its own",
		},
		"a machine is new, and the rest is remembered": {
			machines: machines{machine("a", wanted, old, old, nil), machine("b", "unknown", "", old, nil)},
			was:      begunBefore, message: "waiting for the versions of b", approved: true, begun: wanted,
		},
		"Talos is installed": {
			machines: machines{machine("a", old, old, old, begun(v1alpha1.ChangeTalos, v1alpha1.ChangeApplying))},
			message:  "waits for the upgrade of Talos on a",
		},
		"Talos would be": {
			machines: machines{machine("a", old, old, old, begun(v1alpha1.ChangeTalos, v1alpha1.ChangePending))}, version: wanted,
			of: api,
		},
		"called off": {
			machines: machines{machine("a", "v1.36.4", wanted, wanted, nil)}, was: &v1alpha1.UpgradeStatus{KubernetesBegun: "v1.36.4"},
			version: wanted, of: api,
		},
		"brought there by hand": {
			machines: machines{machine("a", "v1.36.4", wanted, wanted, nil)}, message: "which this operator has not brought there",
		},
		"edited by hand": {
			machines: machines{func() v1alpha1.TalosMachine {
				m := machine("a", old, old, old, nil)
				m.Status.Drift = []v1alpha1.FieldChange{{Field: "machine.env"}}

				return m
			}()}, version: wanted, of: api, message: "a: the configuration was changed outside of the operator",
		},
		"no way back": {machines: machines{machine("a", "v1.36.4", "v1.36.4", old, nil)}, message: "no way back"},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = "v1.13.9", wanted
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
		cp.Status.ObservedKubeVersion, cp.Status.Upgrade = old, c.was

		got := upgradeOf(cp, nil, c.machines)
		if got == nil {
			got = &v1alpha1.UpgradeStatus{}
		} else if got.TargetKubernetes != wanted && c.was == nil || got.Target != "" {
			t.Errorf("%s: the target is %+v", name, got)
		}

		of := v1alpha1.KubernetesComponent("")
		if n := len(got.Components); n > 0 {
			of = got.Components[n-1]
		}

		if c.version != "" {
			c.begun = c.version
		}

		if got.KubernetesVersion != c.version || got.KubernetesBegun != c.begun && c.was != nil || of != c.of || got.Approved != c.approved || got.TalosVersion != "" ||
			!strings.Contains(got.Message, c.message) || c.message == "" && got.Message != "" {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestPointOfNoReturn: the status of an upgrade tells whether setting the spec back still has an effect.
func TestPointOfNoReturn(t *testing.T) {
	const (
		old, wanted   = "v1.35.1", "v1.36.2"
		ahead, passed = v1alpha1.PointOfNoReturnAhead, v1alpha1.PointOfNoReturnPassed
	)

	proves := &v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes, Phase: v1alpha1.ChangeSettling}
	was := &v1alpha1.UpgradeStatus{
		ObservedGeneration: 7, KubernetesVersion: wanted, KubernetesBegun: wanted, TargetKubernetes: wanted, PointOfNoReturn: ahead,
	}

	with := func(change func(*v1alpha1.UpgradeStatus)) *v1alpha1.UpgradeStatus {
		out := was.DeepCopy()
		change(out)

		return out
	}
	unknown := with(func(u *v1alpha1.UpgradeStatus) { u.KubernetesFrom, u.PointOfNoReturn = old, "" })
	behind := with(func(u *v1alpha1.UpgradeStatus) { u.PointOfNoReturn = passed })
	back := with(func(u *v1alpha1.UpgradeStatus) {
		u.KubernetesVersion, u.KubernetesBegun, u.KubernetesFrom, u.TargetKubernetes, u.PointOfNoReturn = old, old, old, old, ""
	})
	stale := with(func(u *v1alpha1.UpgradeStatus) { u.ObservedGeneration = 6 })

	for name, c := range map[string]struct {
		asked   string
		machine v1alpha1.TalosMachine
		was     *v1alpha1.UpgradeStatus
		want    v1alpha1.PointOfNoReturn
		version string
	}{
		"begins":                      {wanted, kubernetesMachine("a", old, old, old, nil), nil, ahead, wanted},
		"an API server has it":        {wanted, kubernetesMachine("a", wanted, old, old, nil), was, ahead, wanted},
		"it proves itself":            {wanted, kubernetesMachine("a", wanted, old, old, proves), was, ahead, wanted},
		"called off":                  {old, kubernetesMachine("a", wanted, old, old, nil), was, "", old},
		"the last one proves itself":  {wanted, kubernetesMachine("a", wanted, wanted, old, proves), was, passed, wanted},
		"kubelets are next":           {wanted, kubernetesMachine("a", wanted, wanted, old, nil), was, passed, wanted},
		"called off too late":         {old, kubernetesMachine("a", wanted, wanted, old, nil), was, passed, ""},
		"versions are unknown":        {wanted, kubernetesMachine("a", "unknown", "", old, nil), was, "", wanted},
		"and of another spec":         {wanted, kubernetesMachine("a", "unknown", "", old, nil), stale, "", ""},
		"while one proves itself":     {wanted, kubernetesMachine("a", "unknown", "", old, proves), was, "", wanted},
		"they are known again":        {wanted, kubernetesMachine("a", wanted, old, old, nil), unknown, ahead, wanted},
		"while it proves itself":      {wanted, kubernetesMachine("a", wanted, old, old, proves), unknown, ahead, wanted},
		"passed, and unknown":         {wanted, kubernetesMachine("a", "unknown", "", old, nil), behind, passed, wanted},
		"passed, and proves itself":   {wanted, kubernetesMachine("a", "unknown", "", old, proves), behind, passed, wanted},
		"what is taken back proves":   {old, kubernetesMachine("a", old, old, old, proves), back, "", old},
		"what is taken back, unknown": {old, kubernetesMachine("a", "unknown", "", old, proves), back, "", old},
	} {
		cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Generation: 7}}
		cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = "v1.13.9", c.asked
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Kubernetes: v1alpha1.UpgradeAutomatic}
		cp.Status.ObservedKubeVersion, cp.Status.Upgrade = old, c.was

		got := upgradeOf(cp, nil, []v1alpha1.TalosMachine{c.machine})
		if got == nil || got.PointOfNoReturn != c.want || got.KubernetesVersion != c.version {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestRefusedPointOfNoReturn: a step that may not begin takes over what is known of the version that has begun, and not
// what was known once.
func TestRefusedPointOfNoReturn(t *testing.T) {
	const ahead, passed = v1alpha1.PointOfNoReturnAhead, v1alpha1.PointOfNoReturnPassed

	for name, c := range map[string]struct {
		begun     string
		was, next v1alpha1.PointOfNoReturn
		want      v1alpha1.PointOfNoReturn
	}{
		"the same version":      {"v1.36.2", ahead, ahead, ahead},
		"it is passed by now":   {"v1.36.2", ahead, passed, passed},
		"it is unknown by now":  {"v1.36.2", ahead, "", ""},
		"the one before":        {"v1.35.1", passed, ahead, passed},
		"the one before, ahead": {"v1.35.1", ahead, ahead, ""},
	} {
		was := &v1alpha1.UpgradeStatus{KubernetesBegun: c.begun, PointOfNoReturn: c.was}
		next := &v1alpha1.UpgradeStatus{KubernetesBegun: "v1.36.2", PointOfNoReturn: c.next}

		if got := refused(next, was, preflight{message: "no space"}); got.PointOfNoReturn != c.want || got.KubernetesBegun != c.begun {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestNotAskedFor: where upgrades of Kubernetes are not automatic, none is planned, and versions in the spec are checked
// against the one that runs.
func TestNotAskedFor(t *testing.T) {
	cp := &v1alpha1.TalosControlPlane{}
	cp.Spec.TalosVersion, cp.Spec.KubernetesVersion = "v1.13.9", "v1.36.2"

	for _, o := range []*v1alpha1.UpgradeOptions{nil, {}, {Kubernetes: v1alpha1.UpgradeReport}} {
		cp.Spec.Upgrade = o

		if got := targetOf(cp); got.Kubernetes != "" || got.Talos != "" {
			t.Errorf("%+v: %+v", o, got)
		}
	}
}

// TestApprovalOfAVersion: the approval of one plan is kept for the version, and only where nothing else is planned.
func TestApprovalOfAVersion(t *testing.T) {
	change := func(kind v1alpha1.ChangeKind) *v1alpha1.MachineChange {
		return &v1alpha1.MachineChange{Kind: kind, Phase: v1alpha1.ChangePending}
	}

	for name, c := range map[string]struct {
		annotation string
		kind       v1alpha1.ChangeKind
		version    string
		approved   bool
	}{
		"approved":               {"plan", v1alpha1.ChangeKubernetes, "v1.36.2", true},
		"another plan":           {"other", v1alpha1.ChangeKubernetes, "v1.36.2", false},
		"a configuration":        {"plan", v1alpha1.ChangeConfig, "v1.36.2", false},
		"no upgrade of it":       {"plan", v1alpha1.ChangeKubernetes, "", false},
		"there is no annotation": {"", v1alpha1.ChangeKubernetes, "v1.36.2", false},
	} {
		cp := &v1alpha1.TalosControlPlane{}
		cp.Annotations = map[string]string{v1alpha1.ApprovedAnnotation: c.annotation}
		cp.Status.Plan = &v1alpha1.PlanStatus{ID: "plan"}
		cp.Status.Upgrade = &v1alpha1.UpgradeStatus{KubernetesVersion: c.version}

		s := &scope{cp: cp}
		s.noteApproval([]v1alpha1.TalosMachine{kubernetesMachine("a", "", "", "", change(c.kind))})

		if cp.Status.Upgrade.Approved != c.approved {
			t.Errorf("%s: %t", name, cp.Status.Upgrade.Approved)
		}
	}
}

// TestOneUnavailableMachine: what restarts a component of Kubernetes waits for the other machines, as what interrupts
// etcd does.
func TestOneUnavailableMachine(t *testing.T) {
	machines := []v1alpha1.TalosMachine{kubernetesMachine("a", "", "", "", nil), kubernetesMachine("b", "", "", "", nil)}
	meta.SetStatusCondition(&machines[0].Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: "True", Reason: "Told",
	})
	two := append(machines[:2:2], kubernetesMachine("c", "", "", "", nil))

	for name, c := range map[string]struct {
		machine string
		change  v1alpha1.MachineChange
		sick    string
	}{
		"a configuration":            {"a", v1alpha1.MachineChange{}, ""},
		"etcd":                       {"a", v1alpha1.MachineChange{Etcd: true}, "b"},
		"Kubernetes":                 {"a", v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes}, "b"},
		"the one that is not ready":  {"b", v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes}, ""},
		"one of two, of Kubernetes":  {"c", v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes}, "b"},
		"one of two, with etcd":      {"c", v1alpha1.MachineChange{Etcd: true}, ""},
		"the one that is, with etcd": {"b", v1alpha1.MachineChange{Etcd: true}, ""},
	} {
		of := machines
		if c.machine == "c" {
			of = two
		}

		if got := sickOther(of, rollout.Candidate{Name: c.machine, Change: c.change}); got != c.sick {
			t.Errorf("%s: %q", name, got)
		}
	}

	// What a missing source of patches says about a machine permits nothing: its node is healthy, and the change repairs none.
	meta.SetStatusCondition(&machines[0].Status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: "False", Reason: v1alpha1.ReasonPatchSourceNotFound,
	})

	if got := sickOther(machines, rollout.Candidate{Name: "a", Change: v1alpha1.MachineChange{Etcd: true}}); got != "b" {
		t.Errorf("without its patches: %q", got)
	}
}

// TestNoUpgradeWithoutEtcd: nothing but this decides about a component of Kubernetes, so it needs a healthy etcd.
func TestNoUpgradeWithoutEtcd(t *testing.T) {
	of := rollout.Candidate{Name: "a", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeKubernetes}}
	config := rollout.Candidate{Name: "a"}

	for healthy, want := range map[bool]string{true: "", false: "etcd is healthy"} {
		s := &scope{etcd: safety.EtcdHealth{Healthy: healthy}}

		if got := s.waitsFor(nil, of); got != want {
			t.Errorf("%t: %q", healthy, got)
		}

		if got := s.waitsFor(nil, config); got != "" {
			t.Errorf("a configuration, %t: %q", healthy, got)
		}
	}
}
