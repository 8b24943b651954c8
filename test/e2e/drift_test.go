package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/configpatcher"
	"github.com/siderolabs/talos/pkg/machinery/resources/config"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/wait"
)

// liveConfig reads the config of a node with the official client.
func (w *world) liveConfig(cluster, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()

	res, err := safe.ReaderGet[*config.MachineConfig](talosclient.WithNode(ctx, address), w.talos(cluster).COSI,
		resource.NewMetadata(config.NamespaceName, config.MachineConfigType, config.ActiveID, resource.VersionUndefined))
	if err != nil {
		return nil, err
	}

	return res.Container().Bytes()
}

// editByHand patches the config of a node with the official client, as talosctl patch does.
func (w *world) editByHand(cluster, address, patch string) {
	w.t.Helper()

	p, err := configpatcher.LoadPatch([]byte(patch))
	if err != nil {
		w.t.Fatal(err)
	}

	w.eventually("an edit by hand", func(ctx context.Context) error {
		live, err := w.liveConfig(cluster, address)
		if err != nil {
			return err
		}

		cfg, err := configloader.NewFromBytes(live)
		if err != nil {
			return err
		}

		out, err := configpatcher.Apply(configpatcher.WithConfig(cfg), []configpatcher.Patch{p})
		if err != nil {
			return err
		}

		data, err := out.Bytes()
		if err != nil {
			return err
		}

		_, err = w.talos(cluster).ApplyConfiguration(talosclient.WithNode(ctx, address), &machineapi.ApplyConfigurationRequest{
			Data: data, Mode: machineapi.ApplyConfigurationRequest_NO_REBOOT,
		})

		return err
	})
}

// holds: the live config of a node has a text, or has it not.
func (w *world) holds(cluster, address, text string, want bool) func(context.Context) error {
	return func(context.Context) error {
		live, err := w.liveConfig(cluster, address)
		if err != nil {
			return err
		}

		if bytes.Contains(live, []byte(text)) != want {
			return fmt.Errorf("the config of %s holds %q: %t", address, text, !want)
		}

		return nil
	}
}

// TestDrift: an edit by hand is shown with its fields and left alone, undone, or kept, as the spec says. A change of the
// spec does not undo it without a person. While an edit is undone the node falls off the network and the manager is
// killed; while another one is taken over the manager is killed again.
func TestDrift(t *testing.T) {
	w := newWorld(t)
	for i := range 2 {
		w.boot(i + 1)
	}

	w.apply(clusterManifest("edited", w.address(1), []string{w.address(1)}, []string{w.address(2)}))
	w.running("edited")
	w.eventually("the first config is remembered", func(context.Context) error {
		if w.machine("edited-workers-0").Status.WorkingHash == "" {
			return errors.New("it is not")
		}

		return nil
	})

	w.reboot(2)
	w.fromDisk("edited", 1, 2)

	identity := w.identity("edited")
	worker, drifted := w.address(2), &v1alpha1.TalosMachine{}
	policy := func(p v1alpha1.DriftPolicy) {
		change(w, &vitistackv1alpha1.KubernetesCluster{}, "edited", func(k *vitistackv1alpha1.KubernetesCluster) { k.Spec.Drift = p })
	}

	edited := wait.Now()

	w.editByHand("edited", worker, "machine: {nodeLabels: {by: hand}, sysctls: {vm.swappiness: \"7\"}}")
	w.eventually("the edit shows", w.condition(drifted, "edited-workers-0", v1alpha1.ConditionDrifted, metav1.ConditionTrue))
	t.Logf("the edit showed after %s", wait.Now().Sub(edited).Round(time.Millisecond))

	m := w.machine("edited-workers-0")
	if !slices.ContainsFunc(m.Status.Drift, func(f v1alpha1.FieldChange) bool {
		return f.Field == "machine.nodeLabels.by" && f.New == "hand" && f.Old == ""
	}) || len(m.Status.Drift) != 2 {
		t.Errorf("the drift is %+v", m.Status.Drift)
	}

	w.says(0, "Drifted", "plan", "edited")
	w.idle(5 * time.Second)

	w.patchCluster("edited", "machine: {nodeLabels: {shelf: seven}}")
	w.plan(w.planOfWorkers("edited"), v1alpha1.PlanAwaitingApproval, "outside the operator on edited-workers-0")
	w.eventually("the control plane goes on", w.holds("edited", w.address(1), "shelf: seven", true))
	w.eventually("the edit is still there", w.holds("edited", worker, "by: hand", true))

	lost := w.cutOffAt("ApplyConfiguration", 2)

	policy(v1alpha1.DriftEnforce)
	w.reconnect(lost)
	w.eventually("the edit is undone", w.upToDate("edited"))
	w.eventually("it is gone", w.holds("edited", worker, "by: hand", false))

	policy(v1alpha1.DriftAdopt)
	w.eventually("the policy is there", w.upToDate("edited"))
	w.editByHand("edited", worker, "machine: {nodeLabels: {by: hand}}")
	w.killWithin(0, time.Second)
	w.eventually("the edit is taken over", func(context.Context) error {
		if m := w.machine("edited-workers-0"); !slices.Equal(m.Status.AdoptedFields, []string{"machine.nodeLabels.by"}) {
			return fmt.Errorf("%v", m.Status.AdoptedFields)
		}

		return nil
	})

	w.patchCluster("edited", "machine: {nodeLabels: {shelf: eight}}")
	w.eventually("a change of the spec goes through", w.upToDate("edited"))
	w.eventually("and keeps the edit", w.holds("edited", worker, "by: hand", true))
	w.eventually("and is there", w.holds("edited", worker, "shelf: eight", true))
	w.nodesReady("edited", 2)
	w.etcdMembers("edited", 1)
	w.eventually("the last configs are remembered", w.remembered)
	w.idle(5 * time.Second)
	w.sameIdentity("edited", identity)
	w.searchSecrets("edited")
}

// remembered: every machine was healthy with the config that it has, and that was written down.
func (w *world) remembered(ctx context.Context) error {
	list := &v1alpha1.TalosMachineList{}
	if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
		return err
	}

	for _, m := range list.Items {
		if s := m.Status; s.Change != nil || s.WorkingHash == "" || s.WorkingHash != s.ConfigHash {
			return fmt.Errorf("%s has config %s, worked with %s, and changes %+v", m.Name, s.ConfigHash, s.WorkingHash, s.Change)
		}
	}

	return nil
}

// cutOffAt takes a machine off the network at the next call of a method that asks it for a change.
func (w *world) cutOffAt(method string, machine int) <-chan *node.Node {
	n, lost := w.nodes[w.address(machine)], make(chan *node.Node, 1)

	var once sync.Once

	w.t.Cleanup(n.Faults().Subscribe(func(c apid.Call) {
		if c.Mutating && strings.HasSuffix(c.Method, "/"+method) {
			once.Do(func() {
				n.Partition(true)
				lost <- n
			})
		}
	}))

	return lost
}

// reconnect kills the manager while a machine is off the network, and once more when it is back.
func (w *world) reconnect(lost <-chan *node.Node) {
	w.t.Helper()

	n := w.hit(lost)
	w.killAtRandom(1)
	n.Partition(false)
	w.killWithin(0, 2*time.Second)
}

// hit waits for the machine that a fault strikes.
func (w *world) hit(struck <-chan *node.Node) *node.Node {
	w.t.Helper()

	return wait.Done(w.t, "the moment for the fault", struck)
}
