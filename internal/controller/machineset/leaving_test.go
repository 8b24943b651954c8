package machineset_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/controller/machineset"
	"github.com/talos-operator/talos-operator/internal/safety"
)

var errAway = errors.New("the API server is away")

// TestMarkedFirst: a machine is deleted only once its object says what that does to the node. Without the mark, the
// deletion would do something else.
func TestMarkedFirst(t *testing.T) {
	for effect, act := range map[v1alpha1.OnDelete]func(context.Context, client.Client, *v1alpha1.TalosMachine) error{
		v1alpha1.OnDeleteDecommission: machineset.Decommission, v1alpha1.OnDeleteRelease: machineset.Release,
	} {
		m := machine("a", "c", nil)
		m.Finalizers, m.Spec.DeletionPolicy = []string{v1alpha1.Finalizer}, v1alpha1.DeletionReset

		away := true

		var marks []v1alpha1.OnDelete

		c := interceptor.NewClient(newClient(t, m).(client.WithWatch), interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if away {
					return errAway
				}

				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				stored := &v1alpha1.TalosMachine{}
				if err := c.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
					return err
				}

				marks = append(marks, stored.Spec.OnDelete)

				return c.Delete(ctx, o, opts...)
			},
		})

		if err := act(t.Context(), c, m.DeepCopy()); !errors.Is(err, errAway) || len(marks) > 0 {
			t.Errorf("%s without the mark: deleted with %q, error %v", effect, marks, err)
		}

		away = false

		if err := act(t.Context(), c, m.DeepCopy()); err != nil || !slices.Equal(marks, []v1alpha1.OnDelete{effect}) {
			t.Errorf("%s: deleted with %q, error %v", effect, marks, err)
		}
	}
}

// TestDeleteOnce: a machine that is being deleted is not deleted again, but gets the policy that its owner has now. One
// whose policy cannot be passed on is not deleted: it would be wiped, or kept, against the will of its owner.
func TestDeleteOnce(t *testing.T) {
	m := machine("a", "c", nil)
	m.Finalizers, m.Spec.DeletionPolicy = []string{v1alpha1.Finalizer}, v1alpha1.DeletionReset

	deletions, away := 0, false
	c := interceptor.NewClient(newClient(t, m).(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if away {
				return errAway
			}

			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			deletions++

			return c.Delete(ctx, o, opts...)
		},
	})

	remove := func(policy v1alpha1.DeletionPolicy) error {
		got := &v1alpha1.TalosMachine{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), got); err != nil {
			t.Fatal(err)
		}

		return machineset.Delete(t.Context(), c, got, policy)
	}

	away = true

	if err := remove(v1alpha1.DeletionPreserve); !errors.Is(err, errAway) || deletions != 0 {
		t.Errorf("without its policy: %d deletions, error %v", deletions, err)
	}

	away = false

	for _, policy := range []v1alpha1.DeletionPolicy{v1alpha1.DeletionReset, v1alpha1.DeletionPreserve} {
		if err := remove(policy); err != nil {
			t.Fatal(err)
		}
	}

	got := &v1alpha1.TalosMachine{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(m), got); err != nil {
		t.Fatal(err)
	}

	if deletions != 1 || got.Spec.DeletionPolicy != v1alpha1.DeletionPreserve {
		t.Errorf("%d deletions, policy %s", deletions, got.Spec.DeletionPolicy)
	}
}

