package taloscontrolplane_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// upgrades adds an upgrade that is about to begin.
func upgrades(m *v1alpha1.TalosMachine) {
	pending(m)
	m.Status.Change.Kind = v1alpha1.ChangeTalos
}

// TestUpgradeChecks: an upgrade begins once the checks of the cluster are satisfied. Until then the plan says which one
// is not, why, and since when, without a value of the object.
func TestUpgradeChecks(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(1)

	cfg, err := e.state().Bundle.RESTConfig(e.fleet.Endpoint(), wait.Now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}

	c, err := clientset.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}

	check := func(edit func(*v1alpha1.UpgradeCheck)) {
		one := v1alpha1.UpgradeCheck{
			Name: "gate", APIVersion: "v1", Kind: "ConfigMap", Namespace: "default", ObjectName: "gate", Expression: "object.data.open == 'yes'",
		}
		edit(&one)

		cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Checks: []v1alpha1.UpgradeCheck{one}}
		e.Update(cp)
		e.show(cp, 0, upgrades)
	}
	same := func(*v1alpha1.UpgradeCheck) {}

	check(func(c *v1alpha1.UpgradeCheck) { c.Expression = "object.data.open == yes" })

	if _, err := e.pass(cp); !errors.Is(err, reconcile.TerminalError(nil)) {
		t.Errorf("an expression that does not compile: %v", err)
	}

	e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalidSpec,
		"spec.upgrade.checks[0].expression: line 1, column 21: undeclared reference to 'yes'")

	since := ""
	waits := func(why string) {
		t.Helper()

		res, err := e.pass(cp)
		p := cp.Status.Plan

		if err != nil || p == nil || p.Phase != v1alpha1.PlanWaiting || e.granted(1) != "" || p.Check == nil || p.Check.Name != "gate" {
			t.Fatalf("%s: %v, %s began, plan: %+v", why, err, e.granted(1), p)
		}

		if since == "" {
			since = p.Check.Since.UTC().Format(time.RFC3339)
		}

		if want := "check gate has not been satisfied since " + since + ": " + why; p.Message != want || res.RequeueAfter > 15*time.Second {
			t.Errorf("%q instead of %q, again in %s", p.Message, want, res.RequeueAfter)
		}

		e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutWaiting, "check gate")
		e.Clock.SetTime(e.Clock.Now().Add(time.Minute))
	}

	check(func(c *v1alpha1.UpgradeCheck) { c.Kind = "Gate" })
	waits("the cluster does not serve the kind Gate of v1")

	check(func(c *v1alpha1.UpgradeCheck) { c.APIVersion = "example.org/v1" })
	waits("the cluster does not serve the API example.org/v1")

	check(same)
	waits("there is no v1 ConfigMap default/gate")

	gate := func(data map[string]string) {
		t.Helper()

		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "gate"}, Data: data}
		e.Eventually("the gate is written", func(ctx context.Context) error {
			_, err := c.CoreV1().ConfigMaps("default").Update(ctx, m, metav1.UpdateOptions{})
			if err != nil {
				_, err = c.CoreV1().ConfigMaps("default").Create(ctx, m, metav1.CreateOptions{})
			}

			return err
		})
	}

	gate(map[string]string{"open": "a secret value"})
	waits("the expression is false (v1 ConfigMap default/gate)")

	gate(map[string]string{"shut": "yes"})
	waits("the expression cannot be evaluated: a field that it reads is missing, or a value has another type " +
		"(v1 ConfigMap default/gate)")
	e.restart()
	waits("the expression cannot be evaluated: a field that it reads is missing, or a value has another type " +
		"(v1 ConfigMap default/gate)")

	gate(map[string]string{"open": "yes"})

	if _, err := e.pass(cp); err != nil || e.granted(1) != "cp-0" || cp.Status.Plan.Check != nil {
		t.Errorf("%v, %q began, plan: %+v", err, e.granted(1), cp.Status.Plan)
	}

	if text := strings.Join(e.Told(), "\n"); strings.Contains(text, "a secret value") {
		t.Errorf("told: %s", text)
	}
}

// TestSoakOfControlPlane: the next machine begins when the soak of the one before has ended, and the control plane is
// reconciled then.
func TestSoakOfControlPlane(t *testing.T) {
	const soak = 20 * time.Second

	e := newEnv(t)
	cp, _ := e.established(3)

	cp.Spec.Rollout = &v1alpha1.RolloutOptions{SoakTime: &metav1.Duration{Duration: soak}}
	e.Update(cp)

	began := e.Clock.Now().Truncate(time.Second)
	quiet := func(m *v1alpha1.TalosMachine) { m.Status.Change.Etcd, m.Status.Change.Reboot = false, false }

	e.show(cp, 0, func(m *v1alpha1.TalosMachine) { m.Status.SoakingSince = &metav1.Time{Time: began} })
	e.show(cp, 1, func(m *v1alpha1.TalosMachine) { pending(m); quiet(m) })
	e.show(cp, 2, func(*v1alpha1.TalosMachine) {})

	for i := range 3 {
		m := e.talosMachine(i)
		for c := range m.Status.Conditions {
			m.Status.Conditions[c].LastTransitionTime = metav1.NewTime(began.Add(-time.Hour))
		}

		e.UpdateStatus(m)
	}

	res, err := e.pass(cp)
	if err != nil || e.granted(3) != "" || !strings.Contains(cp.Status.Plan.Message, "cp-0 was changed, and the next machine begins") {
		t.Fatalf("%v, %q began: %+v", err, e.granted(3), cp.Status.Plan)
	}

	if res.RequeueAfter <= 0 || res.RequeueAfter > soak+time.Second {
		t.Errorf("again in %s", res.RequeueAfter)
	}

	e.Clock.SetTime(began.Add(soak + time.Second))

	if _, err := e.pass(cp); err != nil || e.granted(3) != "cp-1" {
		t.Errorf("%v, %q began: %+v", err, e.granted(3), cp.Status.Plan)
	}
}
