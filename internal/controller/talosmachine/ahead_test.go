package talosmachine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
	"github.com/talos-operator/talos-operator/test/harness"
)

// prePull asks for the images of a version before any machine is upgraded; nothing asks for those of "".
func (e *env) prePull(images *v1alpha1.UpgradeImages) string {
	e.Helper()

	cp := &v1alpha1.TalosControlPlane{}
	e.Get(cp, cluster)
	cp.Status.Upgrade = &v1alpha1.UpgradeStatus{ObservedGeneration: cp.Generation, Pulling: images}

	if err := e.Admin.Status().Update(e.Context(), cp); err != nil {
		e.Fatal(err)
	}

	w := &v1alpha1.TalosWorker{}
	e.Get(w, group)

	return rollout.ImagesFor(cp, w)
}

// TestPullAhead: a worker pulls the images of an upgrade before it is next, says why it cannot, tries again, and is not
// asked again once it has them. Nothing else changes on it.
func TestPullAhead(t *testing.T) {
	e := found(t, 1, 1)
	e.until("w-0", "it is up to date", done)

	pulls := func() int { return harness.Calls("Pull", e.nodes["w-0"]) }
	lists := func() int { return harness.Calls("List", e.nodes["w-0"]) }

	e.upgrade(newer + "-missing")
	want := e.prePull(&v1alpha1.UpgradeImages{TalosVersion: newer})

	m := e.until("w-0", "it cannot pull", func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Images != nil && m.Status.Images.Message != ""
	})
	if i := m.Status.Images; i.RequestedFor != want || i.Pulled || !strings.Contains(i.Message, installer+newer+"-missing") {
		t.Errorf("without the image: %+v", i)
	}

	tried := pulls()
	e.pass("w-0")

	if n := pulls(); n != tried {
		t.Errorf("pulled %d times at once", n-tried)
	}

	e.sleep(time.Minute)
	e.until("w-0", "it tries again", func(*v1alpha1.TalosMachine) bool { return pulls() > tried })

	e.follow(newer, installer+newer)
	want = e.prePull(&v1alpha1.UpgradeImages{TalosVersion: newer})

	has := func(m *v1alpha1.TalosMachine) bool {
		return m.Status.Images != nil && m.Status.Images.RequestedFor == want && m.Status.Images.Pulled
	}
	if m = e.until("w-0", "it has the image", has); m.Status.Images.Message != "" || m.Status.Change != nil {
		t.Errorf("with the image: %+v, %s", m.Status.Images, show(m))
	}

	// A restart asks the node for what it lists, and then for nothing more than without an upgrade.
	idle := func() int {
		before := lists()

		for range 3 {
			e.sleep(time.Minute)
			e.pass("w-0")
		}

		return lists() - before
	}
	was := pulls()

	e.restart()
	e.prePull(nil)
	e.until("w-0", "nothing is asked for", func(m *v1alpha1.TalosMachine) bool { return m.Status.Images == nil })

	quiet := idle()
	want = e.prePull(&v1alpha1.UpgradeImages{TalosVersion: newer})
	e.until("w-0", "it lists the image", has)

	if n := idle(); n > quiet || pulls() != was || !has(e.machine("w-0")) {
		t.Errorf("%d lists instead of %d, %d pulls of what the node lists", n, quiet, pulls()-was)
	}
}
