package talosmachine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// newer is the version that the tests upgrade to, installer the repository of its image.
const (
	newer     = "v1.13.10"
	installer = "ghcr.io/siderolabs/installer:"
	// tooNew has a minor version that the operator does not know.
	tooNew = "v1.99.0"
)

// upgrade asks for an image of the newer version, as a control plane does once the path leads there.
func (e *env) upgrade(tag string) {
	e.Helper()
	e.follow(newer, installer+tag)
}

// follow sets version and image of the spec, and what the control plane says about the path.
func (e *env) follow(version, image string) {
	e.Helper()
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.TalosVersion = version
		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
		cp.Spec.Install = &v1alpha1.InstallOptions{Image: image}
	})
	change(e, &v1alpha1.TalosWorker{}, group, func(w *v1alpha1.TalosWorker) {
		w.Spec.Install = &v1alpha1.InstallOptions{Image: image}
	})
	e.step(version, true)
}

// step sets the version that the machines are upgraded to now.
func (e *env) step(version string, workers bool) {
	e.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	e.Get(cp, cluster)
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{
		ObservedGeneration: cp.Generation, TalosVersion: version, Target: version, ControlPlaneDone: workers,
	}

	if err := e.Admin.Status().Update(e.Context(), cp); err != nil {
		e.Fatal(err)
	}
}

// arrived ends the path, as the control plane does once every machine runs the version.
func (e *env) arrived() {
	e.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	e.Get(cp, cluster)
	cp.Status.Upgrade = nil

	if err := e.Admin.Status().Update(e.Context(), cp); err != nil {
		e.Fatal(err)
	}
}

// begins plans the upgrade of a machine, and allows it.
func (e *env) begins(name string) {
	e.Helper()

	c := e.planned(name)
	if c.Kind != v1alpha1.ChangeTalos || !c.Reboot || len(c.Fields) != 1 || c.Fields[0].New != newer {
		e.Fatalf("planned: %+v", c)
	}

	if strings.HasPrefix(name, "cp") {
		e.disrupt(name)
	}

	e.grant(name, true)
}

// TestUpgrade: a machine is drained, installs and boots the newer version; then its config names that installer.
func TestUpgrade(t *testing.T) {
	e := found(t, 1, 1)
	boot, was := e.boots("w-0"), e.machine("w-0").Status.TalosVersion

	e.upgrade(newer)
	e.condition("w-0", v1alpha1.ConditionUpToDate, "True", v1alpha1.ReasonUpToDate, "")
	e.begins("w-0")
	e.until("w-0", "it installs", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepInstall && e.cordoned("w-0")
	})
	e.restart() // the node ends the installer with the stream

	m := e.until("w-0", "it runs the newer version", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change == nil || m.Status.Change.Kind != v1alpha1.ChangeTalos
	})
	if m.Status.TalosVersion != newer || was == newer || e.boots("w-0") == boot || e.cordoned("w-0") {
		t.Errorf("from %s, cordoned: %t: %s", was, e.cordoned("w-0"), show(m))
	}

	// The configs follow once the cluster is through.
	e.arrived()

	if c := e.planned("w-0"); c.Reboot || c.Drain || len(c.Fields) != 1 || c.Fields[0].New != installer+newer {
		t.Errorf("planned: %+v", c)
	}

	e.grant("w-0", false)
	e.until("w-0", "it is changed", done)

	if n := e.nodes["w-0"].Faults().Calls("Reboot"); n != 1 || !e.runs("w-0", installer+newer) {
		t.Errorf("%d reboots", n)
	}

	e.keepsSecrets()
}

