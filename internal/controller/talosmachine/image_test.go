package talosmachine_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// TestSecureBoot: a machine that is to have Secure Boot waits until it was booted with it, and until its installer has
// the extensions of its boot medium. Then it gets the installer that is signed, boots it, and tells what it runs.
func TestSecureBoot(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()

	n, err := e.fleet.Boot(t.Context(), 0, func(o *node.Options) { o.Extensions = []string{"iscsi-tools"} })
	if err != nil {
		t.Fatal(err)
	}

	install := func(edit func(*v1alpha1.InstallOptions)) {
		change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
			if m.Spec.Install == nil {
				m.Spec.Install = &v1alpha1.InstallOptions{}
			}

			edit(m.Spec.Install)
		})
	}

	e.nodes["cp-0"] = n
	e.list("cp-0", 1, nil)
	install(func(o *v1alpha1.InstallOptions) { o.SecureBoot = new(true) })
	e.until("cp-0", "it waits for Secure Boot", reason(v1alpha1.ConditionReady, v1alpha1.ReasonSecureBootOff))

	if m := e.machine("cp-0"); m.Status.Image == nil || m.Status.Image.SecureBoot == nil || *m.Status.Image.SecureBoot {
		t.Errorf("the status says %+v", m.Status.Image)
	}

	n.SetSecureBoot(true)
	n.Kill()

	if err := n.PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	e.until("cp-0", "it would lose an extension", reason(v1alpha1.ConditionReady, v1alpha1.ReasonExtensionsLost))
	e.condition("cp-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonExtensionsLost, "iscsi-tools")

	if e.mutations("cp-0") != 0 {
		t.Error("something was sent to a machine that was to wait")
	}

	install(func(o *v1alpha1.InstallOptions) {
		o.Schematic = &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}}
	})

	m := e.until("cp-0", "it runs what it should", func(m *v1alpha1.TalosMachine) bool {
		i := m.Status.Image

		return m.Status.BootID != "" && i != nil && i.MatchesSpec != nil && *i.MatchesSpec
	})
	if i := m.Status.Image; i.Schematic == "" || i.Schematic != i.DesiredSchematic || i.SecureBoot == nil || !*i.SecureBoot ||
		!slices.Equal(i.Extensions, []string{"iscsi-tools"}) {
		t.Errorf("the status says %+v", i)
	}
}

// follows lets a machine begin each change that is planned for it, until it has none left and is in the desired state.
func (e *env) follows(name, what string, want func(*v1alpha1.TalosMachine) bool) *v1alpha1.TalosMachine {
	e.Helper()

	return e.until(name, what, func(m *v1alpha1.TalosMachine) bool {
		c := m.Status.Change
		if c != nil && c.Phase == v1alpha1.ChangePending && (m.Spec.Change == nil || m.Spec.Change.ID != c.ID) {
			e.grant(name, true)
		}

		return want(m) && done(m)
	})
}

// runsSchematic creates a cluster whose worker runs a schematic with an extension.
func (e *env) runsSchematic() {
	e.Helper()
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group}, func(o *node.Options) { o.Extensions = []string{"iscsi-tools"} })
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
		w.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{
			Schematic: &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}},
		}}
	})
	e.bootstrap("cp-0")
	e.follows("w-0", "it runs the schematic", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Image != nil && m.Status.Image.Schematic != ""
	})
}

// TestSchematicTakenAway: an upgrade takes a schematic with its extensions away where the spec permits that, by itself or
// with another version, and ends.
func TestSchematicTakenAway(t *testing.T) {
	for name, c := range map[string]struct {
		version string
		drops   []string
	}{
		"alone": {harness.TalosVersion, []string{"*"}}, "with a version": {newer, []string{"siderolabs/iscsi-tools"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.runsSchematic()

			boot := e.boots("w-0")

			change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.TalosVersion, cp.Spec.Upgrade = c.version, &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
			})
			change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
				w.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{DropExtensions: c.drops}}
			})
			e.step(c.version, true)

			m := e.follows("w-0", "it runs no schematic", func(m *v1alpha1.TalosMachine) bool {
				if m.Status.TalosVersion == c.version {
					e.arrived() // as the control plane says
				}

				return m.Status.Image != nil && m.Status.Image.Schematic == "" && m.Status.BootID != boot
			})
			if len(m.Status.Image.Extensions) > 0 || m.Status.TalosVersion != c.version || !e.runs("w-0", installer+c.version) ||
				e.cordoned("w-0") || e.nodes["w-0"].Faults().Calls("Reboot") != 1 {
				t.Errorf("it runs %+v: %s", m.Status.Image, show(m))
			}
		})
	}
}

