package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cosi-project/runtime/pkg/controller/generic"
	"github.com/cosi-project/runtime/pkg/safe"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"
	"github.com/siderolabs/talos/pkg/machinery/resources/network"
	"github.com/siderolabs/talos/pkg/machinery/resources/runtime"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/imagefactory"
	"github.com/talos-operator/talos-operator/lab/node"
)

// The cluster of examples/full-cluster.yaml: its control-plane machines, its workers, and the virtual IP, by the last parts
// of their addresses.
var (
	fullControlPlane = []int{11, 12, 13}
	fullWorkers      = []int{21, 22}
	fullMachines     = slices.Concat(fullControlPlane, fullWorkers)
)

const fullVIP = 10

// fullNames are the TalosMachines at the machines.
var fullNames = map[int]string{11: "full-cp-0", 12: "full-cp-1", 13: "full-cp-2", 21: "full-w-0", 22: "full-w-1"}

// fullSchematic is the ID of the schematic of the cluster with some extensions.
func (w *world) fullSchematic(extensions ...string) string {
	w.t.Helper()

	id, err := (&imagefactory.Schematic{Customization: imagefactory.Customization{
		ExtraKernelArgs:  []string{"net.ifnames=0"},
		SystemExtensions: imagefactory.SystemExtensions{OfficialExtensions: extensions},
	}}).ID()
	if err != nil {
		w.t.Fatal(err)
	}

	return id
}

// fullExtensions are those of the cluster as it is created, and thirdExtension the one that comes.
var fullExtensions = []string{"siderolabs/iscsi-tools", "siderolabs/nut-client"}

const thirdExtension = "siderolabs/qemu-guest-agent"

// createFull boots the machines with two network cards each, one of them with Secure Boot, and applies the example. The
// endpoint is a load balancer, because nothing routes the virtual IP to its owner.
func (w *world) createFull(edit ...string) {
	w.t.Helper()

	names := []string{"iscsi-tools", "nut-client", "qemu-guest-agent"}
	factory := map[string][]string{
		w.fullSchematic(fullExtensions...):                         names[:2],
		w.fullSchematic(append(fullExtensions, thirdExtension)...): names,
	}

	for _, i := range fullMachines {
		w.boot(i, func(o *node.Options) {
			o.Links, o.Schematics, o.SecureBoot = []string{"eth1"}, factory, i == fullControlPlane[0]
		})
	}

	example, err := os.ReadFile("../../examples/full-cluster.yaml")
	if err != nil {
		w.t.Fatal(err)
	}

	w.apply(strings.NewReplacer(append(edit, "  namespace: default\n", "",
		"https://172.20.150.10:", "https://"+w.balance(fullControlPlane...)+":", "172.20.150.", w.subnet+".")...).
		Replace(string(example)))
	w.whole("full")
	w.eventually("nothing is left to do", w.groupsUpToDate("full"))
}

// shownBy returns the resources of a type that a machine shows, by their IDs.
func shownBy[T generic.ResourceWithRD](w *world, machine int) map[string]T {
	w.t.Helper()

	out := map[string]T{}

	w.eventually(fmt.Sprintf("machine %d tells", machine), func(ctx context.Context) error {
		list, err := safe.StateListAll[T](talosclient.WithNode(ctx, w.address(machine)), w.talos("full").COSI)
		if err != nil {
			return err
		}

		clear(out)

		for r := range list.All() {
			out[r.Metadata().ID()] = r
		}

		return nil
	})

	return out
}

