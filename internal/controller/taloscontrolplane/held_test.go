package taloscontrolplane_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

func (e *env) mode(cp *v1alpha1.TalosControlPlane, mode string) {
	e.Helper()

	metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.ReconcileModeAnnotation, mode)

	e.Update(cp)
}

// TestDryRun: a due bootstrap is reported and not requested; the nodes are queried, and only the status is written. An
// unknown mode is a dry run that reports itself as such.
func TestDryRun(t *testing.T) {
	for mode, reason := range map[string]string{
		"DryRun": v1alpha1.ReasonDryRun, "disabled": v1alpha1.ReasonInvalidReconcileMode,
	} {
		t.Run(mode, func(t *testing.T) {
			e := newEnv(t)
			cp, nodes := e.found(1)
			mutations := nodes[0].Faults().MutatingCalls()

			e.mode(cp, mode)

			since := wait.Now()

			for range 3 {
				if _, err := e.pass(cp); err != nil {
					t.Error(err)
				}
			}

			e.Condition(cp, v1alpha1.ConditionPaused, metav1.ConditionTrue, reason, "DryRun")
			e.Condition(cp, v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonReachable, "")
			e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonBootstrapping, "")

			if got := nodes[0].Faults().MutatingCalls(); got != mutations {
				t.Errorf("%d mutating calls", got-mutations)
			}

			for _, w := range e.Writes(since) {
				if w.Resource != "taloscontrolplanes/status" {
					t.Errorf("wrote %s", w)
				}
			}

			// The evidence stays up to date: a dead node is reported.
			nodes[0].Kill()
			e.until(cp, "the dead node shows", func() bool {
				return meta.IsStatusConditionFalse(cp.Status.Conditions, v1alpha1.ConditionReachable)
			})
		})
	}
}

// TestDryRunMakesNothing: a dry run creates no PKI, no machine, and no finalizer.
func TestDryRunMakesNothing(t *testing.T) {
	e := newEnv(t)
	cp := e.create(1, func(cp *v1alpha1.TalosControlPlane) {
		cp.Annotations = map[string]string{v1alpha1.ReconcileModeAnnotation: "DryRun"}
	})

	if _, err := e.pass(cp); err != nil {
		t.Error(err)
	}

	for _, w := range e.Writes(time.Time{}) {
		if w.Resource != "taloscontrolplanes/status" {
			t.Errorf("wrote %s", w)
		}
	}

	if len(cp.Finalizers) != 0 || cp.Status.SecretBundle != nil {
		t.Errorf("finalizers %v, bundle %v", cp.Finalizers, cp.Status.SecretBundle)
	}

	e.mode(cp, "Reconcile")

	if _, err := e.pass(cp); err != nil || cp.Status.SecretBundle == nil {
		t.Errorf("released: %v, %+v", err, cp.Status)
	}
}

// TestDisabled: one write reports the mode, and then there is no call, no write, and no status update.
func TestDisabled(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)
	before := harness.Calls("", nodes...)
	conditions := len(cp.Status.Conditions)

	e.mode(cp, "Disabled")

	since := wait.Now()
	status := cp.Status.DeepCopy()

	for range 3 {
		if res, err := e.pass(cp); err != nil || !res.IsZero() {
			t.Errorf("%+v, %v", res, err)
		}

		nodes[0].Kill()
	}

	e.Condition(cp, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDisabled, "Disabled")

	if w := e.Writes(since); len(w) != 1 || w[0].Resource != "taloscontrolplanes/status" {
		t.Errorf("writes: %v", w)
	}

	meta.RemoveStatusCondition(&cp.Status.Conditions, v1alpha1.ConditionPaused)

	if diff := cmp.Diff(*status, cp.Status); diff != "" || len(cp.Status.Conditions) != conditions {
		t.Errorf("the status was written (-before +after):\n%s", diff)
	}

	if got := harness.Calls("", nodes...); got != before {
		t.Errorf("%d calls", got-before)
	}
}
