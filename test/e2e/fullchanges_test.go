package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
)

// inPlace makes a change that reboots no machine.
func (w *world) inPlace(what string, edit func()) {
	w.t.Helper()

	before := w.boots()

	edit()
	w.eventually(what, w.groupsUpToDate("full"))

	if rebooted := w.rebooted(before); len(rebooted) > 0 {
		w.t.Errorf("%s: %v rebooted", what, rebooted)
	}
}

// refused makes a change that an object refuses for a reason, with a text in its message: no machine gets another
// config or system, or reboots. Then it takes the change back.
func (w *world) refused(o client.Object, name, kind, reason, text string, edit, back func()) {
	w.t.Helper()

	acts := w.countChanges(fullMachines...)

	edit()
	w.eventually(text, func(ctx context.Context) error {
		err := w.condition(o, name, kind, metav1.ConditionFalse, reason)(ctx)
		if c := meta.FindStatusCondition(harness.Conditions(o), kind); err == nil && !strings.Contains(c.Message, text) {
			err = errors.New(c.Message)
		}

		return err
	})
	back()
	w.eventually("it is taken back", w.groupsUpToDate("full"))

	if acts.of("Upgrade")+acts.of("Reboot")+acts.of("ApplyConfiguration") > 0 {
		w.t.Errorf("%s: %v", text, acts.take())
	}
}

// editFull edits both groups of the cluster.
func (w *world) editFull(edit func(*v1alpha1.NodeOptions)) {
	w.t.Helper()
	change(w, &v1alpha1.TalosControlPlane{}, "full", func(cp *v1alpha1.TalosControlPlane) { edit(&cp.Spec.NodeOptions) })
	change(w, &v1alpha1.TalosWorker{}, "full-workers", func(g *v1alpha1.TalosWorker) { edit(&g.Spec.NodeOptions) })
}

// editMachine edits the entry of a control-plane machine.
func (w *world) editMachine(machine int, edit func(*v1alpha1.MachineEntry)) {
	w.t.Helper()
	change(w, &v1alpha1.TalosControlPlane{}, "full", func(cp *v1alpha1.TalosControlPlane) {
		edit(&cp.Spec.Machines[slices.Index(fullControlPlane, machine)])
	})
}

// changeNetwork adds a VLAN to the control plane, and changes the MTU of one of the workers.
func (w *world) changeNetwork() {
	w.t.Helper()
	w.inPlace("a VLAN and an MTU", func() {
		change(w, &v1alpha1.TalosControlPlane{}, "full", func(cp *v1alpha1.TalosControlPlane) {
			for i := range cp.Spec.Machines {
				bond := &cp.Spec.Machines[i].Network.Interfaces[0]
				bond.VLANs = append(bond.VLANs, v1alpha1.VLAN{
					ID: 300, Addresses: []string{w.vlanAddress(300, fullControlPlane[i]) + "/24"},
				})
			}
		})
		change(w, &v1alpha1.TalosWorker{}, "full-workers", func(g *v1alpha1.TalosWorker) {
			for i := range g.Spec.Machines {
				g.Spec.Machines[i].Network.Interfaces[0].VLANs[1].MTU = 8000
			}
		})
	})

	for _, i := range fullControlPlane {
		w.bonded(i, map[int]uint32{100: 1500, 200: 9000, 300: 9000})
	}

	for _, i := range fullWorkers {
		w.bonded(i, map[int]uint32{100: 1500, 200: 8000})
	}
}

// fullKeys are the keys of the encrypted volume: the one that it is created with, and the one that comes.
var fullKeys = []v1alpha1.VolumeKey{
	{Slot: new(int32(0)), Type: v1alpha1.VolumeKeyNodeID},
	{
		Slot: new(int32(1)), Type: v1alpha1.VolumeKeyKMS,
		KMS: &v1alpha1.VolumeKeyKMSOptions{Endpoint: "https://kms.example.org:4443"},
	},
}

// lockWith has the encrypted volume opened by some keys.
func (w *world) lockWith(keys ...v1alpha1.VolumeKey) {
	w.t.Helper()
	w.editFull(func(o *v1alpha1.NodeOptions) { o.Volumes.Ephemeral.Encryption.Keys = keys })
}

// keepKey tries to remove the first key before a boot has written the second one into the volume.
func (w *world) keepKey() {
	w.t.Helper()
	w.refused(&v1alpha1.TalosMachine{}, fullNames[21], v1alpha1.ConditionUpToDate, v1alpha1.ReasonVolumeChangeRefused,
		"not yet confirmed", func() { w.lockWith(fullKeys[1]) }, func() { w.lockWith(fullKeys...) })
}

