package talosmachine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/lab/node"
)

// readdress restarts machines with other addresses of the subnet, all at once, as a DHCP server may assign them.
func (e *env) readdress(to map[string]int) {
	e.Helper()

	for name := range to {
		e.nodes[name].Kill()
	}

	for name, i := range to {
		if err := e.nodes[name].Readdress(e.address(i)); err != nil {
			e.Fatal(err)
		}
	}

	for name := range to {
		if err := e.nodes[name].PowerOn(e.Context()); err != nil {
			e.Fatal(err)
		}
	}
}

// place sets the address of a machine in the spec.
func (e *env) place(name string, i int) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) { m.Spec.Address = e.address(i) })
}

func ready(m *v1alpha1.TalosMachine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady)
}

func reason(kind, want string) func(*v1alpha1.TalosMachine) bool {
	return func(m *v1alpha1.TalosMachine) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, kind)

		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == want
	}
}

// members returns the member IDs and peer addresses on the list of a machine.
func (e *env) members(name string) map[string]string {
	e.Helper()

	out := map[string]string{}

	e.Eventually(name+" lists the members of etcd", func(context.Context) error {
		conn, err := e.connect(name)
		if err != nil {
			return err
		}

		list, err := conn.EtcdMembers(e.Context())
		if err != nil {
			return err
		}

		clear(out)

		for _, m := range list {
			out[fmt.Sprintf("%016x", m.ID)] = m.PeerHosts[0]
		}

		return nil
	})

	return out
}

// TestAddressChange: a control-plane node comes back with another address. Nothing is sent to it; once the object has
// the new address, the operator uses it, and etcd has the same members.
func TestAddressChange(t *testing.T) {
	e := found(t, 3, 0)
	before := e.machine("cp-1")
	calls, members := e.mutations("cp-1"), e.members("cp-0")

	e.readdress(map[string]int{"cp-1": 51})
	e.until("cp-1", "it is missed", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonNodeUnreachable))

	e.place("cp-1", 51)

	after := e.until("cp-1", "it is found again", ready)
	if after.Status.Address != e.address(51) || after.Status.UUID != before.Status.UUID ||
		after.Status.EtcdMemberID != before.Status.EtcdMemberID {
		t.Errorf("the status is %+v, and was %+v", after.Status, before.Status)
	}

	if got := e.state().Runtime.Machines["cp-1"]; got.Address != e.address(51) || got.ConfiguredAt == nil {
		t.Errorf("the state has %+v", got)
	}

	members[before.Status.EtcdMemberID] = e.address(51)
	if got := e.members("cp-0"); fmt.Sprint(got) != fmt.Sprint(members) {
		t.Errorf("the members are %v; want %v", got, members)
	}

	if now := e.mutations("cp-1"); now != calls {
		t.Errorf("%d mutating calls", now-calls)
	}
}

// TestSwappedAddresses: two nodes come back with each other's address while a configuration change is pending. Neither
// gets the configuration of the other, or is wiped in its place; once the objects have the right addresses, both work.
func TestSwappedAddresses(t *testing.T) {
	e := found(t, 1, 2)
	calls := e.mutations("w-0") + e.mutations("w-1")
	hosts := map[string]string{"w-0": e.machine("w-0").Status.Hostname, "w-1": e.machine("w-1").Status.Hostname}

	e.readdress(map[string]int{"w-0": 101, "w-1": 100})
	e.patchAll("machine: {nodeLabels: {a: b}}")

	for _, name := range []string{"w-0", "w-1"} {
		m := e.until(name, "it is recognised", reason(v1alpha1.ConditionReady, v1alpha1.ReasonWrongMachine))
		if m.Status.Hostname != hosts[name] || m.Status.UUID != e.nodes[name].UUID() {
			t.Errorf("%s shows what the other one says: %+v", name, m.Status)
		}
	}

	e.condition("w-0", v1alpha1.ConditionReachable, metav1.ConditionFalse, v1alpha1.ReasonWrongMachine, "it is w-1")

	// The machine to be removed is not the one that responds at its address.
	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Finalizers = append(m.Finalizers, "example.com/test")
		m.Spec.OnDelete = v1alpha1.OnDeleteDecommission
	})

	e.Delete(e.machine("w-0"))

	e.until("w-0", "it is not taken out", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonWrongMachine))

	if now := e.mutations("w-0") + e.mutations("w-1"); now != calls {
		t.Errorf("%d mutating calls went to the wrong machine", now-calls)
	}

	e.place("w-1", 100)
	e.place("w-0", 101)
	e.until("w-1", "it is found", ready)
	e.until("w-0", "it is taken out", func(m *v1alpha1.TalosMachine) bool {
		return !slices.Contains(m.Finalizers, v1alpha1.Finalizer)
	})

	if s := e.nodes["w-0"].Status(); s.Stage != "maintenance" {
		t.Errorf("w-0 is not wiped: %+v", s)
	}

	if s := e.nodes["w-1"].Status(); s.Stage != "running" {
		t.Errorf("w-1 is %+v", s)
	}
}

