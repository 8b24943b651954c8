package talosmachine_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/cosi"
	"github.com/talos-operator/talos-operator/lab/node"
)

// degraded waits until a machine tells of a fault of its network, which it does after a minute, and ends the fault.
func (e *env) degraded(name string, faults node.NetworkFaults, reason, part string) {
	e.Helper()

	const kind = v1alpha1.ConditionNetworkDegraded

	e.nodes[name].BreakNetwork(faults)
	e.sleep(10 * time.Minute) // the network was well

	if m, res, err := e.pass(name); err != nil || meta.IsStatusConditionTrue(m.Status.Conditions, kind) ||
		res.RequeueAfter > 30*time.Second {
		e.Errorf("%s is told at once, or not looked at again: %+v, %v", reason, res, err)
	}

	e.sleep(time.Minute)

	m, res, err := e.pass(name)
	if err != nil || res.RequeueAfter > 2*time.Minute || !upToDate(m) {
		e.Errorf("%s: %+v, %v", reason, res, err)
	}

	e.condition(name, kind, metav1.ConditionTrue, reason, part)

	e.nodes[name].BreakNetwork(node.NetworkFaults{})
	e.sleep(2 * time.Minute)

	if m, _, err := e.pass(name); err != nil || meta.FindStatusCondition(m.Status.Conditions, kind) != nil {
		e.Errorf("%s stays: %v, %+v", reason, err, m.Status.Conditions)
	}
}

// TestNetworkDegraded: what the node says about links of its configuration, resolvers, KubeSpan and discovery is in its status,
// becomes a condition when it does not work for a minute, and disappears with its cause. Nothing waits for it.
func TestNetworkDegraded(t *testing.T) {
	e := found(t, 1, 1)

	e.patchAll("apiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\n---\napiVersion: v1alpha1\nkind: DummyLinkConfig\nname: dummy0\n" +
		"---\napiVersion: v1alpha1\nkind: KubeSpanConfig\nenabled: true\n")

	for _, name := range []string{"cp-0", "w-0"} {
		e.roll(name)
	}

	m := e.until("w-0", "it shows its network", func(m *v1alpha1.TalosMachine) bool {
		n := m.Status.Network

		return n != nil && len(n.Links) == 2 && n.KubeSpan != nil && n.KubeSpan.Up == 1
	})

	if n := m.Status.Network; n.HostnameSource != "configuration" || len(n.Resolvers) != 1 || len(n.NotReady) > 0 ||
		n.Links[0] != (v1alpha1.MachineLink{Name: "dummy0", State: "up"}) || len(n.Undiscovered) > 0 ||
		n.KubeSpan.Peers[0] != (v1alpha1.KubeSpanPeer{Name: "cp-0", State: "up", Endpoint: e.address(1) + ":51820"}) {
		t.Errorf("%+v", n)
	}

	links := func(f cosi.LinkFault, name string) node.NetworkFaults {
		return node.NetworkFaults{NetworkFaults: cosi.NetworkFaults{Links: map[string]cosi.LinkFault{name: f}}}
	}

	e.degraded("w-0", links(cosi.LinkDown, "eth0"), v1alpha1.ReasonLinkDown,
		"the network of machine w-0 is degraded: links of the configuration are down and carry no traffic: eth0 (check")
	e.degraded("w-0", links(cosi.LinkMissing, "dummy0"), v1alpha1.ReasonLinkMissing, "do not exist: dummy0 (correct")
	e.degraded("w-0", node.NetworkFaults{NetworkFaults: cosi.NetworkFaults{NoResolvers: true}},
		v1alpha1.ReasonResolversMissing, "no DNS servers are known")
	e.degraded("w-0", node.NetworkFaults{NetworkFaults: cosi.NetworkFaults{SilentResolvers: true}},
		v1alpha1.ReasonResolversFailing, ":53 (check that the machine reaches them")
	e.degraded("w-0", node.NetworkFaults{NoTunnels: true}, v1alpha1.ReasonKubeSpanPeersDown,
		"no tunnel to: cp-0 (open")
	e.degraded("w-0", node.NetworkFaults{NoMembers: true}, v1alpha1.ReasonDiscoveryIncomplete,
		"discovery reports 1 of 2 machines, not: cp-0 (check")

	// Talos always tries the next endpoint.
	e.nodes["w-0"].BreakNetwork(node.NetworkFaults{NoTunnels: true})

	for range 2 {
		e.sleep(10 * time.Minute)
		e.pass("w-0")
	}

	api.NoWrites(t, e.Namespace, func() {
		for range 3 {
			e.nodes["w-0"].BreakNetwork(node.NetworkFaults{NoTunnels: true})
			e.sleep(10 * time.Minute)
			e.pass("w-0")
		}
	})
}

// TestNetworkIsHeld: what was read of the network, and is not written at once because details of a status are written
// together, is written with them, although the node is not asked again.
func TestNetworkIsHeld(t *testing.T) {
	const together = 15 * time.Minute

	e := found(t, 1, 0)
	e.until("cp-0", "it shows its network", func(m *v1alpha1.TalosMachine) bool { return m.Status.Network != nil })
	e.r.Details = together
	e.sleep(10 * time.Minute)

	lost := e.machine("cp-0")
	base := lost.DeepCopy()
	lost.Status.Network = nil

	if err := e.Admin.Status().Patch(t.Context(), lost, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}

	if m, _, err := e.pass("cp-0"); err != nil || e.machine("cp-0").Status.Network != nil {
		t.Fatalf("it is written at once: %s, %v", show(m), err)
	}

	e.sleep(9 * time.Minute)

	if m, _, err := e.pass("cp-0"); err != nil || e.machine("cp-0").Status.Network == nil {
		t.Errorf("it is lost: %s, %v", show(m), err)
	}
}
