package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestAliveIsNotReplaced: nodes whose Talos API was shut, and which work, are not replaced, also by a manager that
// knows of them only what the one before it wrote. Once Kubernetes does not hear of one any more, it is.
func TestAliveIsNotReplaced(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.boot(i + 1)
	}

	w.withSpares("alive", &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: 10 * time.Second}})

	identity := w.identity("alive")

	for _, i := range []int{2, 4} {
		w.shutOut("alive", w.address(i))
	}

	held := func(context.Context) error {
		cp, workers := &v1alpha1.TalosControlPlane{}, &v1alpha1.TalosWorker{}
		w.get(cp, "alive")
		w.get(workers, "alive-workers")

		if n := len(cp.Status.Replacements) + len(workers.Status.Replacements); n > 0 {
			t.Fatalf("a node that works is replaced: %+v, %+v", cp.Status.Replacements, workers.Status.Replacements)
		}

		for _, check := range []func(context.Context) error{
			w.condition(cp, "alive", v1alpha1.ConditionRemediating, metav1.ConditionTrue, v1alpha1.ReasonMachineAlive),
			w.condition(workers, "alive-workers", v1alpha1.ConditionRemediating, metav1.ConditionTrue, v1alpha1.ReasonMachineAlive),
		} {
			if err := check(t.Context()); err != nil {
				return err
			}
		}

		return nil
	}

	w.eventually("both are held", held)
	w.manager.kill()
	w.manager = w.startManager(w.plane)
	w.idle(5 * time.Second)
	w.eventually("both are held by the next manager", held)
	w.nodesReady("alive", 4)

	w.nodes[w.address(4)].Kill()
	w.eventually("the worker that died is replaced", func(context.Context) error {
		workers := &v1alpha1.TalosWorker{}
		w.get(workers, "alive-workers")

		if len(workers.Status.Replacements) != 1 {
			return fmt.Errorf("%+v", workers.Status.Conditions)
		}

		return nil
	})

	if calls := w.nodes[w.address(2)].Faults().Calls("Reset") + w.nodes[w.address(5)].Faults().MutatingCalls(); calls > 0 {
		t.Errorf("%d calls reset cp-2, or changed its spare", calls)
	}

	for _, i := range []int{2, 4, 6} {
		delete(identity.boots, w.address(i)) // shut, dead, or new in the cluster
	}

	w.sameIdentity("alive", identity)
	w.searchSecrets("alive")
}

// shutOut has the firewall of a node refuse everything that comes to its Talos API.
func (w *world) shutOut(cluster, address string) {
	w.t.Helper()

	live, err := w.liveConfig(cluster, address)
	if err != nil {
		w.t.Fatal(err)
	}

	// The answer may be lost to the firewall.
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()

	_, _ = w.talos(cluster).ApplyConfiguration(talosclient.WithNode(ctx, address), &machineapi.ApplyConfigurationRequest{
		Data: append(live, "\n---\napiVersion: v1alpha1\nkind: NetworkRuleConfig\nname: shut\n"+
			"portSelector: {ports: [50000], protocol: tcp}\ningress: [{subnet: 192.0.2.0/32}]\n"...),
		Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
	})
}