// TestUpgradeByDigest: a machine whose installers are named by tag and digest is upgraded from one to the next one, and
// its config names the digest of what runs, so that the next release is an upgrade as well.
func TestUpgradeByDigest(t *testing.T) {
	e := found(t, 1, 1)

	image := ""
	for i, version := range []string{newer, "v1.13.11"} {
		was := image
		image = installer + version + "@sha256:" + strings.Repeat(string(rune('a'+i)), 64)

		e.follow(version, image)

		c := e.planned("w-0")
		if c.Kind != v1alpha1.ChangeTalos || c.Image != image || was != "" && c.OldImage != was {
			t.Fatalf("planned: %+v", c)
		}

		e.grant("w-0", true)

		m := e.until("w-0", "it runs "+version, func(m *v1alpha1.TalosMachine) bool {
			return m.Status.Change == nil || m.Status.Change.Kind != v1alpha1.ChangeTalos
		})
		if m.Status.TalosVersion != version || e.cordoned("w-0") {
			t.Fatal(show(m))
		}

		e.arrived()

		if c := e.planned("w-0"); c.Reboot || len(c.Fields) != 1 || c.Fields[0].New != image {
			t.Errorf("planned: %+v", c)
		}

		e.grant("w-0", false)
		e.until("w-0", "it is changed", done)

		if !e.runs("w-0", image) {
			t.Errorf("its config does not name %s", image)
		}
	}
}

// upgradedBefore records that a machine ran another system before the one that it runs.
func (e *env) upgradedBefore(name string) v1alpha1.PreviousSystem {
	e.Helper()

	m := &v1alpha1.TalosMachine{}
	e.Get(m, name)
	m.Status.PreviousSystem = &v1alpha1.PreviousSystem{
		TalosVersion: "v1.12.1", Image: installer + "v1.12.1", ReplacedBy: m.Status.Change.Base, ConfigHash: "c",
	}

	if err := e.Admin.Status().Update(e.Context(), m); err != nil {
		e.Fatal(err)
	}

	return *m.Status.PreviousSystem
}

// TestUpgradeFails: an image that cannot be had disturbs nothing, an installer that fails gives the machine back, and a
// system that does not boot is booted once. What the machine ran before its last upgrade stays known, and is no more
// what it can be rolled back to once an installer was started.
func TestUpgradeFails(t *testing.T) {
	for tag, c := range map[string]struct {
		message string
		reboots int
	}{
		"-missing":          {"cannot pull the image", 0},
		"-broken-installer": {"ended with exit code 1", 0},
		"-broken-boot":      {"rolled back by itself", 1},
	} {
		t.Run(tag, func(t *testing.T) {
			e := found(t, 1, 1)
			was := e.machine("w-0").Status.TalosVersion

			e.upgrade(newer + tag)
			e.begins("w-0")

			previous := e.upgradedBefore("w-0")
			if tag != "-missing" {
				previous.Image = ""
			}

			if tag == "-missing" {
				e.until("w-0", "it is not pulled", func(m *v1alpha1.TalosMachine) bool {
					return strings.Contains(m.Status.Change.Message, c.message)
				})
				e.sleep(patience)
			}

			m := e.until("w-0", "the change fails", failed)
			for range 3 {
				e.sleep(time.Minute)
				m, _, _ = e.pass("w-0")
			}

			if n := e.nodes["w-0"].Faults().Calls("Reboot"); n != c.reboots || m.Status.TalosVersion != was ||
				!failed(m) || !strings.Contains(m.Status.Change.Message, c.message) || e.cordoned("w-0") {
				t.Errorf("%d reboots, cordoned: %t: %s", n, e.cordoned("w-0"), show(m))
			}

			if diff := cmp.Diff(&previous, m.Status.PreviousSystem); diff != "" {
				t.Errorf("what it ran before (-want +got):\n%s", diff)
			}

			// The spec is reverted: nothing newer stays installed, and nothing is left to do.
			e.follow(was, installer+was)
			e.arrived()
			e.until("w-0", "it is changed", done)
			e.reboot("w-0")

			m = e.until("w-0", "it has booted", done)
			if m.Status.TalosVersion != was || e.cordoned("w-0") {
				t.Errorf("it runs %s", m.Status.TalosVersion)
			}
		})
	}
}