// TestRenamed: the object of a node that is listed under another name is let go, unless its node already leaves etcd or
// is wiped.
func TestRenamed(t *testing.T) {
	entries := []v1alpha1.MachineEntry{
		{Name: "stays", Address: "192.0.2.1"},
		{Name: "new", Address: "192.0.2.2"},
		{Name: "infra", MachineRef: &v1alpha1.ObjectReference{Name: "m-3"}},
		{Name: "provisioned"},
	}

	for name, tc := range map[string]struct {
		object string
		turn   func(*v1alpha1.TalosMachine)
		want   bool
	}{
		"still listed":        {"stays", func(m *v1alpha1.TalosMachine) { m.Spec.Address = "192.0.2.2" }, false},
		"at the same address": {"old", func(m *v1alpha1.TalosMachine) { m.Spec.Address = "192.0.2.2" }, true},
		"runs at the same address": {"old", func(m *v1alpha1.TalosMachine) {
			m.Spec.Address, m.Status.Address = "192.0.2.9", "192.0.2.2"
		}, true},
		"runs elsewhere": {"old", func(m *v1alpha1.TalosMachine) {
			m.Spec.Address, m.Status.Address = "192.0.2.2", "192.0.2.9"
		}, false},
		"on the same Machine": {"old", func(m *v1alpha1.TalosMachine) {
			m.Spec.MachineRef = &v1alpha1.ObjectReference{Name: "m-3"}
		}, true},
		"on another Machine": {"old", func(m *v1alpha1.TalosMachine) {
			m.Spec.MachineRef = &v1alpha1.ObjectReference{Name: "m-4"}
		}, false},
		"no address yet": {"old", func(*v1alpha1.TalosMachine) {}, false},
		"leaves etcd": {"old", func(m *v1alpha1.TalosMachine) {
			m.Spec.Address, m.Status.Intent = "192.0.2.2", &v1alpha1.MachineIntent{Step: v1alpha1.StepLeave}
		}, false},
		"is wiped": {"old", func(m *v1alpha1.TalosMachine) {
			m.Spec.Address, m.Status.Intent = "192.0.2.2", &v1alpha1.MachineIntent{Step: v1alpha1.StepReset}
		}, false},
	} {
		m := machine(tc.object, "c", nil)
		tc.turn(m)

		if got := machineset.Renamed(entries, []v1alpha1.TalosMachine{*m}); slices.Equal(got, []string{tc.object}) != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestCandidate: a machine without an object goes first, then the one with the most conditions that are not true; a
// control-plane node without a member of etcd before one that has one.
func TestCandidate(t *testing.T) {
	healthy := func(role v1alpha1.Role, without ...string) *v1alpha1.TalosMachine {
		m := machine("m", "c", nil)
		m.Spec.Role, m.Status.EtcdMemberID = role, "8e9e05c52164694d"

		for _, kind := range []string{
			v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured, v1alpha1.ConditionUpToDate,
		} {
			status := metav1.ConditionTrue
			if slices.Contains(without, kind) {
				status = metav1.ConditionFalse
			}

			m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status})
		}

		return m
	}

	memberless := func(role v1alpha1.Role) *v1alpha1.TalosMachine {
		m := healthy(role)
		m.Status.EtcdMemberID = ""

		return m
	}

	all := []string{v1alpha1.ConditionReady, v1alpha1.ConditionReachable, v1alpha1.ConditionConfigured}
	dead := healthy(v1alpha1.RoleControlPlane, all...)
	dead.Status.EtcdMemberID = ""

	for name, tc := range map[string]struct {
		machine *v1alpha1.TalosMachine
		want    safety.Candidate
	}{
		"healthy":          {healthy(v1alpha1.RoleControlPlane), safety.Candidate{}},
		"not ready":        {healthy(v1alpha1.RoleWorker, all[0]), safety.Candidate{Broken: 1}},
		"unreachable":      {healthy(v1alpha1.RoleWorker, all[:2]...), safety.Candidate{Broken: 2}},
		"not configured":   {healthy(v1alpha1.RoleWorker, all...), safety.Candidate{Broken: 3}},
		"never observed":   {machine("m", "c", nil), safety.Candidate{Broken: 3}},
		"outdated":         {healthy(v1alpha1.RoleWorker, v1alpha1.ConditionUpToDate), safety.Candidate{Outdated: true}},
		"no member":        {memberless(v1alpha1.RoleControlPlane), safety.Candidate{Broken: 1}},
		"a worker":         {memberless(v1alpha1.RoleWorker), safety.Candidate{}},
		"nothing of it":    {dead, safety.Candidate{Broken: 4}},
		"no object at all": {nil, safety.Candidate{Broken: 5}},
	} {
		tc.want.Name = "m"

		if got := machineset.Candidate("m", tc.machine); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

// TestDeletingMessage: what a deletion waits for is told with the name of the machine.
func TestDeletingMessage(t *testing.T) {
	m := machine("m", "c", nil)
	if got := machineset.DeletingMessage(m); got != "" {
		t.Errorf("nothing is known: %q", got)
	}

	m.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionDeleting, Status: metav1.ConditionTrue, Message: "draining"}}
	if got := machineset.DeletingMessage(m); got != " (draining)" {
		t.Errorf("%q", got)
	}
}