// TestRefusedInstaller: a member keeps its installer where it would not boot the one of the spec, or lose extensions,
// although Talos would take the config. It gets the rest of the spec, and so does its group, which is not up to date.
func TestRefusedInstaller(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)

	for i, name := range []string{"w-0", "w-1"} {
		e.boot(name, 100+i, &v1alpha1.ObjectReference{Name: group}, func(o *node.Options) {
			o.Extensions = map[string][]string{"w-0": {"iscsi-tools"}}[name]
			o.SecureBoot = name == "w-1"
		})
	}

	iscsi := func(o *v1alpha1.InstallOptions) {
		o.Schematic = &v1alpha1.Schematic{Extensions: []string{"siderolabs/iscsi-tools"}}
	}
	secure := func(o *v1alpha1.InstallOptions) { o.SecureBoot = new(true) }

	e.install("w-0", iscsi)
	e.install("w-1", secure)
	e.bootstrap("cp-0")
	e.follows("w-0", "it runs the schematic", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Image != nil && len(m.Status.Image.Extensions) == 1
	})
	e.follows("w-1", "it runs with Secure Boot", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Image != nil && m.Status.Image.MatchesSpec != nil && *m.Status.Image.MatchesSpec
	})

	e.install("w-0", func(o *v1alpha1.InstallOptions) { iscsi(o); secure(o) })
	e.keepsInstaller("w-0", v1alpha1.ReasonSecureBootOff, "it runs without Secure Boot")
	e.install("w-1", func(*v1alpha1.InstallOptions) {})
	e.keepsInstaller("w-1", v1alpha1.ReasonSecureBootMismatch, "would not boot again")
	e.install("w-1", secure)
	e.install("w-0", func(o *v1alpha1.InstallOptions) {
		o.Schematic = &v1alpha1.Schematic{Extensions: []string{"siderolabs/gvisor"}}
	})
	e.keepsInstaller("w-0", v1alpha1.ReasonExtensionsLost, "lose the extensions iscsi-tools,")

	e.restIsSent()
	e.install("w-0", iscsi)
	e.follows("w-0", "it goes on", upToDate)

	// Its config names the signed installer already, and stays as it is.
	e.nodes["w-1"].SetSecureBoot(false)
	e.reboot("w-1")
	e.until("w-1", "it has booted without", func(m *v1alpha1.TalosMachine) bool {
		i := m.Status.Image

		return i != nil && i.SecureBoot != nil && !*i.SecureBoot && m.Status.Stage == "running"
	})
	e.pass("w-1")
	e.condition("w-1", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonSecureBootOff, "runs without")

	if m := e.machine("w-1"); m.Status.ComparedTo == "" || m.Status.Change != nil {
		t.Errorf("nothing else can be changed: %s", show(m))
	}
}

// install sets what a machine is installed with.
func (e *env) install(name string, edit func(*v1alpha1.InstallOptions)) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Spec.Install = &v1alpha1.InstallOptions{}
		edit(m.Spec.Install)
	})
}

// groups are the objects that the machines of the group are compared to.
func (e *env) groups() (*v1alpha1.TalosControlPlane, *v1alpha1.TalosWorker) {
	e.Helper()

	cp, w := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	e.Get(cp, cluster)
	e.Get(w, group)

	return cp, w
}

// keepsInstaller: a worker is compared to its spec, and its installer alone is refused, so that nothing is left to
// send.
func (e *env) keepsInstaller(name, reason, part string) {
	e.Helper()

	calls := e.mutations(name)
	m, _, err := e.pass(name)
	cp, w := e.groups()
	e.condition(name, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, reason, part)
	e.condition(name, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "")

	if err != nil || m.Status.ComparedTo != rollout.ComparedTo(cp, w, m) || m.Status.Change != nil || e.mutations(name) != calls {
		e.Fatalf("%v, compared to %q, %d calls: %s", err, m.Status.ComparedTo, e.mutations(name)-calls, show(m))
	}
}

// restIsSent: the machine that keeps its installer, and the other one of its group, get a patch. The group is not up to
// date then.
func (e *env) restIsSent() {
	e.Helper()
	e.patchAll(immediate)

	for _, name := range []string{"w-0", "w-1"} {
		if c := e.planned(name); len(c.Fields) != 1 || c.Fields[0].Field != "machine.nodeLabels.shelf" {
			e.Errorf("%s gets %+v", name, c.Fields)
		}
	}

	machines := func() []v1alpha1.TalosMachine { return []v1alpha1.TalosMachine{*e.machine("w-0"), *e.machine("w-1")} }
	cp, w := e.groups()

	out, err := rollout.Assess(rollout.Input{Machines: machines(), ControlPlane: cp, Worker: w, Now: e.Clock.Now()})
	if err != nil || len(out.Ready) != 2 {
		e.Errorf("%v: the group begins %+v with the plan %+v", err, out.Ready, out.Plan)
	}

	for _, name := range []string{"w-0", "w-1"} {
		e.grant(name, false)
		e.until(name, "it has the patch", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })
	}

	if !e.runs("w-0", "seven") || !e.runs("w-0", e.machine("w-0").Status.Image.Schematic) || !upToDate(e.machine("w-1")) {
		e.Errorf("the patch is missing, or another installer is there: %s", show(e.machine("w-1")))
	}

	e.keepsInstaller("w-0", v1alpha1.ReasonExtensionsLost, "iscsi-tools")

	status, reason, message := rollout.Report(cp, w, nil, 2, machines())
	if status != metav1.ConditionFalse || reason != v1alpha1.ReasonExtensionsLost || !strings.Contains(message, "w-0") {
		e.Errorf("the group is up to date: %s, %s: %s", status, reason, message)
	}
}

