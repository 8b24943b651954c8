package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// entries lists machines as name=index pairs.
func (w *world) entries(prefix string, machines ...int) []v1alpha1.MachineEntry {
	var out []v1alpha1.MachineEntry
	for _, i := range machines {
		out = append(out, v1alpha1.MachineEntry{Name: fmt.Sprintf("%s-%d", prefix, i), Address: w.address(i)})
	}

	return out
}

// withSpares makes a cluster of three and one, with a spare machine for each group.
func (w *world) withSpares(name string, remediation *v1alpha1.RemediationOptions) {
	w.t.Helper()

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://" + w.address(1) + ":6443",
			Machines: w.entries("cp", 1, 2, 3), Spares: w.entries("cp", 5), GroupPolicy: v1alpha1.GroupPolicy{Remediation: remediation},
		},
	}
	workers := &v1alpha1.TalosWorker{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name + "-workers"},
		Spec: v1alpha1.TalosWorkerSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: name},
			Machines:        w.entries("w", 4), Spares: w.entries("w", 6), GroupPolicy: v1alpha1.GroupPolicy{Remediation: remediation},
		},
	}

	for _, o := range []client.Object{cp, workers} {
		if err := w.client.Create(context.Background(), o); err != nil {
			w.t.Fatal(err)
		}
	}

	w.whole(name)
}

// whole: control plane and workers are ready.
func (w *world) whole(name string) {
	w.t.Helper()
	w.eventually(name+" is whole", func(ctx context.Context) error {
		return errors.Join(
			w.condition(&v1alpha1.TalosControlPlane{}, name, v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx),
			w.condition(&v1alpha1.TalosWorker{}, name+"-workers", v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx))
	})
}

// machinesRun: these TalosMachines exist and no others, and all are ready.
func (w *world) machinesRun(want ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &v1alpha1.TalosMachineList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		var got []string

		for _, m := range list.Items {
			state := "not ready"
			if meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) {
				state = "ready"
			}

			got = append(got, m.Name+" "+state)
		}

		slices.Sort(got)

		for _, name := range want {
			if !slices.Contains(got, name+" ready") || len(got) != len(want) {
				return fmt.Errorf("the machines are %s", strings.Join(got, ", "))
			}
		}

		return nil
	}
}

// TestRemediation: a control-plane node and a worker that never come back are replaced by spares, also when the manager
// is killed on the way; a second one that dies finds no spare and is told of; the list makes the replacement its own.
func TestRemediation(t *testing.T) {
	w := newRealWorld(t)
	for i := range 6 {
		w.boot(i + 1)
	}

	w.withSpares("kept", &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: 10 * time.Second}})

	w.reboot(1, 4)
	w.sendAgain("kept", 3)

	identity := w.identity("kept")

	if calls := w.nodes[w.address(5)].Faults().MutatingCalls(); calls > 0 {
		t.Errorf("%d mutating calls went to a spare machine", calls)
	}

	w.nodes[w.address(2)].Kill()
	w.eventually("the loss is acted upon", func(context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		w.get(cp, "kept")

		if len(cp.Status.Replacements) == 0 {
			return fmt.Errorf("%+v", meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionRemediating))
		}

		return nil
	})
	w.manager.kill()
	w.manager = w.startManager(w.plane)

	w.eventually("the spare takes its place", w.machinesRun("cp-1", "cp-3", "cp-5", "w-4"))
	w.whole("kept")
	w.etcdMembers("kept", 3)

	w.nodes[w.address(4)].Kill()
	w.eventually("the spare worker takes its place", w.machinesRun("cp-1", "cp-3", "cp-5", "w-6"))
	w.whole("kept")
	w.nodesReady("kept", 4)

	// The list says so itself now.
	change(w, &v1alpha1.TalosControlPlane{}, "kept", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines, cp.Spec.Spares = w.entries("cp", 1, 5, 3), nil
	})
	w.eventually("the replacement is the list's", func(context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		w.get(cp, "kept")

		if len(cp.Status.Replacements) > 0 || cp.Status.ObservedGeneration != cp.Generation {
			return fmt.Errorf("%+v", cp.Status.Replacements)
		}

		return nil
	})
	w.whole("kept")

	w.nodes[w.address(3)].Kill()
	w.eventually("no spare is left", w.condition(&v1alpha1.TalosControlPlane{}, "kept",
		v1alpha1.ConditionRemediating, metav1.ConditionTrue, v1alpha1.ReasonNoSpare))
	w.etcdMembers("kept", 3)

	for _, i := range []int{2, 4} {
		delete(identity.boots, w.address(i))
	}

	for _, i := range []int{3, 5, 6} {
		delete(identity.boots, w.address(i)) // dead, or new in the cluster
	}

	w.sameIdentity("kept", identity)
	w.searchSecrets("kept")
}

