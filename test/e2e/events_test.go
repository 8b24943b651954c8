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

// plansAnew is how many times plans may be told anew, because a machine reports its difference after others.
const plansAnew = 4

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
		"TalosControlPlane told Ready: Ready is True: ",
		"TalosWorker told-workers Ready: Ready is True: ",
		"KubernetesCluster told Ready: Ready is True: ",
	}

	for _, m := range machines {
		want = append(want, "TalosMachine "+m+" Configured: Sent the machine config to ",
			"TalosMachine "+m+" Ready: Ready is True: ")
	}

	// An API server that responds at the same time as everything is ready is not told separately.
	created := w.tellOf("the creation", 0, want, []string{"TalosControlPlane told Available: Available is True: "})

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

	// The plan is not complete before all machines have reported their difference.
	w.tellOf("the change", len(created), want, []string{
		"TalosControlPlane told RolloutWaiting: ", "TalosWorker told-workers RolloutWaiting: ",
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

// tellOf waits until the events after so many others contain the expected ones, by how they begin: an event is written
// a moment after the status. It fails if there are more than a few others but those that may be, and returns all of
// them.
func (w *world) tellOf(what string, after int, want, may []string) []string {
	w.t.Helper()

	begins := func(line string) func(string) bool {
		return func(begin string) bool { return strings.HasPrefix(line, begin) }
	}

	var got []string

	w.eventually(what+" is told", func(context.Context) error {
		got = w.told()[after:]

		for _, begin := range want {
			if !slices.ContainsFunc(got, func(line string) bool { return begins(line)(begin) }) {
				return fmt.Errorf("%q is not told", begin)
			}
		}

		return nil
	})
	w.t.Logf("%d events about %s:\n%s", len(got), what, strings.Join(got, "\n"))

	var odd []string

	for _, line := range got {
		if !slices.ContainsFunc(slices.Concat(want, may), begins(line)) {
			odd = append(odd, line)
		}
	}

	if len(odd) > oddEvents {
		w.t.Errorf("nobody wants to know about %s:\n%s", what, strings.Join(odd, "\n"))
	}

	if most := len(want) + len(may) + plansAnew; len(got) > most {
		w.t.Errorf("%d events about %s, %d at most", len(got), what, most)
	}

	return got
}