// removeKey removes the first key. Talos takes that in place, and the volumes stay open as they are. After the next boot,
// it is the second one that opens them, alone.
func (w *world) removeKey() {
	w.t.Helper()

	all := append(slices.Clone(fullExtensions), thirdExtension)

	w.inPlace("the first key is removed", func() { w.lockWith(fullKeys[1]) })

	for _, i := range fullMachines {
		w.runsFull(i, all, 0, "EPHEMERAL/0 nodeID", "EPHEMERAL/1 kms")
	}

	for _, i := range []int{fullControlPlane[0], fullWorkers[0]} {
		w.reboot(i)
		w.runsFull(i, all, 1, "EPHEMERAL/1 kms")
	}

	w.eventually("they run on", w.groupsUpToDate("full"))
}

// changeServices gives the control plane another virtual IP, the service of the extension another configuration, one
// machine another image of its static pod, and all of them a second key.
func (w *world) changeServices() {
	w.t.Helper()

	const (
		newVIP  = 9
		monitor = "MONITOR ups@172.20.151.6 1 monitor \"\" secondary\n"
	)

	w.inPlace("a virtual IP, a service, a static pod, a key", func() {
		change(w, &v1alpha1.TalosControlPlane{}, "full", func(cp *v1alpha1.TalosControlPlane) {
			for i := range cp.Spec.Machines {
				cp.Spec.Machines[i].Network.Interfaces[0].VLANs[0].VIP.Address = w.address(newVIP)
			}
		})
		w.editFull(func(o *v1alpha1.NodeOptions) { o.ExtensionServices[0].ConfigFiles[0].Content = monitor })
		w.editMachine(12, func(m *v1alpha1.MachineEntry) {
			raw := string(m.StaticPods[0].Raw)
			m.StaticPods[0].Raw = []byte(strings.Replace(raw, "lldpd:1.0.18", "lldpd:1.0.19", 1))
		})
		w.lockWith(fullKeys...)
	})

	for _, i := range fullMachines {
		w.served(i, "ups@172.20.151.6")
		w.runsFull(i, fullExtensions, 0, "EPHEMERAL/0 nodeID") // it opens with the keys of its boot
	}

	w.podRuns("registry.example.org/lldpd:1.0.19")

	owner := w.virtualIPAt(w.address(newVIP))
	w.eventually("its status says so", func(context.Context) error {
		if all := w.machine(fullNames[owner]).Status.Addresses; !slices.Contains(all, w.address(newVIP)) ||
			slices.Contains(all, w.address(fullVIP)) {
			return fmt.Errorf("%v", all)
		}

		return nil
	})
}

// changeKubeSpan turns KubeSpan off and on again, without losing a machine.
func (w *world) changeKubeSpan() {
	w.t.Helper()

	for _, on := range []bool{false, true} {
		w.inPlace(fmt.Sprintf("KubeSpan is %t", on), func() {
			change(w, &v1alpha1.TalosControlPlane{}, "full", func(cp *v1alpha1.TalosControlPlane) {
				cp.Spec.KubeSpan.Enabled = new(on)
			})
		})

		if on {
			w.tunnelled(4)
		} else {
			w.tunnelled(0)
		}

		for _, name := range fullNames {
			w.eventually(name+" is reached", w.condition(&v1alpha1.TalosMachine{}, name, v1alpha1.ConditionReachable,
				metav1.ConditionTrue))
		}
	}
}

// extend sets the extensions of the schematic.
func (w *world) extend(extensions ...string) {
	w.t.Helper()
	change(w, &v1alpha1.TalosControlPlane{}, "full", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.ClusterImage.Schematic.Extensions = extensions
	})
}

// changeSchematic adds an extension, for which one machine reboots after the other. With that boot, volumes have both keys.
func (w *world) changeSchematic() {
	w.t.Helper()

	all := append(slices.Clone(fullExtensions), thirdExtension)
	before, check := w.boots(), w.watchReboots("full", fullControlPlane...)
	rebooted := func(n *node.Node) bool { return n.Status().BootID != before[n.Status().Address] }
	installs, early := w.controlPlaneFirst(fullControlPlane, fullWorkers, rebooted)

	w.extend(all...)

	// Between the config and the installer, a machine may look up to date.
	for _, i := range fullMachines {
		w.runsFull(i, all, 0, "EPHEMERAL/0 nodeID", "EPHEMERAL/1 kms")
		w.served(i, "ups@172.20.151.6")
	}

	w.eventually("the third extension is everywhere", w.groupsUpToDate("full"))
	check()

	if rebooted := w.rebooted(before); len(rebooted) != len(fullMachines) {
		w.t.Errorf("only %v rebooted", rebooted)
	}

	if early.Load() != 0 || installs.Load() == 0 {
		w.t.Errorf("workers installed %d times, %d of them before the control plane", installs.Load(), early.Load())
	}

	w.eventually("the schematic has one record", w.recordsSchematic("full", len(fullMachines)))
}

