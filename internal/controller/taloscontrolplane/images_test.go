package taloscontrolplane_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/test/harness"
)

// toTalos gives a machine a change that waits to bring another Talos.
func toTalos(m *v1alpha1.TalosMachine, to string) {
	pending(m)
	m.Status.Change.Kind = v1alpha1.ChangeTalos
	m.Status.Change.Fields = []v1alpha1.FieldChange{{Field: "Talos", Old: harness.TalosVersion, New: to}}
}

// TestImagesAskedAgain: the first machine of an upgrade does not begin if its images were pulled long ago, before it has
// been asked whether it still has them.
func TestImagesAskedAgain(t *testing.T) {
	const (
		to   = "v1.13.10"
		size = 3 // one that waits must not let the next one begin
	)

	e := newEnv(t)
	cp, _ := e.established(size)
	e.until(cp, "the version of the API servers is known", func() bool { return cp.Status.ObservedKubeVersion != "" })

	cp.Spec.TalosVersion = to
	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic, Backup: v1alpha1.UpgradeBackupNone}
	e.Update(cp)

	begins := func(change bool) string {
		t.Helper()

		for i := range size {
			e.show(cp, i, func(m *v1alpha1.TalosMachine) {
				m.Status.TalosVersion, m.Status.KubeletVersion = harness.TalosVersion, harness.KubernetesVersion
				m.Status.Images = &v1alpha1.MachineImages{RequestedFor: "none"}

				if want := rollout.ImagesFor(cp, nil); want != "" {
					m.Status.Images = &v1alpha1.MachineImages{RequestedFor: want, Pulled: true}
				}

				if change {
					toTalos(m, to)
				}
			})
		}

		e.step(cp)

		return e.granted(size)
	}

	begins(false)
	begins(false)

	if u := cp.Status.Upgrade; u == nil || u.TalosVersion != to || u.Pulling == nil || u.Pulling.PulledTime == nil {
		t.Fatalf("%+v, %+v", u, u.Pulling)
	}

	e.Clock.SetTime(e.Clock.Now().Add(time.Hour))

	// An approval, a window or anything else that takes long asks for nothing.
	if begins(false); cp.Status.Upgrade.Pulling.Requests != 0 {
		t.Errorf("asked while it waits: %+v", cp.Status.Upgrade.Pulling)
	}

	if got := begins(true); got != "" || cp.Status.Upgrade.Pulling.Requests != 1 ||
		!strings.Contains(cp.Status.Upgrade.Message, "asking the machines again") {
		t.Errorf("%q has begun: %+v", got, cp.Status.Upgrade)
	}

	if got := begins(true); got != "cp-1" {
		t.Errorf("with the images: %q has begun: %+v", got, cp.Status.Upgrade)
	}
}