// TestUpgradeFallsBack: a machine that has run the new system and falls back to the old one is not given it again by
// itself, whether it was healthy with it or not.
func TestUpgradeFallsBack(t *testing.T) {
	e := found(t, 1, 1)
	was := e.machine("w-0").Status.TalosVersion

	n := e.nodes["w-0"]
	coldBoot := func() error {
		n.Kill()

		return n.PowerOn(t.Context())
	}
	complete := func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil }

	for round, c := range []struct {
		tag, message string
		runs         func(*v1alpha1.TalosMachine) bool
		fall         func() error
	}{
		{"-unhealthy", "w-0 booted " + installer + newer + "-unhealthy and then another system", in(v1alpha1.ChangeSettling), n.FallBack},
		{"-no-cold-boot", "was healthy with it, and does not run it any more", complete, coldBoot},
	} {
		e.upgrade(newer + c.tag)
		e.begins("w-0")

		if m := e.until("w-0", "it runs the new system", c.runs); m.Status.TalosVersion != newer {
			t.Fatalf("%s: %s", c.tag, show(m))
		}

		if err := c.fall(); err != nil {
			t.Fatal(err)
		}

		m := e.until("w-0", "the change fails", failed)
		for range 3 {
			e.sleep(time.Minute)
			m, _, _ = e.pass("w-0")
		}

		if reboots := n.Faults().Calls("Reboot"); reboots != round+1 || m.Status.TalosVersion != was || !failed(m) ||
			!strings.Contains(m.Status.Change.Message, c.message) || e.cordoned("w-0") {
			t.Errorf("%q: %d reboots, cordoned: %t: %s", c.tag, reboots, e.cordoned("w-0"), show(m))
		}
	}

	e.annotate("w-0", v1alpha1.RetryAnnotation, "true")
	e.planned("w-0")
}

// TestUpgradeBootsBadly: a system that boots without its network, or without its extensions, is no success, and is
// booted once.
func TestUpgradeBootsBadly(t *testing.T) {
	schematic := "factory.talos.dev/installer/" + strings.Repeat("a", 64) + ":"

	for image, message := range map[string]string{
		installer + newer + "-no-network":    "has not come back for",
		schematic + newer + "-no-extensions": "its system extensions are not there",
	} {
		t.Run(message, func(t *testing.T) {
			e := found(t, 1, 1)
			boot := e.boots("w-0")

			e.follow(newer, image)

			// The configuration names another repository, and changes first.
			if c := e.planned("w-0"); c.Kind != v1alpha1.ChangeTalos {
				e.grant("w-0", false)
			}

			e.until("w-0", "an upgrade is planned", func(m *v1alpha1.TalosMachine) bool {
				return m.Status.Change != nil && m.Status.Change.Kind == v1alpha1.ChangeTalos
			})
			e.grant("w-0", true)
			e.until("w-0", "it reboots", in(v1alpha1.ChangeRebooting))

			if strings.HasSuffix(image, "-no-network") {
				e.until("w-0", "it is unreachable", func(m *v1alpha1.TalosMachine) bool {
					return e.boots("w-0") != boot && meta.IsStatusConditionFalse(m.Status.Conditions, v1alpha1.ConditionReachable)
				})
				e.sleep(patience)
			}

			e.until("w-0", "the change fails", failed)

			for range 3 {
				e.sleep(time.Minute)

				m, _, _ := e.pass("w-0")
				if !failed(m) || !strings.Contains(m.Status.Change.Message, message) {
					t.Fatal(show(m))
				}
			}

			if strings.HasSuffix(image, "-no-network") {
				e.fallsBackLate("w-0")
			}

			if n := e.nodes["w-0"].Faults().Calls("Reboot"); n != 1 {
				t.Errorf("%d reboots", n)
			}
		})
	}
}

