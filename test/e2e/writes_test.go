package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/management"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// writesPerMachine is how many writes the creation of a cluster may cost for each of its machines: status, events,
// Secrets, everything.
const writesPerMachine = 20

// TestWritesOfThreeMachines and TestWritesOfFiveMachines: what a creation writes is bounded by the number of machines,
// not by how long they take.
func TestWritesOfThreeMachines(t *testing.T) { newWorld(t).createCounted(3) }

func TestWritesOfFiveMachines(t *testing.T) { newWorld(t).createCounted(5) }

// createCounted creates a control plane and counts what that writes. Its machines are slower than those of other tests and
// differ more in speed, so that each meets the others in another state.
func (w *world) createCounted(machines int) {
	var list []string

	for i := 1; i <= machines; i++ {
		w.boot(i, func(o *node.Options) { o.Scale = 0.05 * float64(i) })
		list = append(list, fmt.Sprintf("{name: m-%d, address: %s}", i, w.address(i)))
	}

	since := wait.Now()

	w.apply(fmt.Sprintf(`
apiVersion: talos-operator.io/v1alpha1
kind: TalosControlPlane
metadata: {name: counted}
spec:
  talosVersion: v1.13.9
  kubernetesVersion: v1.36.2
  endpoint: https://%s:6443
  machines: [%s]
`, w.address(1), strings.Join(list, ", ")))

	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionUpToDate} {
		w.eventually("the control plane is "+kind,
			w.condition(&v1alpha1.TalosControlPlane{}, "counted", kind, metav1.ConditionTrue))
	}

	w.quiet()

	writes, err := w.writes(since)
	if err != nil {
		w.t.Fatal(err)
	}

	w.t.Logf("%d writes for %d machines:\n%s\nevents:\n%s", len(writes), machines, tally(writes), w.events())

	if most := writesPerMachine * machines; len(writes) > most {
		w.t.Errorf("%d writes for %d machines, %d at most", len(writes), machines, most)
	}
}

// tally counts writes by what was done to which kind, most first.
func tally(writes []management.Write) string {
	counts := map[string]int{}
	for _, w := range writes {
		counts[w.Verb+" "+w.Resource]++
	}

	lines := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], strings.Compare(a, b))
	})
	for i, l := range lines {
		lines[i] = fmt.Sprintf("%4d %s", counts[l], l)
	}

	return strings.Join(lines, "\n")
}

// events are the lines of what the operator told.
func (w *world) events() string {
	w.t.Helper()

	list := &eventsv1.EventList{}
	if err := w.client.List(context.Background(), list); err != nil {
		w.t.Fatal(err)
	}

	slices.SortFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })

	var lines []string
	for _, e := range list.Items {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.EventTime.Format("05.000"), e.Regarding.Name, e.Reason, e.Note))
	}

	return strings.Join(lines, "\n")
}
