package talosmachine_test

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// neighbour is a client whose index knows a TalosMachine of another namespace.
type neighbour struct {
	client.Client

	machine v1alpha1.TalosMachine
}

func (c *neighbour) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.Client.List(ctx, list, opts...); err != nil {
		return err
	}

	machines, is := list.(*v1alpha1.TalosMachineList)
	if o := (&client.ListOptions{}).ApplyOptions(opts); is && o.FieldSelector != nil && o.Namespace == "" {
		machines.Items = append(machines.Items, c.machine)
	}

	return nil
}

// TestAddressOfAnotherNamespace: a machine that runs in a cluster of another namespace is not configured by an object
// that names its address, and is told nothing of whose it is.
func TestAddressOfAnotherNamespace(t *testing.T) {
	e := newEnv(t)
	e.createGroups(1)
	e.createState()
	e.boot("cp-0", 1, nil)

	theirs := v1alpha1.TalosMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "their-team", Name: "their-node", UID: "u"}}
	theirs.Spec.Address, theirs.Status.ConfigHash = e.address(1), "abc"
	e.r.Client = &neighbour{e.r.Client, theirs}

	refused := func(m *v1alpha1.TalosMachine) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionStalled)

		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1alpha1.ReasonAddressConflict
	}

	m := e.until("cp-0", "it is refused", refused)

	text := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionStalled).Message
	if !strings.Contains(text, "a TalosMachine in another namespace already") || strings.Contains(text, "their") {
		t.Errorf("the message is %q", text)
	}

	if calls := e.nodes["cp-0"].Faults().MutatingCalls(); calls != 0 {
		t.Errorf("%d calls changed the machine", calls)
	}
}
