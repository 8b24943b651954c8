package taloscontrolplane

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
	"github.com/talos-operator/talos-operator/test/news"
	"github.com/talos-operator/talos-operator/test/pki"
)

// TestRebootsAreNoNews: the reboots of a rollout, whose plan is told, are not told by the control plane; an outage that is
// no change of the operator is.
func TestRebootsAreNoNews(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
	cp.Spec.Machines = []v1alpha1.MachineEntry{{Name: "cp-0"}}

	at := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	told := events.NewFakeRecorder(20)
	r := &Reconciler{
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(cp).WithStatusSubresource(cp).Build(), Recorder: told,
		Clock: testclock.NewFakePassiveClock(at), Resync: time.Minute,
	}

	bundle, err := pki.New(at)
	if err != nil {
		t.Fatal(err)
	}

	store := &clusterstate.Store{Client: r.Client, Reader: r.Client, Clock: r.Clock}

	held, err := store.Create(t.Context(), client.ObjectKeyFromObject(cp), clusterstate.NewState(bundle,
		clusterstate.BundleConfig{ClusterName: "c", Endpoint: "https://10.0.0.1:6443"}, ""))
	if err != nil {
		t.Fatal(err)
	}

	held.State.Runtime.Bootstrap = &clusterstate.Bootstrap{EstablishedAt: &at}

	news.Reboots(t, told, "cp-0", at, func(m v1alpha1.TalosMachine) error {
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(cp), cp); err != nil {
			return err
		}

		s := &scope{
			cp: cp, base: cp.DeepCopy(), held: held, machines: []v1alpha1.TalosMachine{m}, now: at, observed: true, asked: true,
			version: "v1.36.2", etcd: safety.EtcdHealth{Healthy: true, Voting: []string{"cp-0"}},
			quorum: safety.QuorumView{State: safety.QuorumHeld},
		}

		_, err := r.finish(t.Context(), s, ctrl.Result{}, nil)

		return err
	})
}
