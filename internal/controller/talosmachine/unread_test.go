package talosmachine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// silentAPI is an API server that reads nothing.
type silentAPI struct{ client.Client }

func (silentAPI) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("the API server does not respond")
}

// TestOneFailedPass: a machine that was idle longer than conditions are kept elsewhere is not called unknown by the first
// pass that cannot observe it, and is so by one that comes after its resync interval.
func TestOneFailedPass(t *testing.T) {
	e := found(t, 1, 0)
	e.until("cp-0", "it is up to date", func(m *v1alpha1.TalosMachine) bool {
		c := m.Status.Conditions

		return has(c, v1alpha1.ConditionUpToDate, metav1.ConditionTrue) && has(c, v1alpha1.ConditionReachable, metav1.ConditionTrue)
	})

	e.r.States = &clusterstate.Store{Client: silentAPI{}, Reader: silentAPI{}, Clock: e.Clock}

	for _, step := range []struct {
		after time.Duration
		want  metav1.ConditionStatus
	}{{9 * time.Minute, metav1.ConditionTrue}, {3 * time.Minute, metav1.ConditionUnknown}} {
		e.sleep(step.after)

		m, _, err := e.pass("cp-0")
		if err == nil {
			t.Fatal("the pass has not failed")
		}

		for _, kind := range []string{v1alpha1.ConditionReachable, v1alpha1.ConditionUpToDate} {
			if !has(m.Status.Conditions, kind, step.want) {
				t.Errorf("%s is not %s after another %s: %s", kind, step.want, step.after, show(m))
			}
		}
	}
}

func has(conditions []metav1.Condition, kind string, status metav1.ConditionStatus) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == status
		}
	}

	return false
}
