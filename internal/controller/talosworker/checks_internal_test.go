package talosworker

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/controller/group"
	"github.com/talos-operator/talos-operator/internal/decide/rollout"
)

// newReconciler returns one with the given machines of a control plane whose state does not exist.
func newReconciler(t *testing.T, machines ...*v1alpha1.TalosMachine) (*Reconciler, *scope, *v1alpha1.TalosControlPlane) {
	t.Helper()

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, clientgoscheme.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}

	b := fake.NewClientBuilder().WithScheme(scheme)
	for _, m := range machines {
		b = b.WithObjects(m)
	}

	c, clock := b.Build(), testclock.NewFakePassiveClock(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	r := &Reconciler{Client: c, Reader: c, Clock: clock, States: &clusterstate.Store{Client: c, Reader: c, Clock: clock}}
	w := &v1alpha1.TalosWorker{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "w"}}
	w.Spec.ControlPlaneRef.Name = "c"

	cp := &v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}

	return r, &scope{worker: w, base: w.DeepCopy(), controlPlane: cp}, cp
}

// TestChecked: the workers of a cluster that cannot be reached are not upgraded if it has checks, and the plan keeps
// the time since when.
func TestChecked(t *testing.T) {
	r, s, cp := newReconciler(t)
	picked := []rollout.Candidate{
		{Name: "w-0", Change: v1alpha1.MachineChange{Kind: v1alpha1.ChangeTalos, Cause: v1alpha1.CauseSpec}},
		{Name: "w-1", Change: v1alpha1.MachineChange{Cause: v1alpha1.CauseSpec}},
	}
	out := &rollout.Output{Plan: &v1alpha1.PlanStatus{Phase: v1alpha1.PlanRollingOut}}

	if got := r.checked(t.Context(), s, cp, nil, out, picked); len(got) != 2 || out.Plan.Check != nil {
		t.Errorf("without checks: %v, %+v", got, out.Plan.Check)
	}

	cp.Spec.Upgrade = &v1alpha1.UpgradeOptions{Checks: []v1alpha1.UpgradeCheck{{Name: "gate"}}}
	since := metav1.NewTime(r.Clock.Now().Add(-time.Hour))
	was := &v1alpha1.PlanStatus{Check: &v1alpha1.FailedCheck{Name: "gate", Since: since}}

	got := r.checked(t.Context(), s, cp, was, out, picked)
	if len(got) != 1 || got[0].Name != "w-1" || out.Plan.Check == nil || !out.Plan.Check.Since.Equal(&since) {
		t.Errorf("%v, %+v", got, out.Plan.Check)
	}
}

// TestSoakFirst: the machines of the control plane count if they have to soak, and no others.
func TestSoakFirst(t *testing.T) {
	machine := func(name, of string, role v1alpha1.Role) *v1alpha1.TalosMachine {
		return &v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{
			v1alpha1.ControlPlaneLabel: of, v1alpha1.RoleLabel: string(role),
		}}}
	}

	r, s, cp := newReconciler(t, machine("c-0", "c", v1alpha1.RoleControlPlane), machine("w-0", "c", v1alpha1.RoleWorker),
		machine("d-0", "d", v1alpha1.RoleControlPlane))

	if got, err := r.soakFirst(t.Context(), s); err != nil || len(got) != 0 {
		t.Errorf("no soak: %d machines, %v", len(got), err)
	}

	cp.Spec.Rollout = &v1alpha1.RolloutOptions{SoakTime: &metav1.Duration{Duration: time.Minute}}

	if got, err := r.soakFirst(t.Context(), s); err != nil || len(got) != 1 || got[0].Name != "c-0" {
		t.Errorf("%d machines, %v", len(got), err)
	}
}

// TestChecksOfTheGone: what checks have found is forgotten with the object of the group.
func TestChecksOfTheGone(t *testing.T) {
	r, s, _ := newReconciler(t)
	key := client.ObjectKeyFromObject(s.worker)

	made := func(name string) string {
		got, _ := r.checks.Make(key, "of", r.Clock, time.Minute, func() group.Verdict { return group.Verdict{Name: name} })

		return got.Name
	}

	if first, second := made("first"), made("second"); first != "first" || second != "first" {
		t.Fatalf("%q, %q", first, second)
	}

	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil || made("third") != "third" {
		t.Errorf("%v: it is still recorded", err)
	}
}
