package taloscontrolplane_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/test/harness"
)

const elsewhere = "11111111-2222-3333-4444-555555555555"

// TestCopiedState: with the copy of a state that another control plane owns, nothing is done while machines run, or are
// unreachable, until a user confirms exactly that owner.
func TestCopiedState(t *testing.T) {
	for what, silent := range map[string]bool{"runs": false, "is unreachable": true} {
		t.Run(what, func(t *testing.T) {
			e := newEnv(t)
			cp, nodes := e.found(1)

			if silent {
				nodes[0].Kill()
			}

			e.record(func(s *clusterstate.State) { s.Runtime.OwnerUID = elsewhere })

			before := e.secret("c-state").ResourceVersion

			for _, wrong := range []string{"", "true", string(cp.UID)} {
				if wrong != "" {
					e.annotate(cp, v1alpha1.TakeOverAnnotation, wrong)
				}

				if _, err := e.pass(cp); failure.Reason(err) != v1alpha1.ReasonOwnedElsewhere {
					t.Errorf("annotated with %q: %v", wrong, err)
				}
			}

			e.Condition(cp, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonOwnedElsewhere, "cp-0 "+what)
			e.Condition(cp, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonOwnedElsewhere,
				v1alpha1.TakeOverAnnotation+"="+elsewhere)

			if got := harness.Calls("Bootstrap", nodes...); got != 0 || e.secret("c-state").ResourceVersion != before {
				t.Errorf("%d bootstraps, or the state was written", got)
			}

			e.annotate(cp, v1alpha1.TakeOverAnnotation, elsewhere)

			if _, err := e.pass(cp); failure.Reason(err) == v1alpha1.ReasonOwnedElsewhere {
				t.Errorf("confirmed: %v", err)
			}

			rt := e.state().Runtime
			if _, kept := cp.Annotations[v1alpha1.TakeOverAnnotation]; kept || rt.OwnerUID != string(cp.UID) || rt.FormerOwnerUID != elsewhere {
				t.Errorf("owner %q, former owner %q, annotation kept: %t", rt.OwnerUID, rt.FormerOwnerUID, kept)
			}

			if !silent {
				e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
			}
		})
	}
}

// TestStateOfAnotherOwnerWithoutMachines: if no machine runs under the PKI, no confirmation is needed.
func TestStateOfAnotherOwnerWithoutMachines(t *testing.T) {
	e := newEnv(t)
	n := e.boot(0)
	at := e.Clock.Now().Add(-24 * time.Hour)

	st := e.newState()
	st.Runtime.OwnerUID = elsewhere
	st.Runtime.Machines = map[string]clusterstate.Machine{"cp-0": {Address: n.Address(), ConfiguredAt: &at}}
	st.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "gone", Address: "gone", IntentAt: at, EstablishedAt: &at}
	e.CreateState(name, st)

	cp := e.create(1)
	e.until(cp, "it owns the cluster", func() bool { return e.state().Runtime.OwnerUID == string(cp.UID) })

	e.configure(e.state(), n)
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

	if b := e.state().Runtime.Bootstrap; b.Machine != "cp-0" || b.Earlier {
		t.Errorf("the bootstrap of the new life: %+v", b)
	}
}

// TestWipeOfAnotherOwnersMachines: deleting a copy with the Reset policy wipes no machines.
func TestWipeOfAnotherOwnersMachines(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(1)

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.DeletionPolicy = v1alpha1.DeletionReset })
	e.record(func(s *clusterstate.State) { s.Runtime.OwnerUID = elsewhere })
	_, _ = e.pass(cp)
	e.Delete(cp)

	if _, err := e.pass(cp); err != nil || e.Gone(cp) {
		t.Fatalf("gone %t, %v", e.Gone(cp), err)
	}

	e.Condition(cp, v1alpha1.ConditionDeleting, metav1.ConditionTrue, v1alpha1.ReasonOwnedElsewhere, "Preserve")

	if m := e.talosMachine(0); !m.DeletionTimestamp.IsZero() {
		t.Error("its machine is being deleted")
	}

	harness.Change(e.Env, cp, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.DeletionPolicy = v1alpha1.DeletionPreserve })
	e.until(cp, "it is gone", func() bool { return e.Gone(cp) })
}
