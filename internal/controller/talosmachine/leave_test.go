package talosmachine_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// intended calls a function once, before the operator records that a machine takes a step.
func (e *env) intended(name string, step string, happens func()) (called func() bool) {
	var (
		once sync.Once
		did  bool
	)

	e.Client.BeforeWrites(func(_ string, o client.Object) {
		m, ok := o.(*v1alpha1.TalosMachine)
		if ok && m.Name == name && m.Status.Intent != nil && m.Status.Intent.Step == step {
			once.Do(func() { happens(); did = true })
		}
	})

	return func() bool { return did }
}

// takesAddress assigns the address of a powered-off machine to another one, and waits until that responds there.
func (e *env) takesAddress(from string, i int, to string) {
	e.Helper()
	e.nodes[from].Kill()
	e.readdress(map[string]int{to: i})
	e.Eventually(to+" answers at the address of "+from, func(context.Context) error {
		_, err := e.connect(to)

		return err
	})
}

// TestLeaveIsForItself: a member that takes over the address of a leaving member remains a member.
func TestLeaveIsForItself(t *testing.T) {
	e := found(t, 3, 0)
	e.mayLeave("cp-2")

	swapped := e.intended("cp-2", v1alpha1.StepLeave, func() { e.takesAddress("cp-2", 3, "cp-1") })
	e.takeOut("cp-2", nil)

	e.Eventually("cp-2 is about the removal of its own etcd member", func(context.Context) error {
		if _, _, err := e.pass("cp-2"); !swapped() {
			return errors.Join(errors.New("not yet"), err)
		}

		return nil
	})

	for _, method := range []string{"EtcdForfeitLeadership", "EtcdLeaveCluster"} {
		if n := e.nodes["cp-1"].Faults().Calls(method); n > 0 {
			t.Errorf("cp-1 got %d calls of %s that were meant for cp-2", n, method)
		}
	}
}

// TestResetIsForItself: a machine that takes over the address of a machine to be wiped is not wiped, even if neither
// has a UUID that distinguishes them.
func TestResetIsForItself(t *testing.T) {
	e := found(t, 1, 2)

	swapped := e.intended("w-0", v1alpha1.StepReset, func() { e.takesAddress("w-0", 100, "w-1") })
	e.takeOut("w-0", nil)

	e.Eventually("w-0 is about to be wiped", func(context.Context) error {
		if _, _, err := e.pass("w-0"); !swapped() {
			return errors.Join(errors.New("not yet"), err)
		}

		return nil
	})

	if n := e.resets("w-1"); n > 0 {
		t.Errorf("w-1 got %d resets that were meant for w-0", n)
	}
}
