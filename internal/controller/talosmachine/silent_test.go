package talosmachine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestSilentMachine: an unreachable machine occupies no worker: its stream queries it, and a reconciliation uses the
// result. Before the result is known, no new claims are made.
func TestSilentMachine(t *testing.T) {
	e := found(t, 1, 0)
	m := e.machine("cp-0")

	e.nodes["cp-0"].Partition(true)
	e.restart()
	e.r.Pass = 10 * time.Second

	_, res, err := e.pass("cp-0")
	if err != nil || res.RequeueAfter == 0 || res.RequeueAfter > e.r.Pass {
		t.Errorf("the first pass ended with %v, %v", res, err)
	}

	e.condition("cp-0", v1alpha1.ConditionReachable, metav1.ConditionTrue, v1alpha1.ReasonReachable, "")
	wait.For(t, "the stream knows", func(context.Context) error {
		return wait.True(e.r.Watcher.Silent(client.ObjectKeyFromObject(m).String()))
	})

	// Querying the machine takes three seconds.
	wait.For(t, "a pass that asks nothing", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()

		if _, err := e.r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(m)}); err != nil {
			return err
		}

		return ctx.Err()
	})
	e.condition("cp-0", v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable, "is "+
		"unreachable")

	e.nodes["cp-0"].Partition(false)
	e.until("cp-0", "it is noticed that it is back", func(m *v1alpha1.TalosMachine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReachable)
	})
}

// TestHangingMachine: the time limit of a reconciliation expires before the machine has reported its state, and the
// status says so.
func TestHangingMachine(t *testing.T) {
	e := found(t, 1, 0)
	m := e.machine("cp-0")
	key := client.ObjectKeyFromObject(m)

	e.nodes["cp-0"].Faults().Slow("Get", time.Hour)
	e.r.Pass = time.Second

	// Reading its state may take eight seconds.
	wait.For(t, "a pass of a second", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()

		if _, err := e.r.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err == nil {
			return fmt.Errorf("it shows its state")
		}

		return ctx.Err()
	})
	e.condition("cp-0", v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable, "did not respond")
}