// fallsBackLate has a machine that was abandoned boot what it ran before: it is made schedulable, and is not upgraded
// again.
func (e *env) fallsBackLate(name string) {
	e.Helper()

	if !e.cordoned(name) {
		e.Error("it is schedulable, and nobody knows what it runs")
	}

	if err := e.nodes[name].FallBack(); err != nil {
		e.Fatal(err)
	}

	e.until(name, "it is schedulable", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change.LostPhase == "" })

	for range 3 {
		e.sleep(time.Minute)

		m, _, _ := e.pass(name)
		if !failed(m) || !strings.Contains(m.Status.Change.Message, "it fell back to what it ran before") || e.cordoned(name) {
			e.Fatalf("cordoned: %t: %s", e.cordoned(name), show(m))
		}
	}
}

// TestUpgradeNeedsPermission: what was permitted before an installer ran is asked again before the reboot.
func TestUpgradeNeedsPermission(t *testing.T) {
	e := found(t, 3, 0)
	boot := e.boots("cp-1")

	e.upgrade(newer)
	e.begins("cp-1")
	e.until("cp-1", "it installs", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepInstall
	})
	e.nodes["cp-2"].Kill()
	e.until("cp-1", "it waits", func(m *v1alpha1.TalosMachine) bool {
		return strings.Contains(m.Status.Change.Message, "waiting for etcd to become healthy")
	})
	e.waits("cp-1", "waiting for etcd to become healthy before disrupting")

	if e.boots("cp-1") != boot || e.nodes["cp-1"].Faults().Calls("Reboot") > 0 {
		t.Error("it has rebooted")
	}

	if err := e.nodes["cp-2"].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	m := e.until("cp-1", "it runs the newer version", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change == nil || m.Status.Change.Kind != v1alpha1.ChangeTalos
	})
	if m.Status.TalosVersion != newer || e.cordoned("cp-1") {
		t.Errorf("cordoned: %t, %s", e.cordoned("cp-1"), show(m))
	}
}

// TestUpgradeAwaitsEtcd: a control-plane machine that runs the new Talos and is ready has not finished before its etcd
// member has caught up, and has failed if that takes too long.
func TestUpgradeAwaitsEtcd(t *testing.T) {
	e := found(t, 3, 0)

	e.upgrade(newer)
	e.begins("cp-1")
	e.until("cp-1", "it reboots", in(v1alpha1.ChangeRebooting))
	e.nodes["cp-1"].LagEtcd(5000)

	m := e.until("cp-1", "it waits for etcd", func(m *v1alpha1.TalosMachine) bool {
		return strings.Contains(m.Status.Change.Message, "it waits for etcd: cp-1 has not caught up with cp-")
	})
	if !e.cordoned("cp-1") || !in(v1alpha1.ChangeSettling)(m) || m.Status.TalosVersion != newer {
		t.Errorf("cordoned: %t, %s", e.cordoned("cp-1"), show(m))
	}

	e.sleep(patience)

	m = e.until("cp-1", "the change fails", failed)
	if !strings.Contains(m.Status.Change.Message, "has not been healthy for") || len(m.Annotations) > 0 {
		t.Errorf("%s, %v", show(m), m.Annotations)
	}

	e.nodes["cp-1"].LagEtcd(0)
	e.sleep(time.Minute)
	e.until("cp-1", "it has finished", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })

	if e.cordoned("cp-1") {
		t.Error("it is still cordoned")
	}
}

// TestUpgradeWaits: a worker begins nothing before the control plane runs the version, and a path that is planned for
// another spec begins and ends nothing.
func TestUpgradeWaits(t *testing.T) {
	e := found(t, 1, 1)

	e.upgrade(newer)
	e.step(newer, false)

	if m, _, err := e.pass("w-0"); err != nil || m.Status.Change != nil {
		t.Errorf("%v, %s", err, show(m))
	}

	e.step(newer, true)

	id := e.planned("w-0").ID

	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.TalosVersion = "v1.13.11"
	})

	if m, _, err := e.pass("w-0"); err != nil || m.Status.Change == nil || m.Status.Change.ID != id {
		t.Errorf("%v, %s", err, show(m))
	}
}

