package talosworker

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// shop is a group of workers without nodes: what is done to its objects is the subject.
type shop struct {
	*testing.T

	c client.Client
	r *Reconciler
}

// newShop makes the group w of the control plane c, which lists and has some machines.
func newShop(t *testing.T, listed []string, existing ...*v1alpha1.TalosMachine) *shop {
	t.Helper()

	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), vitistackv1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}

	w := &v1alpha1.TalosWorker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w", UID: "w", Generation: 1, Finalizers: []string{v1alpha1.Finalizer}},
		Spec: v1alpha1.TalosWorkerSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: "c"}, DeletionPolicy: v1alpha1.DeletionReset,
		},
	}
	for _, name := range listed {
		w.Spec.Machines = append(w.Spec.Machines, v1alpha1.MachineEntry{Name: name})
	}

	b := fake.NewClientBuilder().WithScheme(scheme).WithTypeConverters(managedfields.NewDeducedTypeConverter()).
		WithStatusSubresource(&v1alpha1.TalosWorker{}).
		WithObjects(&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}, w)
	for _, m := range existing {
		b = b.WithObjects(m)
	}

	c, clock := b.Build(), testclock.NewFakePassiveClock(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))

	return &shop{t, c, &Reconciler{
		Client: c, Reader: c, Clock: clock, Recorder: events.NewFakeRecorder(100), Resync: time.Minute,
		States: &clusterstate.Store{Client: c, Reader: c, Clock: clock},
	}}
}

// owned is a machine of the group, healthy unless edited. Its finalizer is removed by its own controller.
func owned(name string, edits ...edit) *v1alpha1.TalosMachine {
	m := worker(0, edits...)
	m.Namespace, m.Name, m.UID, m.Finalizers = "ns", name, types.UID(name), []string{v1alpha1.Finalizer}
	m.Spec.Role, m.Spec.ControlPlaneRef.Name, m.Spec.DeletionPolicy = v1alpha1.RoleWorker, "c", v1alpha1.DeletionPreserve
	m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
		&v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Name: "w", UID: "w"}}, v1alpha1.GroupVersion.WithKind("TalosWorker"))}

	return &m
}

// pass reconciles the group once.
func (s *shop) pass() ctrl.Result {
	s.Helper()

	res, err := s.r.Reconcile(s.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "w"}})
	if err != nil {
		s.Fatal(err)
	}

	return res
}

func (s *shop) machine(name string) *v1alpha1.TalosMachine {
	s.Helper()

	m := &v1alpha1.TalosMachine{}
	if err := s.c.Get(s.Context(), client.ObjectKey{Namespace: "ns", Name: name}, m); err != nil {
		s.Fatal(err)
	}

	return m
}

// leaves: the machine is being deleted, and its node leaves the cluster.
func (s *shop) leaves(name string) bool {
	s.Helper()

	m := s.machine(name)

	return !m.DeletionTimestamp.IsZero() && m.Spec.OnDelete == v1alpha1.OnDeleteDecommission
}

// stays: nothing is done to the machine.
func (s *shop) stays(name string) bool {
	s.Helper()

	m := s.machine(name)

	return m.DeletionTimestamp.IsZero() && m.Spec.OnDelete == ""
}

// end does what the controller of a machine does at the end of its deletion.
func (s *shop) end(name string) {
	s.Helper()

	m := s.machine(name)
	m.Finalizers = nil

	if err := s.c.Update(s.Context(), m); err != nil {
		s.Fatal(err)
	}
}

// worker reads the group; false if it is gone.
func (s *shop) worker() (*v1alpha1.TalosWorker, bool) {
	s.Helper()

	w := &v1alpha1.TalosWorker{}

	err := s.c.Get(s.Context(), client.ObjectKey{Namespace: "ns", Name: "w"}, w)
	if client.IgnoreNotFound(err) != nil {
		s.Fatal(err)
	}

	return w, !apierrors.IsNotFound(err)
}

// condition is the message of a condition of the group.
func (s *shop) condition(kind string) string {
	s.Helper()

	w, _ := s.worker()

	c := meta.FindStatusCondition(w.Status.Conditions, kind)
	if c == nil {
		return ""
	}

	return c.Message
}

// TestScaleDown: machines that left the list are taken out one after the other, the most broken one first, and no other
// is touched.
func TestScaleDown(t *testing.T) {
	t.Parallel()

	s := newShop(t, []string{"w-0"}, owned("w-0", broken), owned("w-1"), owned("w-2", broken), owned("w-3"))

	// The second reconciliation finds that w-2 has not gone yet.
	for range 2 {
		s.pass()

		if !s.leaves("w-2") || !s.stays("w-0") || !s.stays("w-1") || !s.stays("w-3") {
			t.Fatal("not only the broken one is taken out")
		}
	}

	if got := s.condition(v1alpha1.ConditionUpToDate); !strings.Contains(got, "w-2 is being taken out") {
		t.Errorf("%q", got)
	}

	s.end("w-2")
	s.pass()

	if !s.leaves("w-3") || !s.stays("w-1") || !s.stays("w-0") {
		t.Error("of two healthy machines, not the one with the higher number is taken out")
	}

	s.end("w-3")
	s.pass()

	if !s.leaves("w-1") || !s.stays("w-0") {
		t.Error("the last one is not taken out")
	}
}

// TestNoScaleDown: no machine is taken out while the group is paused, or while its spec is refused.
func TestNoScaleDown(t *testing.T) {
	t.Parallel()

	for name, change := range map[string]func(*v1alpha1.TalosWorker){
		"paused": func(w *v1alpha1.TalosWorker) {
			w.Annotations = map[string]string{v1alpha1.PausedAnnotation: "true"}
		},
		"refused": func(w *v1alpha1.TalosWorker) { w.Spec.ConfigPatches = []string{"machine: ["} },
	} {
		s := newShop(t, []string{"w-0"}, owned("w-0"), owned("w-1"))

		w, _ := s.worker()
		change(w)

		if err := s.c.Update(t.Context(), w); err != nil {
			t.Fatal(err)
		}

		// A refused spec is an error, which the conditions tell.
		_, _ = s.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w)})

		if !s.stays("w-1") {
			t.Errorf("%s: w-1 is taken out", name)
		}
	}
}

// TestDeleteGroup: the machines of a group that is deleted are deleted all at once, with its policy and without a
// removal of their nodes from the cluster, and the group goes after the last one.
func TestDeleteGroup(t *testing.T) {
	t.Parallel()

	s := newShop(t, []string{"w-0", "w-1"}, owned("w-0"), owned("w-1"))

	w, _ := s.worker()
	if err := s.c.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}

	s.pass()

	for _, name := range []string{"w-0", "w-1"} {
		m := s.machine(name)
		if m.DeletionTimestamp.IsZero() || m.Spec.OnDelete != "" || m.Spec.DeletionPolicy != v1alpha1.DeletionReset {
			t.Errorf("%s: deleted at %v, %+v", name, m.DeletionTimestamp, m.Spec)
		}
	}

	s.end("w-0")
	s.pass()

	if _, exists := s.worker(); !exists {
		t.Fatal("the group went before its machine")
	}

	if got := s.condition(v1alpha1.ConditionDeleting); !strings.Contains(got, "waiting for w-1") || strings.Contains(got, "w-0") {
		t.Errorf("%q", got)
	}

	s.end("w-1")
	s.pass()

	if _, exists := s.worker(); exists {
		t.Error("the group stays without machines")
	}
}
