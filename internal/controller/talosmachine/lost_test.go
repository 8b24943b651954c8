package talosmachine_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// TestLostWhileLeaving: a control-plane machine is being removed when all machines lose their disks. No etcd is left
// that could remove its member, and the contents of its disk are unknown before it is configured again: it is
// configured, unless another machine may have data.
func TestLostWhileLeaving(t *testing.T) {
	const leaving = "cp-2"

	e := found(t, 3, 0)

	change(e, &v1alpha1.TalosMachine{}, leaving, func(m *v1alpha1.TalosMachine) { m.Spec.OnDelete = v1alpha1.OnDeleteDecommission })
	e.Delete(e.machine(leaving))

	for _, n := range e.nodes {
		n.Kill()
	}

	e.wipe(leaving)
	e.wipe("cp-0")

	sent := e.applied(leaving)

	for range 3 {
		e.pass(leaving)
	}

	if got := e.applied(leaving); got != sent {
		t.Errorf("it got %d configs while another machine may have data", got-sent)
	}

	e.wipe("cp-1")
	e.until(leaving, "it gets its config again", func(*v1alpha1.TalosMachine) bool { return e.applied(leaving) > sent })
}

// wipe makes a powered-off machine come back with an empty disk.
func (e *env) wipe(name string) {
	e.Helper()

	if err := e.nodes[name].WipeDisk(); err != nil {
		e.Fatal(err)
	}

	if err := e.nodes[name].PowerOn(e.Context()); err != nil {
		e.Fatal(err)
	}

	e.console(name)
}