// TestUpgradeWindow: an upgrade whose window closes while the installer runs reboots nothing before the next one opens, in
// which nothing is installed again.
func TestUpgradeWindow(t *testing.T) {
	e := found(t, 1, 1)
	boot := e.boots("w-0")
	from := e.Clock.Now().UTC()
	opens := func(at time.Time) {
		e.rollout(func(s *v1alpha1.TalosControlPlaneSpec) {
			s.Rollout.RebootPolicy = v1alpha1.RebootWindow
			s.Rollout.Windows = []v1alpha1.MaintenanceWindow{{
				Schedule: fmt.Sprintf("%d %d * * *", at.Minute(), at.Hour()), Duration: metav1.Duration{Duration: time.Hour},
			}}
		})
		e.step(newer, true)
	}

	e.upgrade(newer)
	opens(from)
	e.begins("w-0")
	e.until("w-0", "it installs", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepInstall
	})
	opens(from.Add(2 * time.Hour))

	e.until("w-0", "it waits for the window", in(v1alpha1.ChangeAwaitingReboot))
	e.waits("w-0", "time in which reboots are allowed")

	if n := e.nodes["w-0"].Faults().Calls("Reboot"); n > 0 || e.boots("w-0") != boot || e.cordoned("w-0") {
		t.Errorf("%d reboots, cordoned: %t", n, e.cordoned("w-0"))
	}

	e.sleep(from.Add(2*time.Hour + time.Minute).Sub(e.Clock.Now()))
	e.grant("w-0", true)

	m := e.until("w-0", "it runs the newer version", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change == nil || m.Status.Change.Kind != v1alpha1.ChangeTalos
	})
	if n := e.nodes["w-0"].Faults().Calls("Reboot"); n != 1 || m.Status.TalosVersion != newer || e.cordoned("w-0") {
		t.Errorf("%d reboots, cordoned: %t: %s", n, e.cordoned("w-0"), show(m))
	}

	// It was installed in the first window, and boots next since then.
	if n := e.nodes["w-0"].Faults().Calls("Upgrade"); n != 1 {
		t.Errorf("installed %d times", n)
	}
}

// TestUpgradeOfOne: the only control-plane machine of a cluster is upgraded, although etcd and the API are away
// meanwhile, and ends schedulable and ready.
func TestUpgradeOfOne(t *testing.T) {
	e := found(t, 1, 0)
	boot := e.boots("cp-0")

	e.upgrade(newer)
	e.begins("cp-0")
	e.until("cp-0", "its intent is recorded", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Intent != nil && m.Status.Intent.Step == v1alpha1.StepInstall && e.cordoned("cp-0")
	})

	m := e.until("cp-0", "it has succeeded", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change == nil && m.Status.Intent == nil
	})
	if m.Status.TalosVersion != newer || m.Status.WorkingSystem == "" || e.boots("cp-0") == boot {
		t.Errorf("it was not upgraded: %s", show(m))
	}

	e.condition("cp-0", v1alpha1.ConditionReady, "True", v1alpha1.ReasonReady, "")

	n, err := e.api().CoreV1().Nodes().Get(t.Context(), "cp-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if !ready || n.Spec.Unschedulable {
		t.Errorf("its Node: unschedulable %t, %+v", n.Spec.Unschedulable, n.Status.Conditions)
	}

	if n := e.nodes["cp-0"].Faults().Calls("Reboot"); n != 1 {
		t.Errorf("%d reboots", n)
	}
}

