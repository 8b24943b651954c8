package desired

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/machineconfig/netconfig"
)

// TestNeighbours: the machines that have to reach one with a firewall are those of the specs and those that are known besides, with
// all addresses that are known, each once. Without a firewall, nothing is compared.
func TestNeighbours(t *testing.T) {
	t.Parallel()

	s := Sources{
		ControlPlane: &v1alpha1.TalosControlPlane{}, Worker: &v1alpha1.TalosWorker{}, Machine: &v1alpha1.TalosMachine{},
		Machines: []v1alpha1.TalosMachine{{}, {}},
	}
	s.Machine.Name = "w-0"
	s.ControlPlane.Spec.Machines = []v1alpha1.MachineEntry{{Name: "cp-0", Address: "192.0.2.1", Network: &v1alpha1.MachineNetwork{
		Interfaces: []v1alpha1.NetworkInterface{{Addresses: []string{"10.0.0.1/24"}, VLANs: []v1alpha1.VLAN{
			{Addresses: []string{"10.1.0.1/24"}, VIP: &v1alpha1.VirtualIP{Address: "10.1.0.9"}},
		}}},
	}}}
	s.Worker.Spec.Machines = []v1alpha1.MachineEntry{{Name: "w-0"}}
	s.Machines[0].Name, s.Machines[0].Spec.Role = "cp-0", v1alpha1.RoleControlPlane
	s.Machines[0].Status.Address, s.Machines[0].Status.Addresses = "192.0.2.1", []string{"10.2.0.1"}
	s.Machines[1].Name, s.Machines[1].Spec.Role, s.Machines[1].Spec.Address = "w-9", v1alpha1.RoleWorker, "::ffff:10.3.0.1"

	if got := Neighbours(s); len(got.Others) > 0 {
		t.Errorf("without a firewall: %+v", got)
	}

	s.Worker.Spec.IngressFirewall = &v1alpha1.IngressFirewall{}
	want := netconfig.Neighbours{
		Machine: netconfig.Machine{Name: "w-0"},
		Others: []netconfig.Machine{
			{Name: "cp-0", ControlPlane: true, Reached: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Addresses: []netip.Addr{
				netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.2.0.1"),
			}},
			{Name: "w-0"},
			{Name: "w-9", Reached: []netip.Addr{netip.MustParseAddr("10.3.0.1")}},
		},
		VIPs: []netip.Addr{netip.MustParseAddr("10.1.0.9")},
	}

	if diff := cmp.Diff(want, Neighbours(s), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
