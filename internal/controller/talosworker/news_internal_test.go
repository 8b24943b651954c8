package talosworker

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/test/news"
)

// TestRebootsAreNoNews: the reboots of a rollout, whose plan is told, are not told by the group; a machine that is lost is.
func TestRebootsAreNoNews(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}

	w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}}
	w.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0"}}

	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	told := events.NewFakeRecorder(20)
	r := &Reconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(w).WithStatusSubresource(w).Build(), Recorder: told,
		Clock: testclock.NewFakePassiveClock(at), Resync: time.Minute,
	}

	news.Reboots(t, told, "w-0", at, func(m v1alpha1.TalosMachine) error {
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(w), w); err != nil {
			return err
		}

		s := &scope{
			worker: w, base: w.DeepCopy(), controlPlane: &v1alpha1.TalosControlPlane{},
			machines: []v1alpha1.TalosMachine{m}, listed: true, valid: true,
		}

		_, err := r.finish(t.Context(), s, ctrl.Result{}, nil)

		return err
	})
}
