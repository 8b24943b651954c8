package taloscontrolplane_test

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/safety"
)

// TestCredentialsOfTheGone: the credentials of a cluster are removed from memory when its control plane is deleted,
// properly or by removing its finalizer.
func TestCredentialsOfTheGone(t *testing.T) {
	for name, stripped := range map[string]bool{"deleted": false, "without its finalizer": true} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			cp, _ := e.found(1)
			e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

			if stripped {
				cp.Finalizers = nil
				e.Update(cp)
			}

			e.Delete(cp)
			e.Until(cp, "it is gone", nil, func() error { _, err := e.pass(cp); return err }, func() bool { return e.Gone(cp) })

			if _, err := e.pass(cp); err != nil {
				t.Error(err)
			}

			if e.r.States.Forget(client.ObjectKeyFromObject(cp)) != nil {
				t.Error("the credentials of the cluster are still in memory")
			}
		})
	}
}

// TestClockSetBack: the clock was a day ahead when a bootstrap was recorded whose call was lost. It is repeated after
// the usual time, and not after a day.
func TestClockSetBack(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(3)
	ahead := e.Clock.Now().Add(24 * time.Hour)

	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = string(cp.UID)
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-0", Address: e.address(0), IntentAt: ahead}
		s.Runtime.Disruption = &clusterstate.Disruption{Machine: "cp-9", Act: string(safety.ActReboot), Since: ahead}
	})

	if _, err := e.pass(cp); err != nil || bootstrapped(cp) {
		t.Fatalf("it does not wait for the call that was recorded: %v", err)
	}

	if at := e.state().Runtime.Bootstrap.IntentAt; at.After(e.Clock.Now()) {
		t.Errorf("the record says %s, and it is %s", at, e.Clock.Now())
	}

	e.Clock.Sleep(16 * time.Second)
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
}

// TestDisruptionOfTheGone: a machine was being removed or rebooted when its object lost its finalizer and was deleted.
// Its record blocks nothing: at once where it was being removed, and where it rebooted, after the time in which its node
// may still be away.
func TestDisruptionOfTheGone(t *testing.T) {
	for _, act := range []safety.Act{safety.ActRemove, safety.ActReboot} {
		t.Run(string(act), func(t *testing.T) {
			e := newEnv(t)
			cp, _ := e.found(1)
			e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })
			e.record(func(s *clusterstate.State) {
				s.Runtime.Disruption = &clusterstate.Disruption{Machine: "cp-9", Act: string(act), Since: e.Clock.Now(), Change: "c"}
			})

			if act == safety.ActReboot {
				if _, err := e.pass(cp); err != nil || e.state().Runtime.Disruption == nil {
					t.Fatalf("another machine may be disrupted while its node may be away: %v", err)
				}

				e.Clock.Sleep(10 * time.Minute)
			}

			e.until(cp, "the record is taken off", func() bool { return e.state().Runtime.Disruption == nil })
		})
	}
}

// TestRestoreOfTheGone: the object of a restore lost its finalizer and was deleted. The cluster remains blocked until
// no node can be reading a snapshot any more; an existing restore blocks it for as long as it takes.
func TestRestoreOfTheGone(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(1)
	r := e.restore("meant", name)

	e.record(func(s *clusterstate.State) {
		s.Runtime.Restore = &clusterstate.Restore{Name: r.Name, UID: string(r.UID), Since: e.Clock.Now()}
	})

	left := func() bool { return e.state().Runtime.Restore != nil }

	for range 3 {
		_, _ = e.pass(cp)

		e.Clock.Sleep(time.Hour)
	}

	if !left() {
		t.Fatal("the cluster was taken from a restore that is there")
	}

	// Another restore with the same name does not count.
	r.Finalizers = nil
	e.Update(r)
	e.Delete(r)
	e.restore("meant", "another")

	for range 3 {
		_, _ = e.pass(cp)

		e.Clock.Sleep(3 * time.Minute)
	}

	if !left() {
		t.Fatal("the cluster was taken from the restore at once")
	}

	e.Clock.Sleep(2 * time.Minute)
	e.until(cp, "the cluster goes on", func() bool { return !left() && bootstrapped(cp) })
}

// TestDeletionAfterARestoreOfTheGone: a control plane that is deleted does not wait for a restore whose object is gone,
// nor do its machines.
func TestDeletionAfterARestoreOfTheGone(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.found(1)

	e.record(func(s *clusterstate.State) {
		s.Runtime.Restore = &clusterstate.Restore{Name: "gone", UID: "gone", Since: e.Clock.Now()}
	})

	held := e.talosMachine(0)
	held.Finalizers = append(held.Finalizers, "example.com/test")

	e.Update(held)
	e.Delete(cp)

	for range 3 {
		_, _ = e.pass(cp)

		if e.state().Runtime.Restore == nil {
			t.Fatal("the cluster was taken from the restore at once")
		}

		e.Clock.Sleep(3 * time.Minute)
	}

	e.Clock.Sleep(2 * time.Minute)
	e.until(cp, "its machines wait for no restore", func() bool { return e.state().Runtime.Restore == nil })
}

// departed is the machine to be removed in the test below.
const departed = "cp-2"

// TestLostWhileLeaving: all disks are lost while machines are being removed. The recovery is that of every total loss:
// the message names the required evidence about the departing machine, a user may confirm that it is destroyed, and may
// then allow a new etcd, which is bootstrapped on a remaining machine.
func TestLostWhileLeaving(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(3)
	at := e.Clock.Now().Add(-24 * time.Hour)

	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = string(cp.UID)
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-1", Address: e.address(1), IntentAt: at, EstablishedAt: &at}
		s.Runtime.Disruption = &clusterstate.Disruption{Machine: departed, Act: string(safety.ActRemove), Since: at}
	})
	e.shrink(cp, "cp-0")
	nodes[2].Kill()

	e.until(cp, "the machine that leaves is named", func() bool {
		return has(cp, v1alpha1.ConditionBootstrapped, v1alpha1.ReasonWaitingForEvidence)
	})
	e.Condition(cp, v1alpha1.ConditionReady, "False", v1alpha1.ReasonWaitingForEvidence,
		"annotate the object with "+v1alpha1.ForgetMachinesAnnotation+"="+departed)

	e.annotate(cp, v1alpha1.ForgetMachinesAnnotation, departed)
	e.until(cp, "the loss is told", func() bool { return has(cp, v1alpha1.ConditionReady, v1alpha1.ReasonEtcdLost) })

	if m := e.state().Runtime.Machines[departed]; !m.Forgotten || m.ConfiguredAt == nil {
		t.Errorf("the state has %+v", m)
	}

	e.annotate(cp, v1alpha1.AllowBootstrapAnnotation, "true")
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

	if got := e.state().Runtime.Bootstrap.Machine; got != "cp-0" {
		t.Errorf("etcd was bootstrapped on %s", got)
	}
}
