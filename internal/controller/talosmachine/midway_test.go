package talosmachine_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestPausedMidway: a machine that is paused while it installs, or before it has rebooted, is left as it is, also by an
// operator that starts anew. It goes on once it is resumed.
func TestPausedMidway(t *testing.T) {
	for name, step := range map[string]string{"installing": v1alpha1.StepInstall, "installed": v1alpha1.StepReboot} {
		t.Run(name, func(t *testing.T) {
			e := found(t, 1, 1)
			boot := e.boots("w-0")
			halfway := func(m *v1alpha1.TalosMachine) bool {
				return m.Status.Intent != nil && m.Status.Intent.Step == step
			}

			e.upgrade(newer)
			e.begins("w-0")
			e.nodes["w-0"].Faults().Fail("Reboot", codes.Unavailable, 1, 0)
			e.until("w-0", "it is half-way", halfway)
			e.annotate("w-0", v1alpha1.PausedAnnotation, "true")
			e.nodes["w-0"].Faults().Clear()
			e.pass("w-0")
			e.restart()

			calls := e.mutations("w-0")

			for range 4 {
				e.sleep(patience / 5)

				if m, _, err := e.pass("w-0"); err != nil || !halfway(m) || !e.cordoned("w-0") {
					t.Fatalf("%v, cordoned: %t, %s", err, e.cordoned("w-0"), show(m))
				}
			}

			if got := e.mutations("w-0"); got != calls || e.boots("w-0") != boot {
				t.Errorf("%d calls while it was paused", got-calls)
			}

			change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) { m.Annotations = nil })

			m := e.until("w-0", "it runs the newer version", noChange)
			if m.Status.TalosVersion != newer || e.cordoned("w-0") || e.boots("w-0") == boot {
				t.Errorf("cordoned: %t, %s", e.cordoned("w-0"), show(m))
			}
		})
	}
}

// TestRegistryWithPort: a schematic from a registry with a port is an upgrade like any other.
func TestRegistryWithPort(t *testing.T) {
	id := strings.Repeat("a", 64)
	image := "registry.internal:5000/installer/" + id + ":" + newer

	e := found(t, 1, 1)
	e.follow(newer, image)

	m := e.follows("w-0", "it runs the schematic", func(m *v1alpha1.TalosMachine) bool {
		if m.Status.TalosVersion == newer {
			e.arrived()
		}

		return m.Status.TalosVersion == newer && m.Status.Change == nil
	})
	if m.Status.Image == nil || m.Status.Image.Schematic != id || e.cordoned("w-0") || !e.runs("w-0", image) ||
		e.nodes["w-0"].Faults().Calls("Reboot") != 1 {
		t.Errorf("it runs %+v: %s", m.Status.Image, show(m))
	}
}

// TestKubeletFails: a kubelet that does not run with another version fails the change of its machine, which names it
// and says what to do. A machine without a grant keeps what it has.
func TestKubeletFails(t *testing.T) {
	const next = "v1.36.3-crashing"

	e := found(t, 1, 2)
	other := e.mutations("w-1")

	e.kubelet(next)
	e.planned("w-0")
	e.planned("w-1")
	e.grant("w-0", false)
	e.until("w-0", "the kubelet is replaced", in(v1alpha1.ChangeSettling))
	e.sleep(patience + time.Minute)

	m := e.until("w-0", "the change fails", failed)
	for _, text := range []string{"w-0", "kubelet not running", "check the kubelet of the node, or replace the machine"} {
		if !strings.Contains(m.Status.Change.Message, text) {
			t.Errorf("no %s in %q", text, m.Status.Change.Message)
		}
	}

	for range 3 {
		e.sleep(time.Minute)
		e.passAll()
	}

	if m := e.machine("w-1"); e.mutations("w-1") != other || !in(v1alpha1.ChangePending)(m) || e.runs("w-1", next) {
		t.Errorf("%d calls: %s", e.mutations("w-1")-other, show(m))
	}
}