// bonded: a machine has its bond with both network cards, its VLANs, and its addresses there, and its status says so.
func (w *world) bonded(machine int, vlans map[int]uint32) {
	w.t.Helper()

	links := shownBy[*network.LinkStatus](w, machine)
	addresses := shownBy[*network.AddressStatus](w, machine)
	bond, ok := links["bond0"]

	if !ok || bond.TypedSpec().Kind != network.LinkKindBond || bond.TypedSpec().BondMaster.Mode.String() != "802.3ad" ||
		bond.TypedSpec().MTU != 9000 {
		w.t.Errorf("machine %d has the bond %+v", machine, bond)

		return
	}

	up := []v1alpha1.MachineLink{{Name: "bond0", State: "up"}}

	for id, mtu := range vlans {
		name := fmt.Sprintf("bond0.%d", id)
		up = append(up, v1alpha1.MachineLink{Name: name, State: "up"})

		vlan, ok := links[name]
		if !ok || vlan.TypedSpec().VLAN.VID != uint16(id) || vlan.TypedSpec().MTU != mtu ||
			vlan.TypedSpec().LinkIndex != bond.TypedSpec().Index {
			w.t.Errorf("machine %d has the VLAN %+v", machine, vlan)
		}

		if a := name + "/" + w.vlanAddress(id, machine) + "/24"; addresses[a] == nil {
			w.t.Errorf("machine %d does not have %s", machine, a)
		}
	}

	for _, name := range []string{"eth0", "eth1"} {
		up = append(up, v1alpha1.MachineLink{Name: name, State: "up"})

		if s := links[name].TypedSpec(); s.SlaveKind != network.LinkKindBond || s.MasterIndex != bond.TypedSpec().Index {
			w.t.Errorf("machine %d has %s beside the bond: %+v", machine, name, s)
		}
	}

	slices.SortFunc(up, func(a, b v1alpha1.MachineLink) int { return strings.Compare(a.Name, b.Name) })

	w.eventually(fmt.Sprintf("the status of machine %d has its links", machine), func(context.Context) error {
		st := w.machine(fullNames[machine]).Status
		if st.Network == nil || !slices.Equal(st.Network.Links, up) {
			return fmt.Errorf("%+v", st.Network)
		}

		for id := range vlans {
			if a := w.vlanAddress(id, machine); !slices.Contains(st.Addresses, a) {
				return fmt.Errorf("%v lack %s", st.Addresses, a)
			}
		}

		return nil
	})
}

// vlanAddress is the address of a machine in a VLAN.
func (w *world) vlanAddress(vlan, machine int) string {
	if vlan == 100 {
		return w.address(machine)
	}

	return fmt.Sprintf("172.20.%d.%d", 149+vlan/100, machine)
}

// virtualIPAt returns the machine that has a virtual IP.
func (w *world) virtualIPAt(vip string) (owner int) {
	w.t.Helper()
	w.eventually("one machine has "+vip, func(context.Context) error {
		var owners []int

		for _, i := range fullMachines {
			if shownBy[*network.AddressStatus](w, i)["bond0.100/"+vip+"/32"] != nil {
				owners = append(owners, i)
			}
		}

		if len(owners) != 1 || !slices.Contains(fullControlPlane, owners[0]) {
			return fmt.Errorf("%v", owners)
		}

		owner = owners[0]

		return nil
	})

	return owner
}

// tunnelled: each machine has so many tunnels of KubeSpan, and none that is not up.
func (w *world) tunnelled(up int) {
	w.t.Helper()

	for _, i := range fullMachines {
		w.eventually(fmt.Sprintf("machine %d has %d tunnels", i, up), func(context.Context) error {
			peers := shownBy[*kubespan.PeerStatus](w, i)

			for _, p := range peers {
				if p.TypedSpec().State != kubespan.PeerStateUp {
					return fmt.Errorf("%+v", p.TypedSpec())
				}
			}

			if len(peers) != up {
				return fmt.Errorf("%d peers", len(peers))
			}

			return nil
		})
	}
}

// tellsTunnels: the status of each machine has so many tunnels. It is read now and then: what others change later, it does
// not have at once.
func (w *world) tellsTunnels(up int32) {
	w.t.Helper()

	for _, name := range fullNames {
		w.eventually(fmt.Sprintf("%s tells of %d tunnels", name, up), func(context.Context) error {
			var got v1alpha1.KubeSpanStatus

			if n := w.machine(name).Status.Network; n != nil && n.KubeSpan != nil {
				got = *n.KubeSpan
			}

			if got.Up != up || got.Unknown+got.Down > 0 {
				return fmt.Errorf("%+v", got)
			}

			return nil
		})
	}
}

