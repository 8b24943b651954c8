package taloscontrolplane_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestDeletedDuringReboot: a machine whose object is deleted during its reboot, and created again, may still be away. No
// second node is disrupted for ten minutes from then, however long the drain had taken before.
func TestDeletedDuringReboot(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.established(3)

	for i := range 3 {
		e.show(cp, i, pending)
	}

	e.step(cp)
	e.show(cp, 1, in(v1alpha1.ChangeDraining))

	if d := e.disruption(); d.Machine != "cp-1" || d.Act != string(safety.ActReboot) || e.granted(3) != "cp-1" {
		t.Fatalf("recorded is %+v, and %q may begin", d, e.granted(3))
	}

	e.record(func(s *clusterstate.State) { s.Runtime.Disruption.Since = e.Clock.Now().Add(-time.Hour) })
	e.Delete(e.talosMachine(1))

	// The first reconciliations release the object, create another one, and notice that.
	for range 3 {
		e.step(cp)
	}

	e.show(cp, 1, func(*v1alpha1.TalosMachine) {})

	for _, later := range []time.Duration{0, 9 * time.Minute, 59 * time.Second} {
		e.Clock.Sleep(later)
		e.restart()
		e.step(cp)

		if d := e.disruption(); d.Machine != "cp-1" || d.MissingSince == nil || e.granted(3) != "" {
			t.Fatalf("recorded is %+v, and %q may begin", d, e.granted(3))
		}
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonRolloutWaiting,
		"cp-1 was deleted while it was being rebooted, and may still be away")

	e.Clock.Sleep(time.Second)
	e.until(cp, "the next node begins", func() bool { return e.granted(3) == "cp-2" })
}
