package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestReconcileModes: in a dry run the operator sees a wiped machine and a change of the spec, and writes only status;
// disabled it does not even see that a node is gone; then it does everything at once.
func TestReconcileModes(t *testing.T) {
	w := newWorld(t)
	w.boot(1)
	worker := w.boot(2)

	w.apply(clusterManifest("mode", w.address(1), []string{w.address(1)}, []string{w.address(2)}))
	w.running("mode")
	w.quiet()

	cp, m := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosMachine{}
	name, since := "mode-workers-0", wait.Now()
	calls := w.mutatingCalls()

	w.annotate("mode", v1alpha1.ReconcileModeAnnotation, "DryRun")

	for object, named := range map[string]func(context.Context) error{
		"cluster": w.condition(&vitistackv1alpha1.KubernetesCluster{}, "mode", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
		"plane":   w.condition(cp, "mode", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
		"group":   w.condition(&v1alpha1.TalosWorker{}, "mode-workers", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
		"machine": w.condition(m, name, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
	} {
		w.eventually("the mode reaches the "+object, named)
	}

	w.scale("mode", 1, 0)

	if err := worker.WipeDisk(); err != nil {
		t.Fatal(err)
	}

	if err := worker.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.eventually("the wiped machine shows", w.condition(m, name, v1alpha1.ConditionConfigured,
		metav1.ConditionFalse, v1alpha1.ReasonMaintenance))
	w.onlyStatus(since)

	w.annotate("mode", v1alpha1.ReconcileModeAnnotation, "Disabled")
	w.eventually("the mode reaches the machine",
		w.condition(m, name, v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDisabled))
	w.eventually("the mode reaches the control plane",
		w.condition(cp, "mode", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDisabled))
	w.eventually("the mode reaches the cluster", w.condition(&vitistackv1alpha1.KubernetesCluster{}, "mode",
		v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDisabled))
	w.eventually("the mode reaches the group", w.condition(&v1alpha1.TalosWorker{}, "mode-workers",
		v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDisabled))
	w.quiet()

	off := wait.Now()

	worker.Kill()
	wait.Stays(t, "nothing is written", 8*time.Second, func(context.Context) error {
		writes, err := w.writes(off)
		if err == nil && len(writes) > 0 {
			err = fmt.Errorf("the operator wrote %v", writes)
		}

		return err
	})

	if now := w.mutatingCalls(); now != calls {
		t.Errorf("%d mutating calls", now-calls)
	}

	if err := worker.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.annotate("mode", v1alpha1.ReconcileModeAnnotation, "Reconcile")
	w.eventually("the worker leaves", w.gone(m, name))
	w.running("mode")
}

// onlyStatus: since then the operator wrote status and events, and nothing else.
func (w *world) onlyStatus(since time.Time) {
	w.t.Helper()

	writes, err := w.writes(since)
	if err != nil {
		w.t.Fatal(err)
	}

	for _, write := range writes {
		if !strings.HasSuffix(write.Resource, "/status") && write.Resource != "events" {
			w.t.Errorf("the operator wrote %s", write)
		}
	}
}

// would checks what a dry run says that it would do.
func (w *world) would(o client.Object, name string, parts ...string) {
	w.t.Helper()
	w.eventually(name+" says what it would do", func(ctx context.Context) error {
		if err := w.condition(o, name, v1alpha1.ConditionWouldChange, metav1.ConditionTrue, v1alpha1.ReasonDryRun)(ctx); err != nil {
			return err
		}

		message := meta.FindStatusCondition(harness.Conditions(o), v1alpha1.ConditionWouldChange).Message
		for _, part := range parts {
			if !strings.Contains(message, part) {
				return fmt.Errorf("%s says %q, and not %q", name, message, part)
			}
		}

		return nil
	})
}

// TestDryRunOfAWholeLife: a cluster in a dry run is not made, changed, scaled or deleted: no node gets a call that
// changes anything, no other object is written, and the status says all the time what would be done.
func TestDryRunOfAWholeLife(t *testing.T) {
	w := newWorld(t)
	w.boot(1)
	w.boot(2)

	born := wait.Now()
	c, cp, group, m := &vitistackv1alpha1.KubernetesCluster{}, &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}, &v1alpha1.TalosMachine{}
	manifest := clusterManifest("rehearsed", w.address(1), []string{w.address(1)}, []string{w.address(2)}) + "  deletionPolicy: Reset\n"

	w.apply(strings.Replace(manifest, "  name: rehearsed\n", "  name: rehearsed\n  annotations: {talos-operator.io/reconcile-mode: DryRun}\n", 1))
	w.would(c, "rehearsed", "create the Machines rehearsed-cp-0, rehearsed-workers-0", "create the TalosControlPlane rehearsed",
		"create the TalosWorkers rehearsed-workers")
	w.onlyStatus(born)

	if calls := w.mutatingCalls(); calls > 0 {
		t.Errorf("%d mutating calls before there was a cluster", calls)
	}

	w.annotate("rehearsed", v1alpha1.ReconcileModeAnnotation, "Reconcile")
	w.running("rehearsed")
	w.quiet()

	if err := w.condition(c, "rehearsed", v1alpha1.ConditionWouldChange, metav1.ConditionTrue)(t.Context()); err == nil {
		t.Error("the cluster still says what it would do")
	}

	calls, boots := w.mutatingCalls(), w.boots()

	w.annotate("rehearsed", v1alpha1.ReconcileModeAnnotation, "DryRun")

	for object, held := range map[string]func(context.Context) error{
		"plane":   w.condition(cp, "rehearsed", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
		"group":   w.condition(group, "rehearsed-workers", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
		"machine": w.condition(m, "rehearsed-cp-0", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
		"worker":  w.condition(m, "rehearsed-workers-0", v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonDryRun),
	} {
		w.eventually("the mode reaches the "+object, held)
	}

	since := wait.Now()

	// A change, by the cluster and by hand below it.
	change(w, c, "rehearsed", func(c *vitistackv1alpha1.KubernetesCluster) {
		c.Spec.Workers[0].Replicas, c.Spec.Drift = 0, v1alpha1.DriftEnforce
	})
	w.would(c, "rehearsed", "take out the Machines rehearsed-workers-0", "change the TalosControlPlane rehearsed",
		"change the TalosWorkers rehearsed-workers")
	change(w, cp, "rehearsed", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.ClusterConfigPatches = []string{"machine: {env: {SHELF: seven}}"}
	})
	w.eventually("the machine says what would change", func(context.Context) error {
		if change := w.machine("rehearsed-cp-0").Status.Change; change == nil || !change.Reboot {
			return fmt.Errorf("%+v", change)
		}

		return nil
	})
	change(w, group, "rehearsed-workers", func(g *v1alpha1.TalosWorker) { g.Spec.Machines = nil })
	w.would(group, "rehearsed-workers", "take out the TalosMachines rehearsed-workers-0")

	// The end of it, with a policy that wipes.
	for _, o := range []client.Object{group, c} {
		if err := w.client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}

	w.would(c, "rehearsed", "delete the cluster and wipe its nodes")
	w.would(group, "rehearsed-workers", "delete the TalosMachines rehearsed-workers-0")
	w.onlyStatus(since)

	if now := w.mutatingCalls(); now != calls {
		t.Errorf("%d mutating calls", now-calls)
	}

	if rebooted := w.rebooted(boots); len(rebooted) > 0 {
		t.Errorf("%v rebooted", rebooted)
	}
}
