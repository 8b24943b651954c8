package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestNodesComeBackOtherwise: a control-plane node comes back with another address, while the manager is dead, and
// stays the same member of the same cluster. Then a control-plane node and a worker die, are replaced by spares, and
// come back to life with all that they had: they are kept out and wiped, and the cluster does not notice.
func TestNodesComeBackOtherwise(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.boot(i + 1)
	}

	w.withSpares("back", nil)
	w.reboot(3, 4)
	w.sendAgain("back", 1)

	before := w.machine("cp-2")
	w.manager.kill()
	w.readdress(2, 52)
	w.manager = w.startManager(w.plane)
	w.eventually("it is missed", w.condition(&v1alpha1.TalosMachine{}, "cp-2", v1alpha1.ConditionReachable,
		metav1.ConditionFalse, v1alpha1.ReasonNodeUnreachable))

	change(w, &v1alpha1.TalosControlPlane{}, "back", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines[1].Address = w.address(52)
	})
	w.eventually("it is found at its new address", func(ctx context.Context) error {
		if m := w.machine("cp-2"); m.Status.Address != w.address(52) {
			return fmt.Errorf("it is looked for at %s: %+v", m.Status.Address, m.Status.Conditions)
		}

		return w.condition(&v1alpha1.TalosControlPlane{}, "back", v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx)
	})
	w.whole("back")

	if after := w.machine("cp-2"); after.Status.UUID != before.Status.UUID ||
		after.Status.EtcdMemberID != before.Status.EtcdMemberID {
		t.Errorf("the machine was %+v and is %+v", before.Status, after.Status)
	}

	w.eventually("etcd knows the member at its new address", w.peersAre("back", 1, 52, 3))
	w.eventually("Kubernetes knows the node at its new address", w.nodesSuch("back", 1, func(n corev1.Node) bool {
		return slices.Contains(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: w.address(52)})
	}))
	w.oneEtcdAt("back", 1, 52, 3)

	identity := w.identity("back")

	w.comeBackToLife("back")

	for _, i := range []int{3, 4, 5, 6} {
		delete(identity.boots, w.address(i)) // dead in between, or new in the cluster
	}

	w.sameIdentity("back", identity)
	w.idle(5 * time.Second)
	w.searchSecrets("back")
}

// comeBackToLife has spares take the place of two dead machines, and switches these on again afterwards.
func (w *world) comeBackToLife(cluster string) {
	w.t.Helper()

	remediation := &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: 10 * time.Second}}

	change(w, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) { cp.Spec.Remediation = remediation })
	change(w, &v1alpha1.TalosWorker{}, cluster+"-workers", func(g *v1alpha1.TalosWorker) { g.Spec.Remediation = remediation })

	dead := []int{3, 4}
	for _, i := range dead {
		w.nodes[w.address(i)].Kill()
	}

	w.eventually("spares take their places", w.machinesRun("cp-1", "cp-2", "cp-5", "w-6"))
	w.whole(cluster)

	w.manager.kill()

	for _, i := range dead {
		if err := w.nodes[w.address(i)].PowerOn(context.Background()); err != nil {
			w.t.Fatal(err)
		}
	}

	// The worker is in the cluster again, and does its work there.
	w.eventually("the dead worker is alive", w.nodesSuch(cluster, 1, func(n corev1.Node) bool {
		return n.Name == "w-4" && slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
	}))

	w.manager = w.startManager(w.plane)

	w.eventually("a person is asked", func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}
		if err := w.condition(cp, cluster, v1alpha1.ConditionFencing, metav1.ConditionTrue)(ctx); err != nil {
			return err
		}

		c := meta.FindStatusCondition(cp.Status.Conditions, v1alpha1.ConditionFencing)

		return wait.True(strings.Contains(c.Message, "reports its Node w-4 ready"))
	})

	if n := w.nodes[w.address(4)].Faults().Calls("Reset"); n != 0 {
		w.t.Errorf("a worker that is ready was reset %d times", n)
	}

	change(w, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
		metav1.SetMetaDataAnnotation(&cp.ObjectMeta, v1alpha1.WipeMachinesAnnotation, "cp-3,w-4")
	})
	w.eventually("they are wiped and forgotten", func(ctx context.Context) error {
		for _, i := range dead {
			if s := w.nodes[w.address(i)].Status(); s.Stage != "maintenance" {
				return fmt.Errorf("%+v", s)
			}
		}

		if left := w.state(cluster).Runtime.GivenUp; len(left) > 0 {
			return fmt.Errorf("the state has %+v", left)
		}

		return nil
	})
	w.eventually("an event tells of each", w.resetsTold(cluster, "cp-3", "w-4"))
	w.whole(cluster)
	w.nodesReady(cluster, 4)
	w.etcdMembers(cluster, 3)

	for _, i := range dead {
		if n := w.nodes[w.address(i)].Faults().Calls("Reset"); n != 1 {
			w.t.Errorf("%s was reset %d times", w.address(i), n)
		}
	}
}

// resetsTold checks that the resets of machines that were abandoned are told one by one.
func (w *world) resetsTold(cluster string, machines ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		for _, name := range machines {
			if !slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
				return e.InvolvedObject.Name == cluster && e.Reason == v1alpha1.ReasonMachineReturned &&
					e.Related != nil && e.Related.Name == name && strings.HasPrefix(e.Message, name+" at ")
			}) {
				return fmt.Errorf("no event of %s in %d", name, len(list.Items))
			}
		}

		return nil
	}
}

// readdress restarts a machine under another address.
func (w *world) readdress(from, to int) {
	w.t.Helper()

	n := w.nodes[w.address(from)]
	if err := n.Readdress(w.address(to)); err != nil {
		w.t.Fatal(err)
	}

	w.mu.Lock()
	delete(w.nodes, w.address(from))
	w.nodes[w.address(to)] = n
	w.mu.Unlock()

	if err := n.PowerOn(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) state(cluster string) *clusterstate.State {
	w.t.Helper()

	secret := &corev1.Secret{}
	w.get(secret, clusterstate.SecretName(cluster))

	st, err := clusterstate.Decode(secret.Data)
	if err != nil {
		w.t.Fatal(err)
	}

	return st
}

// peersAre: etcd has members at these machines and no others.
func (w *world) peersAre(cluster string, machines ...int) func(context.Context) error {
	return func(ctx context.Context) error {
		resp, err := w.talos(cluster).EtcdMemberList(ctx, &machineapi.EtcdMemberListRequest{})
		if err != nil {
			return err
		}

		for _, m := range resp.GetMessages() {
			var peers []string
			for _, e := range m.GetMembers() {
				peers = append(peers, e.GetPeerUrls()...)
			}

			for _, i := range machines {
				if !slices.Contains(peers, "https://"+w.address(i)+":2380") || len(peers) != len(machines) {
					return fmt.Errorf("the peers are %s", strings.Join(peers, ", "))
				}
			}
		}

		return nil
	}
}
