package talosmachine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// upgradeChecked upgrades a worker with a check of a ConfigMap, until the machine waits for that.
func (e *env) upgradeChecked(edit func(*v1alpha1.TalosControlPlaneSpec)) *v1alpha1.TalosMachine {
	e.Helper()
	e.upgrade(newer)
	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Upgrade.Checks = []v1alpha1.UpgradeCheck{{
			Name: "gate", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", ObjectName: "gate",
			Expression: "object.data.open == 'yes'",
		}}
		edit(&cp.Spec)
	})
	e.step(newer, true)
	e.begins("w-0")

	return e.until("w-0", "it waits for the check", func(m *v1alpha1.TalosMachine) bool {
		return in(v1alpha1.ChangeSettling)(m) && m.Status.TalosVersion == newer &&
			m.Status.Change.Message == "it waits for check gate: there is no v1 ConfigMap default/gate"
	})
}

// TestCheckOfUpgrade: a machine is healthy with the new version once the checks are satisfied. Then it soaks, which is
// forgotten once it is over.
func TestCheckOfUpgrade(t *testing.T) {
	const soak = time.Hour

	e := found(t, 1, 1)
	e.upgradeChecked(func(spec *v1alpha1.TalosControlPlaneSpec) {
		spec.Rollout.SoakTime = &metav1.Duration{Duration: soak}
	})

	gate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gate"}, Data: map[string]string{"open": "yes"}}
	e.Eventually("the gate is open", func(ctx context.Context) error {
		_, err := e.api().CoreV1().ConfigMaps("default").Create(ctx, gate, metav1.CreateOptions{})

		return err
	})

	if m, _, err := e.pass("w-0"); err != nil || m.Status.Change == nil {
		t.Errorf("what was found a moment ago is read again: %v, %s", err, show(m))
	}

	e.sleep(5 * time.Second)

	m := e.until("w-0", "it is upgraded", func(m *v1alpha1.TalosMachine) bool { return m.Status.Change == nil })
	if since := m.Status.SoakingSince; since == nil || !since.Time.Equal(e.Clock.Now().Truncate(time.Second)) {
		t.Fatalf("it soaks since %v, and it is %s", since, e.Clock.Now())
	}

	_, res, err := e.pass("w-0")
	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > 10*time.Minute {
		t.Errorf("again in %s (%v)", res.RequeueAfter, err)
	}

	e.sleep(soak - time.Minute)

	if m, res, err := e.pass("w-0"); err != nil || m.Status.SoakingSince == nil || res.RequeueAfter > time.Minute+15*time.Second {
		t.Errorf("%v, again in %s: %s", err, res.RequeueAfter, show(m))
	}

	e.sleep(time.Minute + 12*time.Second)
	e.until("w-0", "the soak is over", func(m *v1alpha1.TalosMachine) bool { return m.Status.SoakingSince == nil })
}

// TestCheckFails: a machine whose checks are not satisfied in time is not healthy with the new version: its upgrade
// fails. It is rolled back if the policy says so and a check is false, which waits for no check; missing evidence is no
// reason to reboot a machine. A check that is false only later has to stay so for healthTimeout.
func TestCheckFails(t *testing.T) {
	e := found(t, 1, 1)
	was := e.machine("w-0").Status.TalosVersion

	e.upgradeChecked(func(spec *v1alpha1.TalosControlPlaneSpec) { spec.Upgrade.Rollback = v1alpha1.RollbackAutomatic })
	e.sleep(patience)

	m := e.until("w-0", "the change fails", failed)
	if !strings.Contains(m.Status.Change.Message, "it waits for check gate: there is no v1 ConfigMap default/gate") {
		t.Error(m.Status.Change.Message)
	}

	e.sleep(time.Minute)

	if m, _, err := e.pass("w-0"); err != nil || !failed(m) || m.Annotations[v1alpha1.RevertAnnotation] != "" {
		t.Errorf("it is rolled back without evidence: %v, %s", err, show(m))
	}

	gate := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gate"}, Data: map[string]string{"open": "no"}}
	e.Eventually("the gate is shut", func(ctx context.Context) error {
		_, err := e.api().CoreV1().ConfigMaps("default").Create(ctx, gate, metav1.CreateOptions{})

		return err
	})
	e.sleep(time.Minute)

	if m, _, err := e.pass("w-0"); err != nil || !failed(m) || m.Annotations[v1alpha1.RevertAnnotation] != "" {
		t.Errorf("it is rolled back because a check is false for a moment: %v, %s", err, show(m))
	}

	e.sleep(patience)

	e.until("w-0", "the rollback is planned", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Change.Cause == v1alpha1.CauseRevert && m.Status.Change.Phase == v1alpha1.ChangePending
	})
	e.grant("w-0", true)

	if m := e.until("w-0", "it is rolled back", reason(v1alpha1.ConditionUpToDate, v1alpha1.ReasonReverted)); m.Status.TalosVersion != was {
		t.Error(show(m))
	}
}