// TestStrangerIsNotTheWipedMachine: a machine in maintenance mode at the address of one that is removed proves nothing
// about that one, which may run at another address. Only a user can abandon it, and then it is remembered.
func TestStrangerIsNotTheWipedMachine(t *testing.T) {
	e := found(t, 1, 1)
	uuid := e.machine("w-0").Status.UUID
	e.nodes["w-0"].Kill()

	fake, err := e.fleet.Boot(e.Context(), 99, func(o *node.Options) {
		o.Name, o.UUID, o.Dir, o.Heartbeat = "fake", "11111111-2222-3333-4444-555555555555", t.TempDir(), time.Second
	})
	if err != nil {
		t.Fatal(err)
	}

	change(e, &v1alpha1.TalosMachine{}, "w-0", func(m *v1alpha1.TalosMachine) {
		m.Finalizers = append(m.Finalizers, "example.com/test")
		m.Spec.OnDelete = v1alpha1.OnDeleteDecommission
	})

	e.Delete(e.machine("w-0"))
	e.until("w-0", "it is not taken for wiped", reason(v1alpha1.ConditionReachable, v1alpha1.ReasonWrongMachine))

	if _, kept := e.state().Runtime.Machines["w-0"]; !kept {
		t.Error("it is forgotten")
	}

	e.annotate("w-0", v1alpha1.SkipResetAnnotation, "true")
	e.until("w-0", "it is abandoned", func(m *v1alpha1.TalosMachine) bool {
		return !slices.Contains(m.Finalizers, v1alpha1.Finalizer)
	})

	rt := e.state().Runtime
	if _, known := rt.GivenUp[uuid]; !known || len(rt.Machines) != 1 || fake.Faults().MutatingCalls() != 0 {
		t.Errorf("abandoned are %+v, known %+v; %d calls to the other machine", rt.GivenUp, rt.Machines,
			fake.Faults().MutatingCalls())
	}
}

// TestUnusableStateOfTheDeleted: a machine whose cluster is deleted with its nodes left running is let go although the
// state Secret is unusable. With Reset, it could not be wiped, and stays.
func TestUnusableStateOfTheDeleted(t *testing.T) {
	e := found(t, 1, 0)

	change(e, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		cp.Finalizers = append(cp.Finalizers, "example.com/test")
	})
	e.Delete(&v1alpha1.TalosControlPlane{ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: cluster}})

	secret := &corev1.Secret{}
	e.Get(secret, clusterstate.SecretName(cluster))

	for key := range secret.Data {
		secret.Data[key] = []byte("no state")
	}

	e.Update(secret)

	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
		m.Finalizers = append(m.Finalizers, "example.com/test")
		m.Spec.DeletionPolicy = v1alpha1.DeletionReset
	})

	e.Delete(e.machine("cp-0"))

	for range 2 {
		m, _, err := e.pass("cp-0")
		if failure.Reason(err) != v1alpha1.ReasonStateSecretInvalid || !slices.Contains(m.Finalizers, v1alpha1.Finalizer) {
			t.Errorf("with Reset: %v; %s", err, show(m))
		}
	}

	change(e, &v1alpha1.TalosMachine{}, "cp-0", func(m *v1alpha1.TalosMachine) {
		m.Spec.DeletionPolicy = v1alpha1.DeletionPreserve
	})
	e.until("cp-0", "it is let go", func(m *v1alpha1.TalosMachine) bool {
		return !slices.Contains(m.Finalizers, v1alpha1.Finalizer)
	})

	if n := e.resets("cp-0"); n != 0 {
		t.Errorf("%d resets", n)
	}
}

