package talosmachine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
)

// mayLeave has the control plane permit that a machine is removed.
func (e *env) mayLeave(name string) {
	e.Helper()
	e.record(func(r *clusterstate.Runtime) {
		r.Disruption = &clusterstate.Disruption{Machine: name, Act: "Remove", Since: e.Clock.Now()}
	})
}

// joins waits until a machine has a member of etcd.
func (e *env) joins(name string) {
	e.Helper()
	e.Eventually(name+" has a member of etcd", func(context.Context) error {
		if e.nodes[name].Status().EtcdMember == "" {
			return errors.New("none")
		}

		return nil
	})
}

// leavesFirst reconciles a machine until it is asked to leave etcd, and requires that it was not wiped before.
func (e *env) leavesFirst(name string) {
	e.Helper()
	e.until(name, "it is asked to leave etcd, or wiped", func(*v1alpha1.TalosMachine) bool {
		return e.nodes[name].Faults().Calls("EtcdLeaveCluster")+e.resets(name) > 0
	})

	if e.resets(name) > 0 {
		e.Fatalf("%s was wiped while it was a member of etcd", name)
	}

	e.until(name, "it is wiped", func(*v1alpha1.TalosMachine) bool { return e.resets(name) > 0 })
}

// TestJoinsBeforeReset: a machine that joins etcd in the moment in which it is to be wiped leaves etcd first.
func TestJoinsBeforeReset(t *testing.T) {
	e := found(t, 3, 0)
	e.boot("cp-3", 4, nil)
	e.nodes["cp-3"].StallPulls(true)
	e.until("cp-3", "it has a config", func(m *v1alpha1.TalosMachine) bool {
		_, err := e.connect("cp-3")

		return m.Status.ConfigHash != "" && err == nil
	})

	joined := e.intended("cp-3", v1alpha1.StepReset, func() {
		e.nodes["cp-3"].StallPulls(false)
		e.joins("cp-3")
	})

	e.mayLeave("cp-3")
	e.takeOut("cp-3", nil)
	e.leavesFirst("cp-3")

	if !joined() {
		t.Error("it never joined")
	}
}

// TestJoinsAfterLostReset: a machine that has joined since a reset was recorded, which was never requested because the
// operator died, leaves etcd first.
func TestJoinsAfterLostReset(t *testing.T) {
	e := found(t, 3, 0)
	e.mayLeave("cp-2")

	m := e.machine("cp-2")
	m.Status.Intent = &v1alpha1.MachineIntent{
		Step: v1alpha1.StepReset, BootID: e.boots("cp-2"), Since: metav1.NewTime(e.Clock.Now().Add(-time.Hour)),
	}
	e.UpdateStatus(m)

	e.takeOut("cp-2", nil)
	e.leavesFirst("cp-2")
}

// refusing is a client that refuses once to record one step of a machine.
type refusing struct {
	client.Client

	step    string
	refused bool
}

func (c *refusing) Status() client.SubResourceWriter { return refusingStatus{c.Client.Status(), c} }

type refusingStatus struct {
	client.SubResourceWriter

	c *refusing
}

func (w refusingStatus) Patch(
	ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
) error {
	if m, ok := o.(*v1alpha1.TalosMachine); ok && m.Status.Intent != nil && m.Status.Intent.Step == w.c.step &&
		!w.c.refused {
		w.c.refused = true

		return errors.New("the API server is away")
	}

	return w.SubResourceWriter.Patch(ctx, o, patch, opts...)
}

// TestResetThatIsNotRecorded: a reset that could not be recorded is not requested, and the next reconciliation does not
// wait for it.
func TestResetThatIsNotRecorded(t *testing.T) {
	e := found(t, 3, 0)
	e.mayLeave("cp-2")
	e.takeOut("cp-2", nil)

	api := &refusing{Client: e.cache, step: v1alpha1.StepReset}
	e.r.Client = api
	e.until("cp-2", "its reset is not recorded", func(*v1alpha1.TalosMachine) bool { return api.refused })

	if i := e.machine("cp-2").Status.Intent; i == nil || i.Step != v1alpha1.StepLeave || e.resets("cp-2") > 0 {
		t.Errorf("%d resets; the recorded step is %+v", e.resets("cp-2"), i)
	}

	asked := e.nodes["cp-2"].Faults().Calls("EtcdMemberList")

	if _, _, err := e.pass("cp-2"); err != nil || e.resets("cp-2") != 1 {
		t.Errorf("%d resets: %v", e.resets("cp-2"), err)
	}

	// An etcd that has been stopped does not respond before the deadline of the call.
	if n := e.nodes["cp-2"].Faults().Calls("EtcdMemberList") - asked; n > 0 {
		t.Errorf("a node that has left etcd was asked %d times for its members", n)
	}
}