// recordsSchematic: one record of Talos has no other version than before, and has succeeded on so many machines.
func (w *world) recordsSchematic(cluster string, machines int) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &v1alpha1.TalosUpgradeList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		count := 0

		for _, r := range list.Items {
			if r.Spec.ControlPlaneRef.Name == cluster && r.Spec.From == r.Spec.To {
				count++

				if st := &r.Status; st.Phase != v1alpha1.UpgradeRunSucceeded || int(st.Done) != machines {
					return fmt.Errorf("%s is %s, %s: %s", r.Name, st.Phase, st.Progress, st.Message)
				}
			}
		}

		if count != 1 {
			return fmt.Errorf("there are %d records", count)
		}

		return nil
	}
}

// refuseFull tries what cannot be done.
func (w *world) refuseFull() {
	w.t.Helper()

	rename := func(from, to string) func() {
		return func() {
			w.editMachine(12, func(m *v1alpha1.MachineEntry) {
				m.StaticPods[0].Raw = []byte(strings.Replace(string(m.StaticPods[0].Raw), from, to, 1))
			})
		}
	}
	w.refused(&v1alpha1.TalosControlPlane{}, "full", v1alpha1.ConditionReady, v1alpha1.ReasonInvalidSpec, "kube-apiserver",
		rename(`"name":"lldpd","namespace"`, `"name":"kube-apiserver","namespace"`),
		rename(`"name":"kube-apiserver","namespace"`, `"name":"lldpd","namespace"`))

	w.refused(&v1alpha1.TalosMachine{}, fullNames[22], v1alpha1.ConditionUpToDate, v1alpha1.ReasonExtensionsLost,
		"nut-client",
		func() { w.extend(fullExtensions[0]) }, func() { w.extend(fullExtensions...) })
}

// wantSecureBoot asks for Secure Boot on a machine that was installed without. It goes on as it is, is sent nothing, and its
// status says what differs.
func (w *world) wantSecureBoot() {
	w.t.Helper()

	const machine = 13

	w.refused(&v1alpha1.TalosMachine{}, fullNames[machine], v1alpha1.ConditionUpToDate, v1alpha1.ReasonSecureBootOff,
		"it runs without Secure Boot", func() {
			w.editMachine(machine, func(m *v1alpha1.MachineEntry) {
				m.Install = &v1alpha1.InstallOptions{ImageOptions: v1alpha1.ImageOptions{SecureBoot: new(true)}}
			})
		}, func() { w.editMachine(machine, func(m *v1alpha1.MachineEntry) { m.Install = nil }) })

	if i := w.machine(fullNames[machine]).Status.Image; i.MatchesSpec == nil || !*i.MatchesSpec || *i.SecureBoot {
		w.t.Errorf("its image is %+v", i)
	}
}

// joinSecurely adds a worker that is to have Secure Boot, and was booted without it. It waits until it was booted with it.
func (w *world) joinSecurely() {
	w.t.Helper()

	const machine = 23

	n, m := w.boot(machine, func(o *node.Options) { o.Links = []string{"eth1"} }), &v1alpha1.TalosMachine{}

	change(w, &v1alpha1.TalosWorker{}, "full-workers", func(g *v1alpha1.TalosWorker) {
		g.Spec.Machines = append(g.Spec.Machines, v1alpha1.MachineEntry{
			Name: "full-w-2", Address: w.address(machine),
			NodeOptions: v1alpha1.NodeOptions{Install: &v1alpha1.InstallOptions{
				ImageOptions: v1alpha1.ImageOptions{SecureBoot: new(true)},
			}},
		})
	})
	w.eventually("it waits for Secure Boot", w.condition(m, "full-w-2", v1alpha1.ConditionReady, metav1.ConditionFalse,
		v1alpha1.ReasonSecureBootOff))

	if calls := n.Faults().MutatingCalls(); calls > 0 {
		w.t.Errorf("%d calls to a machine without Secure Boot", calls)
	}
}
