package talosmachine_test

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// otherNetwork is a network without machines.
const otherNetwork = "10.99.0.0/16"

// here is the network of the machines of a test.
func (e *env) here() string { return netip.MustParsePrefix(e.address(1) + "/24").Masked().String() }

// open lets a network in to a port, and nothing else.
func open(subnet string, port int) *v1alpha1.IngressFirewall {
	return &v1alpha1.IngressFirewall{Rules: []v1alpha1.FirewallRule{{
		Name: fmt.Sprintf("p%d", port), Protocol: "tcp", Ports: []string{strconv.Itoa(port)},
		Ingress: []v1alpha1.FirewallSource{{Subnet: subnet}},
	}}}
}

// wall gives a machine a firewall; nil takes it away.
func (e *env) wall(name string, wall *v1alpha1.IngressFirewall) {
	e.Helper()
	change(e, &v1alpha1.TalosMachine{}, name, func(m *v1alpha1.TalosMachine) { m.Spec.IngressFirewall = wall })
}

// refused: the machine keeps its configuration, and says what its firewall would close to whom.
func (e *env) refused(name, part string) {
	e.Helper()

	m := e.until(name, "its firewall is refused", func(m *v1alpha1.TalosMachine) bool {
		c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady)

		return c != nil && c.Reason == v1alpha1.ReasonInvalidSpec && ended(m)
	})
	e.condition(name, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec, part)

	if e.cordoned(name) || e.runs(name, otherNetwork) {
		e.Errorf("cordoned: %t; %s", e.cordoned(name), show(m))
	}
}

// TestFirewallOfNeighbours: a firewall is compared with the addresses of all machines of the cluster, also of those in other
// groups. A control-plane machine takes one that lets all of them in, as each change of the network.
func TestFirewallOfNeighbours(t *testing.T) {
	e := found(t, 1, 1)
	calls := e.mutations("cp-0")

	e.wall("cp-0", open(otherNetwork, 50001))
	e.refused("cp-0", "do not open tcp 50001 (trustd) to w-0 ("+e.machine("w-0").Spec.Address+")")

	if n := e.mutations("cp-0"); n != calls {
		t.Errorf("%d calls", n-calls)
	}

	e.wall("cp-0", open(e.here(), 50001))

	if c := e.planned("cp-0"); !c.Try || !c.Etcd {
		t.Errorf("planned: %+v", c)
	}

	e.roll("cp-0")

	if !e.runs("cp-0", "NetworkRuleConfig") {
		t.Error("the machine has no firewall")
	}
}

// TestFirewallRefusedMidReboot: a change that was sent ends although a firewall that comes meanwhile is refused, and the
// node is schedulable again.
func TestFirewallRefusedMidReboot(t *testing.T) {
	e := found(t, 1, 1)
	e.patchAll(needsReboot)
	e.planned("w-0")
	e.grant("w-0", true)
	e.until("w-0", "it reboots", rebooting)
	e.wall("w-0", open(otherNetwork, 10250))

	m := e.until("w-0", "the change ends", ended)
	if !e.runs("w-0", "SHELF") {
		t.Errorf("%s", show(m))
	}

	e.refused("w-0", "do not open tcp 10250 (the kubelet) to cp-0")

	e.wall("w-0", open(e.here(), 10250))
	e.roll("w-0")
}

// TestNeighbourComesBeforeTrial: a firewall that shuts out a machine which came after the change had begun is not sent, and
// the change ends. It goes on when the machine is gone.
func TestNeighbourComesBeforeTrial(t *testing.T) {
	e := found(t, 1, 1)
	calls := e.mutations("w-0")

	e.wall("w-0", open(e.here(), 10250))
	e.planned("w-0")
	e.nodes["w-0"].Faults().Fail("ApplyConfiguration", codes.Unavailable, 1, 1)
	e.grant("w-0", false)

	if m, _, err := e.pass("w-0"); err == nil || !onTrial(m) {
		t.Fatalf("%v: %s", err, show(m))
	}

	e.neighbour("cp-9")
	e.refused("w-0", "do not open tcp 10250 (the kubelet) to cp-9 (192.0.2.9)")

	// The call that failed.
	if n := e.mutations("w-0"); n != calls+1 || e.runs("w-0", "NetworkRuleConfig") {
		t.Errorf("%d calls", n-calls)
	}

	if err := e.Admin.Delete(e.Context(), e.machine("cp-9")); err != nil {
		t.Fatal(err)
	}

	e.roll("w-0")
}

// TestNeighbourComesMidTrial: a firewall that is live closes nothing more, so the trial goes on, and the machine says whom
// it shuts out.
func TestNeighbourComesMidTrial(t *testing.T) {
	e := found(t, 1, 1)

	e.wall("w-0", open(e.here(), 10250))
	e.planned("w-0")
	e.grant("w-0", false)
	e.until("w-0", "it is tried", onTrial)
	e.neighbour("cp-9")
	e.until("w-0", "it is changed", done)

	e.condition("w-0", v1alpha1.ConditionFirewallShutsOut, metav1.ConditionTrue, v1alpha1.ReasonNeighbourShutOut,
		"the firewall that machine w-0 runs does not open tcp 10250 (the kubelet) to cp-9 (192.0.2.9); add the addresses")
}

// neighbour lists a control-plane machine in another network.
func (e *env) neighbour(name string) {
	e.Helper()

	m := e.machine("cp-0").DeepCopy()
	e.Create(&v1alpha1.TalosMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.Namespace, Name: name, Labels: m.Labels},
		Spec:       v1alpha1.TalosMachineSpec{ControlPlaneRef: m.Spec.ControlPlaneRef, Role: m.Spec.Role, Address: "192.0.2.9"},
	})
}