// TestReportMissingMidDrain: a node that is drained for a change with another installer, and does not report for a
// moment what it has booted, stays drained: it is neither made schedulable nor drained anew. The change goes on
// afterwards.
func TestReportMissingMidDrain(t *testing.T) {
	e := found(t, 1, 1)

	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
		w.Spec.ConfigPatches = []string{needsReboot}
		w.Spec.Install = &v1alpha1.InstallOptions{Image: "mirror.example/siderolabs/installer:" + harness.TalosVersion}
	})

	if c := e.planned("w-0"); len(c.Fields) != 2 || !c.Drain {
		t.Fatalf("planned: %+v", c)
	}

	e.grant("w-0", true)
	e.lockOut()

	drained, _, err := e.pass("w-0")
	if err == nil || !in(v1alpha1.ChangeDraining)(drained) || drained.Status.Intent == nil {
		t.Fatalf("%v: %s", err, show(drained))
	}

	calls := e.mutations("w-0")

	e.restart() // which forgets what the node has reported
	e.nodes["w-0"].Faults().Fail("List", codes.PermissionDenied, 1, 0)
	e.sleep(reportLate)

	for range 3 {
		m, _, err := e.pass("w-0")
		if err != nil || !reflect.DeepEqual(m.Status.Change, drained.Status.Change) ||
			!reflect.DeepEqual(m.Status.Intent, drained.Status.Intent) || e.mutations("w-0") != calls {
			t.Fatalf("%v: %s", err, show(m))
		}

		e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonDraining, "reported what it has booted")
		e.sleep(time.Minute)
	}

	e.nodes["w-0"].Faults().Clear()
	e.until("w-0", "it is changed", done)

	if e.cordoned("w-0") || !e.runs("w-0", "mirror.example") || e.nodes["w-0"].Faults().Calls("Reboot") != 1 {
		t.Errorf("cordoned: %t: %s", e.cordoned("w-0"), show(e.machine("w-0")))
	}
}

// reportLate is longer than a change that has not begun waits for a report.
const reportLate = 5 * time.Minute

// TestImpossibleImage: a machine whose image no factory builds is refused with the field of the level that sets it, and
// gets nothing. It has no part in the rollout of its group any more, which does not wait for it.
func TestImpossibleImage(t *testing.T) {
	e := found(t, 1, 2)
	e.patchAll(immediate)
	e.planned("w-0")
	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{Platform: "vsphere"}}
	})

	calls := e.mutations("w-0")

	m, _, err := e.pass("w-0")
	e.condition("w-0", v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec,
		"machine w-0: install.platform: Talos has no platform")

	cp, w := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
	e.Get(cp, cluster)
	e.Get(w, group)

	if err == nil || m.Status.Change != nil || m.Status.ComparedTo != rollout.ComparedTo(cp, w, m) || e.mutations("w-0") != calls {
		t.Errorf("%v, compared to %s: %s", err, m.Status.ComparedTo, show(m))
	}

	e.planned("w-1")
	e.grant("w-1", false)
	e.until("w-1", "it goes on", done)
}

// TestImageIsReadOnce: what a node has booted is read once in each boot, however often its system is compared.
func TestImageIsReadOnce(t *testing.T) {
	e := found(t, 1, 1)
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	})
	e.pass("w-0")

	value := 0

	// lists counts the lists that a comparison reads.
	lists := func() int {
		value++
		e.patchAll(fmt.Sprintf("machine: {nodeLabels: {shelf: s%d}}", value))

		before := e.nodes["w-0"].Faults().Calls("List")
		e.until("w-0", "it is compared", func(m *v1alpha1.TalosMachine) bool {
			return m.Status.Change != nil && m.Status.Change.Fields[0].New == fmt.Sprintf("s%d", value)
		})

		return e.nodes["w-0"].Faults().Calls("List") - before
	}

	lists()

	// A reconciliation that is repeated reads more.
	usual := min(lists(), lists(), lists())

	e.reboot("w-0")

	if booted := lists(); booted <= usual {
		t.Errorf("%d lists after a boot, %d before", booted, usual)
	}

	if later := min(lists(), lists(), lists()); later != usual {
		t.Errorf("%d lists once it is known, %d before", later, usual)
	}
}
