package talosmachine_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/node"
)

// TestOldBootMedium: nothing is sent to a machine whose Talos is too old to read the configurations of its cluster, and
// the message says from which version it has to be booted.
func TestOldBootMedium(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()

	n, err := e.fleet.Boot(t.Context(), 0, func(o *node.Options) { o.TalosVersion = "v1.12.4" })
	if err != nil {
		t.Fatal(err)
	}

	e.nodes["cp-0"] = n
	e.list("cp-0", 1, nil)
	e.until("cp-0", "it is refused", reason(v1alpha1.ConditionReady, v1alpha1.ReasonUnsupportedVersion))
	e.condition("cp-0", v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonUnsupportedVersion,
		"runs Talos v1.12.4")

	if e.mutations("cp-0") != 0 {
		t.Error("something was sent")
	}
}
