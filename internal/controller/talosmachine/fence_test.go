package talosmachine_test

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// giveUp has a dead machine taken out of the cluster, as its group does once it has been replaced.
func (e *env) giveUp(name string) {
	e.Helper()

	e.nodes[name].Kill()
	e.until(name, "it is missed", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable))

	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) {
		yes := true
		m.Spec.Decommission = &yes

		metav1.SetMetaDataAnnotation(&m.ObjectMeta, v1alpha1.SkipResetAnnotation, "true")
	})

	e.Delete(e.machine(name))

	e.Eventually(name+" is given up", func(context.Context) error {
		m := &v1alpha1.TalosMachine{}

		if _, err := e.r.Reconcile(e.Context(), ctrl.Request{NamespacedName: e.Key(name)}); err != nil {
			return err
		}

		err := e.Admin.Get(e.Context(), e.Key(name), m)
		if apierrors.IsNotFound(err) {
			return nil
		}

		return errors.Join(errors.New(show(m)), err)
	})
}

// TestGivenUpMachineIsListedAgain: a control-plane node and a worker that were given up come back to life with all that
// they had, and somebody lists them again. They are wiped before anything else, and begin anew.
func TestGivenUpMachineIsListedAgain(t *testing.T) {
	e := found(t, 3, 1)
	former := e.machine("cp-2").Status.EtcdMemberID

	for _, name := range []string{"cp-2", "w-0"} {
		uuid := e.machine(name).Status.UUID
		e.giveUp(name)

		g, ok := e.state().Runtime.GivenUp[uuid]
		if !ok || g.Name != name || g.Address != e.nodes[name].Address() || g.Hostname == "" ||
			g.ControlPlane != (name == "cp-2") || g.ControlPlane && g.MemberID != former {
			t.Errorf("the state has %+v for %s", g, name)
		}

		if _, ok := e.state().Runtime.Machines[name]; ok {
			t.Errorf("the state still counts on %s", name)
		}
	}

	if _, there := e.members("cp-0")[former]; there {
		t.Error("the member of cp-2 is still there")
	}

	for _, name := range []string{"cp-2", "w-0"} {
		if err := e.nodes[name].PowerOn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	e.list("cp-2", 3, nil)
	e.list("w-0", 100, &v1alpha1.ObjectReference{Name: group})

	for _, name := range []string{"cp-2", "w-0"} {
		e.until(name, "it is back", func(m *v1alpha1.TalosMachine) bool { return ready(m) && m.Status.WorkingHash != "" })

		if n := e.nodes[name].Faults().Calls("Reset"); n != 1 {
			t.Errorf("%s was reset %d times", name, n)
		}

		if i := e.machine(name).Status.Intent; i != nil {
			t.Errorf("%s still has the intent %+v", name, i)
		}
	}

	if members := e.members("cp-0"); len(members) != 3 {
		t.Errorf("the members are %v", members)
	}

	if left := e.state().Runtime.GivenUp; len(left) > 0 {
		t.Errorf("the state still has %+v", left)
	}
}
