package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oddEvents is how many other events there may be: on a slow computer, something is lost for a moment.
const oddEvents = 1

// TestEvents: a creation and a change are told in as many events as a person wants to read: what was decided, what was
// sent, and what is ready. What lies in between is in the conditions.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 5; i++ {
		w.boot(i)
	}

	w.apply(clusterManifest("told", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4), w.address(5)}))
	w.running("told")
	w.eventually("nothing is left to do", w.upToDate("told"))
	w.quiet()

	machines := []string{"told-cp-0", "told-cp-1", "told-cp-2", "told-workers-0", "told-workers-1"}
	want := []string{
		"TalosControlPlane told Bootstrapping: Asked told-cp-",
		"TalosControlPlane told Available: Available is True: ",
		"TalosControlPlane told Ready: Ready is True: ",
		"TalosWorker told-workers Ready: Ready is True: ",
		"KubernetesCluster told Ready: Ready is True: ",
	}

	for _, m := range machines {
		want = append(want, "TalosMachine "+m+" Configured: Sent the machine config to ",
			"TalosMachine "+m+" Ready: Ready is True: ")
	}

	created := w.told()
	w.tellOf("the creation", created, want, nil)

	w.patchCluster("told", "machine: {nodeLabels: {shelf: seven}}")
	w.eventually("nothing is left to do", w.upToDate("told"))
	w.quiet()

	want = []string{
		"TalosControlPlane told RollingOut: Plan ", "TalosWorker told-workers RollingOut: Plan ",
		"TalosControlPlane told UpToDate: UpToDate is True: ", "TalosWorker told-workers UpToDate: UpToDate is True: ",
	}
	for _, m := range machines {
		want = append(want, "TalosMachine "+m+" RollingOut: Changed machine.nodeLabels.shelf",
			"TalosMachine "+m+" UpToDate: Runs the desired config and is healthy")
	}

	// The plan is not complete before all machines have reported their difference, and the cluster repeats the status of
	// objects that have not seen the change yet.
	w.tellOf("the change", w.told()[len(created):], want, []string{
		"TalosControlPlane told RolloutWaiting: ", "TalosWorker told-workers RolloutWaiting: ",
		"KubernetesCluster told Provisioning: Ready is False: ", "KubernetesCluster told Ready: Ready is True: ",
	})
}

// told are the events of this world in their order.
func (w *world) told() []string {
	w.t.Helper()

	list := &eventsv1.EventList{}
	if err := w.client.List(context.Background(), list, client.InNamespace(w.ns)); err != nil {
		w.t.Fatal(err)
	}

	slices.SortStableFunc(list.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })

	var lines []string
	for _, e := range list.Items {
		lines = append(lines, fmt.Sprintf("%s %s %s: %s", e.Regarding.Kind, e.Regarding.Name, e.Reason, e.Note))
	}

	return lines
}

// tellOf fails unless the events contain the wanted ones, by how they begin, and hardly any others but those that may
// be.
func (w *world) tellOf(what string, got, want, may []string) {
	w.t.Helper()
	w.t.Logf("%d events about %s:\n%s", len(got), what, strings.Join(got, "\n"))

	begins := func(line string) func(string) bool {
		return func(begin string) bool { return strings.HasPrefix(line, begin) }
	}

	for _, begin := range want {
		if !slices.ContainsFunc(got, func(line string) bool { return begins(line)(begin) }) {
			w.t.Errorf("%s is not told: %q", what, begin)
		}
	}

	var odd []string

	for _, line := range got {
		if !slices.ContainsFunc(slices.Concat(want, may), begins(line)) {
			odd = append(odd, line)
		}
	}

	if len(odd) > oddEvents {
		w.t.Errorf("nobody wants to know about %s:\n%s", what, strings.Join(odd, "\n"))
	}

	if most := len(want) + len(may) + oddEvents; len(got) > most {
		w.t.Errorf("%d events about %s, %d at most", len(got), what, most)
	}
}