// TestNewerTalosIsLeft: a machine that runs a newer minor version than the operator knows, because a user has upgraded
// it, is observed and reported, and is neither upgraded nor rolled back to what the spec and the path name.
func TestNewerTalosIsLeft(t *testing.T) {
	e := found(t, 1, 1)

	conn, err := e.connect("w-0")
	if err == nil {
		err = conn.Install(t.Context(), installer+tooNew, func(string) {})
	}

	if err != nil {
		t.Fatal(err)
	}

	e.reboot("w-0")
	e.until("w-0", "it is observed", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.TalosVersion == tooNew && meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady)
	})

	boot, calls := e.boots("w-0"), e.mutations("w-0")
	e.upgrade(newer)

	for range 5 {
		e.sleep(time.Minute)

		if m, _, err := e.pass("w-0"); err != nil || m.Status.TalosVersion != tooNew ||
			m.Status.Change != nil && m.Status.Change.Kind == v1alpha1.ChangeTalos {
			t.Fatalf("%v: %s", err, show(m))
		}
	}

	e.condition("w-0", v1alpha1.ConditionTalosVersionUnknown, "True", v1alpha1.ReasonTalosTooNew, tooNew)

	if n := e.mutations("w-0"); n != calls || e.boots("w-0") != boot {
		t.Errorf("%d calls that change it", n-calls)
	}
}

// TestRollback: a machine that is not healthy with another Talos boots the one of before, because a user requests it or
// because the policy says so, and is not upgraded to the same again until the request is taken back.
func TestRollback(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		policy  v1alpha1.RollbackPolicy
	}{
		"w-0":  {1, v1alpha1.RollbackManual},
		"cp-1": {0, v1alpha1.RollbackAutomatic},
	} {
		t.Run(name, func(t *testing.T) {
			e := found(t, 3, c.workers)
			was := e.machine(name).Status.TalosVersion

			e.upgrade(newer + "-unhealthy")
			change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.Upgrade.Rollback = c.policy
			})
			e.step(newer, true)
			e.begins(name)

			m := e.until(name, "it settles", func(m *v1alpha1.TalosMachine) bool {
				return m.Status.Change != nil && m.Status.Change.Phase == v1alpha1.ChangeSettling
			})
			target := m.Status.Change.Target

			e.sleep(patience)
			e.until(name, "the change fails", failed)

			if c.policy == v1alpha1.RollbackManual {
				e.sleep(patience)

				if m, _, err := e.pass(name); err != nil || !failed(m) || len(m.Annotations) > 0 {
					t.Fatalf("nobody has requested anything: %v, %s", err, show(m))
				}

				change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
					m.Annotations = map[string]string{v1alpha1.RevertAnnotation: target}
				})
			}

			e.until(name, "the rollback is planned", func(m *v1alpha1.TalosMachine) bool {
				return m.Status.Change.Cause == v1alpha1.CauseRevert && m.Status.Change.Phase == v1alpha1.ChangePending
			})

			if c.workers == 0 {
				e.disrupt(name)
			}

			e.grant(name, true)

			m = e.until(name, "it is rolled back", reason(v1alpha1.ConditionUpToDate, v1alpha1.ReasonReverted))
			if n := e.nodes[name].Faults().Calls("Rollback"); m.Status.TalosVersion != was || n != 1 || e.cordoned(name) ||
				m.Annotations[v1alpha1.RevertAnnotation] != target {
				t.Errorf("%d rollbacks to %s: %s", n, was, show(m))
			}

			for range 3 {
				e.sleep(patience)

				if m, _, err := e.pass(name); err != nil || m.Status.Change != nil || m.Status.TalosVersion != was {
					t.Fatalf("it is upgraded again: %v, %s", err, show(m))
				}
			}

			change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) { m.Annotations = nil })

			if c := e.planned(name); c.Cause != v1alpha1.CauseSpec || c.Target != target {
				t.Errorf("planned: %+v", c)
			}
		})
	}
}
