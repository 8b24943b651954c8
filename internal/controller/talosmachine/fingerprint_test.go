package talosmachine_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// otherFingerprint belongs to no certificate.
const otherFingerprint = "pnduMqbUZ/sQyDW1o4kP6c1u1PoB2gRQu8KEV38guAM="

// expect sets the expected certificate of a machine in maintenance mode in the spec.
func (e *env) expect(name, fingerprint string) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		m.Spec.MaintenanceFingerprint = fingerprint
	})
}

func (e *env) applied(name string) int { return e.nodes[name].Faults().Calls("ApplyConfiguration") }

// TestFingerprint: nothing is sent to a machine in maintenance mode that presents another certificate than the spec
// names, and the message names the one that it presents; once the spec names that one, the machine is configured. A
// machine that presents the expected certificate from the beginning is configured immediately, and later changes of the
// field have no effect on it.
func TestFingerprint(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group})

	right := map[string]string{}
	for name := range e.nodes {
		right[name] = e.console(name)
	}

	for _, bad := range []string{"none", strings.TrimSuffix(otherFingerprint, "="), strings.Repeat("A", 43) + "B="} {
		m := e.machine("cp-0")
		m.Spec.MaintenanceFingerprint = bad

		if err := e.Admin.Update(e.Context(), m); !apierrors.IsInvalid(err) {
			t.Errorf("the API server takes %q for a fingerprint: %v", bad, err)
		}
	}

	e.expect("cp-0", otherFingerprint)
	e.expect("w-0", right["w-0"])

	const mismatch = v1alpha1.ReasonMaintenanceCertificateMismatch

	m := e.until("cp-0", "the other certificate is refused", reason(v1alpha1.ConditionReady, mismatch))

	for _, part := range []string{"cp-0 at ", "shows the certificate fingerprint " + right["cp-0"], "is " + otherFingerprint} {
		e.condition("cp-0", v1alpha1.ConditionReachable, metav1.ConditionFalse, mismatch, part)
	}

	if m.Status.MaintenanceFingerprint != right["cp-0"] {
		t.Errorf("the status shows %q, and the machine %q", m.Status.MaintenanceFingerprint, right["cp-0"])
	}

	e.until("w-0", "the right certificate is accepted", func(*v1alpha1.TalosMachine) bool { return e.applied("w-0") == 1 })

	for range 3 {
		e.sleep(time.Hour)

		if _, res, err := e.pass("cp-0"); err != nil || res.RequeueAfter < time.Minute {
			t.Errorf("retrying after %s, error %v", res.RequeueAfter, err)
		}
	}

	if got := e.nodes["cp-0"].Faults().Calls("ApplyConfiguration"); got != 0 || len(e.state().Runtime.Machines) != 1 {
		t.Fatalf("%d configs were sent; the state has %v", got, e.state().Runtime.Machines)
	}

	e.expect("cp-0", right["cp-0"])
	e.until("cp-0", "the corrected field lets it have its config", func(*v1alpha1.TalosMachine) bool {
		return e.applied("cp-0") == 1
	})

	e.expect("cp-0", otherFingerprint)
	e.bootstrap("cp-0")

	m = e.until("cp-0", "it runs, whatever the field says", ready)
	if m.Status.MaintenanceFingerprint != "" {
		t.Errorf("a configured machine shows %q", m.Status.MaintenanceFingerprint)
	}
}

// console waits for a machine in maintenance mode and returns the fingerprint on its console.
func (e *env) console(name string) (fingerprint string) {
	e.Helper()
	e.Eventually(name+" is in maintenance mode", func(context.Context) error {
		s := e.nodes[name].Status()
		fingerprint = s.MaintenanceFingerprint

		return wait.True(s.Stage == "maintenance" && fingerprint != "")
	})

	return fingerprint
}

// TestFingerprintOfReturn: a machine that lost its disk comes back with another certificate than at its first boot. The
// old expectation only blocks its configuration.
func TestFingerprintOfReturn(t *testing.T) {
	e := found(t, 1, 1)
	e.expect("w-0", otherFingerprint)
	e.until("w-0", "the field makes no difference", ready)

	e.nodes["w-0"].Kill()

	if err := e.nodes["w-0"].WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := e.nodes["w-0"].PowerOn(e.Context()); err != nil {
		t.Fatal(err)
	}

	before := e.applied("w-0")
	m := e.until("w-0", "the other certificate is refused",
		reason(v1alpha1.ConditionReady, v1alpha1.ReasonMaintenanceCertificateMismatch))

	if e.applied("w-0") != before || !strings.Contains(show(m), m.Status.MaintenanceFingerprint) {
		t.Errorf("%d configs, status %s", e.applied("w-0")-before, show(m))
	}

	e.expect("w-0", "")
	e.until("w-0", "without the field it gets its config", ready)
}
