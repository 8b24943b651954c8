package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
)

// Machines reboot once when they have installed themselves, so scenarios begin on nodes that were sent nothing since they
// booted: MachineConfigs/persistent is absent. Some of them boot again with what they hold by then, and some are sent
// their config once more, so that each scenario meets nodes of both kinds.

// reboot has machines boot anew, one after another, and waits for each of them to be well, in the eyes of the operator
// as well.
func (w *world) reboot(machines ...int) {
	w.t.Helper()

	for _, i := range machines {
		n := w.nodes[w.address(i)]

		if err := errors.Join(n.PowerOff(context.Background()), n.PowerOn(context.Background())); err != nil {
			w.t.Fatal(err)
		}

		w.eventually(n.Name()+" is well after its reboot", func(ctx context.Context) error {
			st := n.Status()
			if st.Stage != "running" || !st.Ready {
				return fmt.Errorf("%+v", st)
			}

			return w.knows(ctx, n.Address(), st.BootID)
		})
	}
}

// knows: the TalosMachine at an address, if there is one, is ready in a boot.
func (w *world) knows(ctx context.Context, address, boot string) error {
	list := &v1alpha1.TalosMachineList{}
	if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
		return err
	}

	for _, m := range list.Items {
		if m.Status.Address == address &&
			(m.Status.BootID != boot || !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady)) {
			return fmt.Errorf("%s is known in boot %s, and %+v", m.Name, m.Status.BootID, m.Status.Conditions)
		}
	}

	return nil
}

// sendAgain has machines of a cluster take the config that they run once more, as talosctl apply-config does.
func (w *world) sendAgain(cluster string, machines ...int) {
	w.t.Helper()

	for _, i := range machines {
		w.eventually("machine "+w.address(i)+" takes its config again", func(ctx context.Context) error {
			live, err := w.liveConfig(cluster, w.address(i))
			if err != nil {
				return err
			}

			_, err = w.talos(cluster).ApplyConfiguration(talosclient.WithNode(ctx, w.address(i)),
				&machineapi.ApplyConfigurationRequest{Data: live, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT})

			return err
		})
		w.configs(cluster, i, config.PersistentID, config.ActiveID)
	}
}

// fromDisk: machines have booted from their disk, and were sent no config since.
func (w *world) fromDisk(cluster string, machines ...int) {
	w.t.Helper()

	for _, i := range machines {
		w.configs(cluster, i, config.ActiveID)
	}
}

// configs: a machine shows these configs, and no others.
func (w *world) configs(cluster string, machine int, want ...resource.ID) {
	w.t.Helper()

	var got []resource.ID

	w.eventually("machine "+w.address(machine)+" shows its configs", func(ctx context.Context) error {
		list, err := safe.ReaderList[*config.MachineConfig](talosclient.WithNode(ctx, w.address(machine)), w.talos(cluster).COSI,
			resource.NewMetadata(config.NamespaceName, config.MachineConfigType, "", resource.VersionUndefined))
		if err != nil {
			return err
		}

		got = nil
		for res := range list.All() {
			got = append(got, res.Metadata().ID())
		}

		return nil
	})

	slices.Sort(got)

	if !slices.Equal(got, want) {
		w.t.Errorf("machine %s shows the configs %v, and should %v", w.address(machine), got, want)
	}
}