// TestReplaceByHand: a person has a machine replaced that works, and one that is dead before any timeout.
func TestReplaceByHand(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.boot(i + 1)
	}

	w.withSpares("swap", nil)

	w.reboot(2)
	w.sendAgain("swap", 1, 4)

	identity := w.identity("swap").without(w.address(2), w.address(4), w.address(5), w.address(6))

	w.says(1, "is reachable, so it is not gone", "replace", "cp-2", "--gone")
	w.says(0, "is to be replaced", "replace", "cp-2", "--spare", "cp-5")
	w.eventually("the spare takes its place", w.machinesRun("cp-1", "cp-3", "cp-5", "w-4"))
	w.whole("swap")
	w.etcdMembers("swap", 3)

	if s := w.nodes[w.address(2)].Status(); s.Stage != "maintenance" {
		t.Errorf("the machine that was replaced is not wiped: %+v", s)
	}

	w.nodes[w.address(4)].Kill()
	w.eventually("the worker is dead",
		w.condition(&v1alpha1.TalosMachine{}, "w-4", v1alpha1.ConditionReachable, metav1.ConditionFalse))
	w.says(1, "confirm with --gone", "replace", "w-4")
	w.says(0, "is to be replaced", "replace", "w-4", "--gone")
	w.eventually("the spare worker takes its place", w.machinesRun("cp-1", "cp-3", "cp-5", "w-6"))
	w.whole("swap")
	w.nodesReady("swap", 4)
	w.etcdMembers("swap", 3)
	w.converged("swap", identity)
}

// TestSparesOfCluster: a KubernetesCluster keeps spares. A control-plane node and a worker that never come back are
// replaced, by spares that answer and by no others; then the cluster's own lists say so, and a Machine that comes back
// into service of its provider is the next spare.
func TestSparesOfCluster(t *testing.T) {
	w := newWorld(t)
	for _, i := range []int{1, 2, 3, 5, 6, 7} { // 4 is a spare that is switched off
		w.boot(i)
	}

	manifest := clusterManifest("stocked", w.address(1), []string{w.address(1), w.address(2), w.address(3), w.address(4), w.address(5)},
		[]string{w.address(6), w.address(7)}) + "  remediation: {timeout: 10s}\n"
	manifest = strings.Replace(manifest, "    replicas: 5\n", "    replicas: 3\n    spares: 2\n", 1)
	manifest = strings.Replace(manifest, "      replicas: 2\n", "      replicas: 1\n      spares: 1\n", 1)

	w.apply(manifest)
	w.running("stocked")
	w.nodesReady("stocked", 4)

	for _, i := range []int{5, 7} {
		if calls := w.nodes[w.address(i)].Faults().MutatingCalls(); calls > 0 {
			t.Errorf("%d mutating calls went to a spare machine", calls)
		}
	}

	w.reboot(3, 6)
	w.sendAgain("stocked", 1)

	identity := w.identity("stocked").without(w.address(2), w.address(3), w.address(5), w.address(6), w.address(7))

	w.nodes[w.address(2)].Kill()
	w.nodes[w.address(6)].Kill()
	w.eventually("spares take their places",
		w.machinesRun("stocked-cp-0", "stocked-cp-2", "stocked-cp-4", "stocked-workers-1"))
	w.eventually("the lists say so", func(context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		w.get(cp, "stocked")

		if len(cp.Status.Replacements) > 0 || len(cp.Spec.Machines) != 3 || cp.Spec.Machines[2].Name != "stocked-cp-4" {
			return fmt.Errorf("%+v, %+v", cp.Status.Replacements, cp.Spec.Machines)
		}

		return nil
	})
	w.running("stocked")
	w.nodesReady("stocked", 4)
	w.etcdMembers("stocked", 3)

	// The machine that was replaced comes back with its old data. It is wiped, and takes the next place. Its Node may
	// well be ready before that is observed: a user said beforehand that this changes nothing.
	change(w, &v1alpha1.TalosControlPlane{}, "stocked", func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.WipeMachinesAnnotation, "stocked-cp-1")
	})
	w.eventually("the word is taken", func(context.Context) error {
		for _, g := range w.state("stocked").Runtime.GivenUp {
			if g.Name == "stocked-cp-1" && g.WipeApproved {
				return nil
			}
		}

		return fmt.Errorf("the state has %+v", w.state("stocked").Runtime.GivenUp)
	})

	if err := w.nodes[w.address(2)].PowerOn(t.Context()); err != nil {
		t.Fatal(err)
	}

	w.eventually("it is wiped", func(context.Context) error {
		if s := w.nodes[w.address(2)].Status(); s.Stage != "maintenance" {
			return fmt.Errorf("%+v", s)
		}

		return nil
	})

	w.nodes[w.address(3)].Kill()
	w.eventually("it is the next spare",
		w.machinesRun("stocked-cp-0", "stocked-cp-1", "stocked-cp-4", "stocked-workers-1"))
	w.running("stocked")
	w.nodesReady("stocked", 4)
	w.etcdMembers("stocked", 3)

	w.converged("stocked", identity)
}
