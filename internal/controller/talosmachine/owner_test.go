package talosmachine_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// TestMachineOfAnotherOwner: nothing is sent to a machine whose cluster is managed by another control plane, neither an
// initial configuration nor a reset with its objects; an object that does not change its machine is still deleted.
func TestMachineOfAnotherOwner(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)
	e.Record(cluster, func(s *clusterstate.State) { s.Runtime.OwnerUID = "another" })

	before := e.mutations("cp-0")

	for range 3 {
		e.passAll()
	}

	if got := e.mutations("cp-0"); got != before {
		t.Errorf("%d calls that change something", got-before)
	}

	m := e.machine("cp-0")
	e.Condition(m, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonOwnedElsewhere, "TalosControlPlane "+cluster)

	e.Record(cluster, func(s *clusterstate.State) { s.Runtime.OwnerUID = "" })
	e.until("cp-0", "it gets its config", func(*v1alpha1.TalosMachine) bool { return e.mutations("cp-0") > before })

	e.Record(cluster, func(s *clusterstate.State) { s.Runtime.OwnerUID = "another" })
	e.Delete(m)
	e.Eventually("its object is gone", func(context.Context) error {
		e.passAll()

		if !e.Gone(m) {
			return errors.New("it is not")
		}

		return nil
	})
}