// TestOtherHardware: a machine without a configuration at a new address does not replace one that may still run at the
// old address, nor does a machine with another mainboard count as the same one, until a user confirms it.
func TestOtherHardware(t *testing.T) {
	e := found(t, 1, 1)
	e.boot("spare", 120, &v1alpha1.ObjectReference{Name: group})

	e.Delete(e.machine("spare"))

	e.place("w-0", 120)
	m := e.until("w-0", "the spare is refused", reason(v1alpha1.ConditionReady, v1alpha1.ReasonWrongMachine))

	if m.Status.Address != e.address(100) || e.mutations("spare") != 0 {
		t.Errorf("%d mutating calls; status %+v", e.mutations("spare"), m.Status)
	}

	e.place("w-0", 100)
	e.until("w-0", "it is back", ready)

	const board = "6d1b8c7e-0000-4000-8000-00000000beef"

	e.record(func(rt *clusterstate.Runtime) {
		w := rt.Machines["w-0"]
		w.UUID = board
		rt.Machines["w-0"] = w
	})
	e.until("w-0", "the mainboard is another one", reason(v1alpha1.ConditionReady, v1alpha1.ReasonWrongMachine))
	e.annotate("w-0", v1alpha1.AcceptMachineAnnotation, e.nodes["w-0"].UUID())
	e.until("w-0", "a person accepts it", ready)

	if got := e.state().Runtime.UUID("w-0"); got != e.nodes["w-0"].UUID() {
		t.Errorf("the state has the UUID %s", got)
	}
}

// TestImpostor: another machine, without a configuration and with any certificate, responds at the address of an
// unreachable machine. Nothing is sent to it until a user confirms it, because a configuration contains the keys of the
// cluster.
func TestImpostor(t *testing.T) {
	for name, uuid := range map[string]string{
		"another UUID": "11111111-2222-3333-4444-555555555555",
		"no UUID":      node.NoUUID,
	} {
		t.Run(name, func(t *testing.T) {
			e := found(t, 1, 1)

			for name, at := range map[string]int{"cp-0": 0, "w-0": 99} {
				e.nodes[name].Kill()

				fake, err := e.fleet.Boot(e.Context(), at, func(o *node.Options) {
					o.Name, o.UUID, o.Dir, o.Heartbeat = "fake-"+name, uuid, t.TempDir(), time.Second
				})
				if err != nil {
					t.Fatal(err)
				}

				m := e.until(name, "a stranger is recognised", reason(v1alpha1.ConditionReady, v1alpha1.ReasonWrongMachine))
				for range 3 {
					e.sleep(time.Minute)
					e.pass(name)
				}

				if got := fake.Faults().MutatingCalls(); got != 0 || m.Status.UUID != e.nodes[name].UUID() {
					t.Fatalf("%d mutating calls to a stranger; %s", got, show(m))
				}

				accepted := fake.UUID()
				if accepted == "" {
					accepted = v1alpha1.AcceptNoUUID
				}

				e.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonWrongMachine,
					v1alpha1.AcceptMachineAnnotation+"="+accepted)
				e.annotate(name, v1alpha1.AcceptMachineAnnotation, accepted)
				e.until(name, "a person accepts it", func(*v1alpha1.TalosMachine) bool {
					return fake.Faults().Calls("ApplyConfiguration") > 0
				})

				// From now on it is recognised by its own UUID, or by nothing.
				if got := e.state().Runtime.Machines[name].UUID; got != fake.UUID() {
					t.Errorf("the state has the UUID %q, and the machine shows %q", got, fake.UUID())
				}

				// The next one without a UUID is not accepted by the same confirmation.
				if accepted == v1alpha1.AcceptNoUUID {
					e.until(name, "the confirmation is removed", func(m *v1alpha1.TalosMachine) bool {
						return m.Annotations[v1alpha1.AcceptMachineAnnotation] == ""
					})
				}
			}
		})
	}
}
