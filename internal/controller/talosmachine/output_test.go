package talosmachine_test

import (
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/lab/node/pace"
)

// TestInstallerOutput: while an installer runs, the status of its machine has a line that it has printed. Neither what
// comes before nor what comes after has one.
func TestInstallerOutput(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)
	// Long enough to be observed, also on a busy computer.
	e.boot("w-0", 100, &v1alpha1.ObjectReference{Name: group}, func(o *node.Options) { o.Times = pace.Times{Install: 5 * time.Minute} })
	e.bootstrap("cp-0")

	for name := range e.nodes {
		e.until(name, "it is ready", func(m *v1alpha1.TalosMachine) bool { return m.Status.WorkingHash != "" })
	}

	e.upgrade(newer)
	e.begins("w-0")

	lines := map[string]bool{}

	e.until("w-0", "it runs the newer version", func(m *v1alpha1.TalosMachine) bool {
		if c := m.Status.Change; c != nil && c.Progress != "" {
			if lines[c.Progress] = true; c.Phase != v1alpha1.ChangeApplying || c.Message != "installing "+installer+newer {
				t.Errorf("it shows %q while it is %s: %s", c.Progress, c.Phase, c.Message)
			}
		}

		return m.Status.TalosVersion == newer
	})

	if !lines["running Talos installer "+newer] {
		t.Errorf("it has shown %v", lines)
	}
}