// runsFull: a machine runs an image with extensions, with Secure Boot if its firmware has it on, and an encrypted volume
// that has keys in these slots and was opened by one of them.
func (w *world) runsFull(machine int, extensions []string, opened int32, keys ...string) {
	w.t.Helper()

	name, secure := fullNames[machine], machine == fullControlPlane[0]
	id := w.fullSchematic(extensions...)

	w.eventually(name+" runs what it should", func(context.Context) error {
		st := w.machine(name).Status

		image := st.Image
		if image == nil || image.Schematic != id || image.DesiredSchematic != id || image.MatchesSpec == nil ||
			!*image.MatchesSpec || len(image.Extensions) != len(extensions) || image.SecureBoot == nil ||
			*image.SecureBoot != secure {
			return fmt.Errorf("image %+v, want the schematic %s", image, id)
		}

		i := slices.IndexFunc(st.Volumes, func(v v1alpha1.MachineVolume) bool { return v.Name == "EPHEMERAL" })
		if i < 0 || st.Volumes[i].Encryption != "luks2" || st.Volumes[i].KeySlot == nil || *st.Volumes[i].KeySlot != opened {
			return fmt.Errorf("volumes %+v", st.Volumes)
		}

		var have []string
		for slot, key := range st.BootVolumes.Keys {
			kind, _, _ := strings.Cut(key, " ")
			have = append(have, slot+" "+kind)
		}

		if slices.Sort(have); st.BootVolumes.BootID != st.BootID || !slices.Equal(have, keys) {
			return fmt.Errorf("keys %v, want %v, in boot %s of %s", have, keys, st.BootVolumes.BootID, st.BootID)
		}

		return nil
	})

	state := shownBy[*runtime.SecurityState](w, machine)[runtime.SecurityStateID]
	if state == nil || state.TypedSpec().SecureBoot != secure {
		w.t.Errorf("%s shows %+v", name, state)
	}

	if shown := shownBy[*runtime.ExtensionStatus](w, machine); len(shown) != len(extensions)+1 { // and the schematic
		w.t.Errorf("%s shows %d extensions", name, len(shown))
	}
}

// served: the service of an extension runs on a machine, with a text in its configuration, and nothing is wrong there.
func (w *world) served(machine int, text string) {
	w.t.Helper()

	config := shownBy[*runtime.ExtensionServiceConfig](w, machine)["nut-client"]
	if config == nil || !slices.ContainsFunc(config.TypedSpec().Files, func(f runtime.ExtensionServiceConfigFile) bool {
		return strings.Contains(f.Content, text)
	}) {
		w.t.Errorf("machine %d shows the configuration %+v", machine, config)
	}

	w.eventually(fmt.Sprintf("ext-nut-client runs on machine %d", machine), func(ctx context.Context) error {
		resp, err := w.talos("full").ServiceList(talosclient.WithNode(ctx, w.address(machine)))
		if err != nil {
			return err
		}

		for _, s := range resp.GetMessages()[0].GetServices() {
			if s.GetId() == "ext-nut-client" && s.GetState() == "Running" {
				return nil
			}
		}

		return errors.New("it does not")
	})

	for _, kind := range []string{
		v1alpha1.ConditionExtensionServicesFailed, v1alpha1.ConditionStaticPodsFailed, v1alpha1.ConditionNetworkDegraded,
		v1alpha1.ConditionVolumesFailed,
	} {
		if c := meta.FindStatusCondition(w.machine(fullNames[machine]).Status.Conditions, kind); c != nil {
			w.t.Errorf("machine %d: %+v", machine, c)
		}
	}
}

// podRuns: the static pod runs with an image on the machine that has it.
func (w *world) podRuns(image string) {
	w.t.Helper()

	const machine = 12

	name := "kube-system/lldpd-" + fullNames[machine]

	status := shownBy[*k8s.StaticPodStatus](w, machine)[name]
	if status == nil || !strings.Contains(fmt.Sprint(status.TypedSpec().PodStatus), "image:"+image) ||
		status.TypedSpec().PodStatus["phase"] != "Running" {
		w.t.Errorf("%s shows %+v", name, status)
	}
}

// TestFullCluster creates the cluster of the example with all features at once, and changes it field by field.
func TestFullCluster(t *testing.T) {
	w := newWorld(t)
	w.createFull()

	for _, i := range fullMachines {
		w.bonded(i, map[int]uint32{100: 1500, 200: 9000})
		w.runsFull(i, fullExtensions, 0, "EPHEMERAL/0 nodeID")
		w.served(i, "172.20.151.5")
	}

	w.podRuns("registry.example.org/lldpd:1.0.18")
	w.tunnelled(4)
	w.tellsTunnels(4)
	w.virtualIPAt(w.address(fullVIP))
	w.nodesReady("full", 5)

	w.changeNetwork()
	w.refuseFull()
	w.wantSecureBoot()
	w.changeKubeSpan()
	w.changeServices()
	w.keepKey()
	w.changeSchematic()
	w.removeKey()
	w.joinSecurely()
	w.searchSecrets("full")
}
