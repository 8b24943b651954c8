package e2e

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
)

// recordVersions records the images of Kubernetes and the installers of Talos that machines are sent from now on, in
// one order. Machines before Talos 1.13 get an installer by the call that reboots, too.
func (w *world) recordVersions(controlPlane []int, workers ...int) *componentSteps {
	r := w.recordComponents(controlPlane, workers...)

	for _, i := range slices.Concat(controlPlane, workers) {
		w.t.Cleanup(w.nodes[w.address(i)].Faults().Subscribe(func(c apid.Call) {
			req, ok := c.Request.(*machineapi.UpgradeRequest)
			if !ok {
				return
			}

			r.mu.Lock()
			defer r.mu.Unlock()

			_, version, _ := strings.Cut(path.Base(req.GetImage()), ":")
			step := fmt.Sprintf("Talos %s %d", version, i)

			// A node that refuses for a moment is asked again.
			if len(r.steps) == 0 || r.steps[len(r.steps)-1] != step {
				r.steps = append(r.steps, step)
			}
		}))
	}

	return r
}

// path returns the versions that were sent, in their order, each of them once for all components and machines that got
// it without another version in between.
func (r *componentSteps) path() []string {
	r.mu.Lock()
	defer r.mu.Unlock()

	var out []string

	for _, step := range r.steps {
		parts := strings.Fields(step)
		if parts[0] != "Talos" {
			parts[0] = "Kubernetes"
		}

		out = append(out, parts[0]+" "+parts[1])
	}

	return slices.Compact(out)
}

// TestUpgradeByManyMinors: one change of the spec, to versions that are two minors of Talos and two of Kubernetes away.
// No Talos on the way may be installed before Kubernetes has moved, so the planner has them take turns. Each machine is
// brought to each version once, in that order, boots once for each Talos, and keeps its member of etcd; each version
// has a record, and no record begins before the one of the version before has ended.
func TestUpgradeByManyMinors(t *testing.T) {
	const (
		cluster = "far"
		talos   = "v1.11.6"
		first   = "v1.29.1"
	)

	w := newWorld(t)
	for i := 1; i <= 2; i++ {
		w.boot(i, func(o *node.Options) { o.TalosVersion = talos })
	}

	w.apply(strings.NewReplacer("v1.36.2", first, "v1.13.9", talos).Replace(
		clusterManifest(cluster, w.address(1), []string{w.address(1)}, []string{w.address(2)})))
	w.running(cluster)
	w.eventually("nothing is left to do", w.upToDate(cluster))

	before, members := w.bootCounts(1, 2), w.members()
	steps := w.recordVersions([]int{1}, 2)
	w.sendAgain(cluster, 1, 2)

	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.TalosVersion, k.Spec.KubernetesVersion = "v1.13.9", "v1.31.5"
		k.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Kubernetes: v1alpha1.UpgradeAutomatic}
	})

	runs := []client.Object{
		&v1alpha1.KubernetesUpgrade{}, &v1alpha1.TalosUpgrade{}, &v1alpha1.KubernetesUpgrade{}, &v1alpha1.TalosUpgrade{},
	}
	w.recorded(cluster+"-kubernetes-1", runs[0], first, "v1.30.14")
	w.recorded(cluster+"-talos-1", runs[1], talos, "v1.12.12")
	w.recorded(cluster+"-kubernetes-2", runs[2], "v1.30.14", "v1.31.5")
	w.recorded(cluster+"-talos-2", runs[3], "v1.12.12", "v1.13.9")
	w.eventually("everything runs Talos v1.13.9", w.runsTalos(cluster, "v1.13.9", 2))
	w.eventually("everything runs Kubernetes v1.31.5", w.runsKubernetes(cluster, "v1.31.5"))

	want := []string{"Kubernetes v1.30.14", "Talos v1.12.12", "Kubernetes v1.31.5", "Talos v1.13.9"}
	if got := steps.path(); !slices.Equal(got, want) {
		t.Errorf("machines were sent %v, want %v: %v", got, want, steps.steps)
	}

	steps.once(t, "v1.30.14", "v1.12.12", "v1.31.5", "v1.13.9")
	steps.inOrder(t, "v1.30.14", componentOrder...)
	steps.inOrder(t, "v1.31.5", componentOrder...)

	for i, n := range w.bootCounts(1, 2) {
		if n-before[i] != 2 {
			t.Errorf("machine %d has booted %d times, want twice", i, n-before[i])
		}
	}

	w.sameMembers(members)
	w.oneAfterAnother(runs, 2, 2)
	w.idle(5 * time.Second)
}

// oneAfterAnother: these records are all that exist, and each begins once the one before has ended.
func (w *world) oneAfterAnother(runs []client.Object, talos, kubernetes int) {
	w.t.Helper()

	times := func(o client.Object) (begin, end *metav1.Time) {
		switch o := o.(type) {
		case *v1alpha1.TalosUpgrade:
			return o.Status.StartTime, o.Status.CompletionTime
		case *v1alpha1.KubernetesUpgrade:
			return o.Status.StartTime, o.Status.CompletionTime
		}

		return nil, nil
	}

	for i := 1; i < len(runs); i++ {
		_, ended := times(runs[i-1])

		if begun, _ := times(runs[i]); begun == nil || ended == nil || begun.Before(ended) {
			w.t.Errorf("%s has begun at %v, and %s has ended at %v", runs[i].GetName(), begun, runs[i-1].GetName(), ended)
		}
	}

	first, second := &v1alpha1.TalosUpgradeList{}, &v1alpha1.KubernetesUpgradeList{}
	for _, list := range []client.ObjectList{first, second} {
		if err := w.client.List(w.t.Context(), list); err != nil {
			w.t.Fatal(err)
		}
	}

	if len(first.Items) != talos || len(second.Items) != kubernetes {
		w.t.Errorf("%d records of Talos and %d of Kubernetes, want %d and %d", len(first.Items), len(second.Items), talos, kubernetes)
	}
}
