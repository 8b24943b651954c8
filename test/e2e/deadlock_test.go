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

	machineapi "github.com/siderolabs/talos/pkg/machinery/api/machine"
	talosclient "github.com/siderolabs/talos/pkg/machinery/client"
	"google.golang.org/grpc/codes"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestDeadlocksOfMembers and TestDeadlocksOfRecords rebuild situations out of which other fleet managers did not find.
// They are named after their issues: cacppt is cluster-api-control-plane-provider-talos. The nodes are modelled: what
// matters are the decisions.
func TestDeadlocksOfMembers(t *testing.T) {
	w := newWorld(t)
	w.run(t, "cacppt-237", (*world).cacppt237)
	w.run(t, "cacppt-262", (*world).cacppt262)
	w.run(t, "omni-1995", (*world).omni1995)
}

// TestDeadlocksOfRecords: see TestDeadlocksOfMembers.
func TestDeadlocksOfRecords(t *testing.T) {
	w := newWorld(t)
	w.run(t, "omni-3146", (*world).omni3146)
	w.run(t, "omni-3146, a dead worker", (*world).deadWorker)
}

// run is a part of a test that has a world in common with others.
func (w *world) run(t *testing.T, name string, part func(*world)) {
	t.Run(name, func(t *testing.T) {
		outer := w.t
		w.t = t

		defer func() { w.t = outer }()

		part(w)
	})
}

// modelledCluster makes a cluster by hand from the machines of these indexes, and waits for it.
func (w *world) modelledCluster(name string, controlPlane, spares []int, workers ...int) {
	w.t.Helper()

	for _, i := range slices.Concat(controlPlane, spares, workers) {
		w.boot(i)
	}

	cp := &v1alpha1.TalosControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec: v1alpha1.TalosControlPlaneSpec{
			TalosVersion: "v1.13.9", KubernetesVersion: "v1.36.2", Endpoint: "https://" + w.address(controlPlane[0]) + ":6443",
			Machines: w.entries("cp", controlPlane...), Spares: w.entries("cp", spares...),
		},
	}
	group := &v1alpha1.TalosWorker{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name + "-workers"},
		Spec: v1alpha1.TalosWorkerSpec{
			ControlPlaneRef: v1alpha1.ObjectReference{Name: name}, Machines: w.entries("w", workers...),
		},
	}

	for _, o := range []client.Object{cp, group} {
		if err := w.client.Create(context.Background(), o); err != nil {
			w.t.Fatal(err)
		}
	}

	w.whole(name)
}

// runs waits until a cluster has these machines and no others, all ready, and is healthy with them.
func (w *world) runs(cluster string, members int, want ...string) {
	w.t.Helper()
	w.eventually(cluster+" runs on "+strings.Join(want, ", "), func(ctx context.Context) error {
		list := &v1alpha1.TalosMachineList{}

		err := w.client.List(ctx, list, client.InNamespace(w.ns), client.MatchingLabels{v1alpha1.ControlPlaneLabel: cluster})
		if err != nil {
			return err
		}

		var got []string

		for _, m := range list.Items {
			if !meta.IsStatusConditionTrue(m.Status.Conditions, v1alpha1.ConditionReady) || !m.DeletionTimestamp.IsZero() {
				return fmt.Errorf("%s of %d: %+v", m.Name, len(list.Items), m.Status.Conditions)
			}

			got = append(got, m.Name)
		}

		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("the machines are %v", got)
		}

		return errors.Join(
			w.condition(&v1alpha1.TalosControlPlane{}, cluster, v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx),
			w.condition(&v1alpha1.TalosControlPlane{}, cluster, v1alpha1.ConditionUpToDate, metav1.ConditionTrue)(ctx),
			w.condition(&v1alpha1.TalosWorker{}, cluster+"-workers", v1alpha1.ConditionReady, metav1.ConditionTrue)(ctx))
	})
	w.etcdMembers(cluster, members)
}

// calls counts the calls of a method to all nodes.
func (w *world) calls(method string) int {
	total := 0
	for _, n := range w.nodes {
		total += n.Faults().Calls(method)
	}

	return total
}

// cacppt237 crashes right after a member has left etcd, before anything else: from then on there are fewer members than
// machines. The scale-down goes on where it was.
func (w *world) cacppt237() {
	w.modelledCluster("left", []int{1, 2, 3}, nil)

	before := w.identity("left")
	delete(before.boots, w.address(2))
	delete(before.boots, w.address(3))

	var once sync.Once

	crashed := make(chan struct{})

	for _, n := range w.nodes {
		w.t.Cleanup(n.Faults().Subscribe(func(c apid.Call) {
			if strings.HasSuffix(c.Method, "/EtcdLeaveCluster") {
				once.Do(func() {
					w.manager.kill()
					close(crashed)
				})
			}
		}))
	}

	change(w, &v1alpha1.TalosControlPlane{}, "left", func(cp *v1alpha1.TalosControlPlane) {
		cp.Spec.Machines = w.entries("cp", 1)
	})

	wait.Done(w.t, "a member leaves etcd", crashed)

	w.manager = w.startManager(w.plane)
	w.runs("left", 1, "cp-1")
	w.sameIdentity("left", before)

	if calls := w.calls("EtcdLeaveCluster"); calls > 3 {
		w.t.Errorf("two members left %d times", calls)
	}
}

// cacppt262: the etcd of a node that is up has stopped for good, and has left the list. That stops neither the
// replacement of the machine nor what comes after it.
func (w *world) cacppt262() {
	w.modelledCluster("stopped", []int{11, 12, 13}, []int{14})

	ctx := talosclient.WithNode(context.Background(), w.address(12))
	if err := w.talos("stopped").EtcdLeaveCluster(ctx, &machineapi.EtcdLeaveClusterRequest{}); err != nil {
		w.t.Fatal(err)
	}

	w.eventually("the loss shows", w.condition(&v1alpha1.TalosControlPlane{}, "stopped",
		v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse))
	w.says(0, "is to be replaced", "replace", "cp-12")
	w.runs("stopped", 3, "cp-11", "cp-13", "cp-14")
	w.wiped(12)
}

// omni1995: the etcd of a node that is up does not respond, and its member is on the list. It cannot leave by itself.
func (w *world) omni1995() {
	w.modelledCluster("looping", []int{21, 22, 23}, []int{24})

	for _, method := range []string{"EtcdStatus", "EtcdMemberList", "EtcdForfeitLeadership", "EtcdLeaveCluster"} {
		w.nodes[w.address(22)].Faults().Fail(method, codes.Unavailable, 1, 0)
	}

	w.eventually("the crash loop shows", w.condition(&v1alpha1.TalosControlPlane{}, "looping",
		v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse))
	w.says(0, "is to be replaced", "replace", "cp-22")
	w.runs("looping", 3, "cp-21", "cp-23", "cp-24")
	w.wiped(22)

	if calls := w.calls("EtcdRemoveMemberByID"); calls != 1 {
		w.t.Errorf("%d members were removed by others", calls)
	}
}

func (w *world) wiped(i int) {
	w.t.Helper()

	if s := w.nodes[w.address(i)].Status(); s.Stage != "maintenance" {
		w.t.Errorf("machine %d is not wiped: %+v", i, s)
	}
}

// omni3146: a node that was brought back is listed under a new name, so that there are two records of it, and the old
// one has the only member, or one of three. The old record goes; the node and its data stay.
func (w *world) omni3146() {
	w.modelledCluster("single", []int{1}, nil, 2)
	w.modelledCluster("triple", []int{11, 12, 13}, nil)

	resets, leaves := w.calls("Reset"), w.calls("EtcdLeaveCluster")
	before := w.identity("single")
	rename := func(cluster string, index int, entries ...v1alpha1.MachineEntry) {
		change(w, &v1alpha1.TalosControlPlane{}, cluster, func(cp *v1alpha1.TalosControlPlane) {
			for i := range entries {
				if entries[i].Address == w.address(index) {
					entries[i].Name = "again-" + fmt.Sprint(index)
				}
			}

			cp.Spec.Machines = entries
		})
	}

	rename("single", 1, w.entries("cp", 1)...)
	rename("triple", 12, w.entries("cp", 11, 12, 13)...)
	change(w, &v1alpha1.TalosWorker{}, "single-workers", func(g *v1alpha1.TalosWorker) {
		g.Spec.Machines[0].Name = "again-2"
	})

	w.runs("single", 1, "again-1", "again-2")
	w.runs("triple", 3, "again-12", "cp-11", "cp-13")

	if r, l := w.calls("Reset"), w.calls("EtcdLeaveCluster"); r != resets || l != leaves {
		w.t.Errorf("%d resets, %d members left", r-resets, l-leaves)
	}

	if after := w.identity("single"); after.fingerprint != before.fingerprint || after.bootstraps != before.bootstraps {
		w.t.Errorf("another PKI or bootstrap: %+v, %+v", before, after)
	}
}

// deadWorker: a worker that does not come back keeps no change from the others once it counts as gone, although only
// one may be unavailable at a time. When it does come back it gets the change as well.
func (w *world) deadWorker() {
	w.modelledCluster("widow", []int{21}, nil, 22, 23, 24)
	change(w, &v1alpha1.TalosWorker{}, "widow-workers", func(g *v1alpha1.TalosWorker) {
		g.Spec.Remediation = &v1alpha1.RemediationOptions{Timeout: metav1.Duration{Duration: 10 * time.Second}}
	})
	w.nodes[w.address(22)].Kill()
	w.eventually("the death shows",
		w.condition(&v1alpha1.TalosMachine{}, "w-22", v1alpha1.ConditionReachable, metav1.ConditionFalse))

	labelled := func(indexes ...int) func(context.Context) error {
		return func(context.Context) error {
			for _, i := range indexes {
				if live, err := w.liveConfig("widow", w.address(i)); err != nil || !bytes.Contains(live, []byte("shelf:")) {
					return fmt.Errorf("machine %d is not changed: %w", i, err)
				}
			}

			return nil
		}
	}

	change(w, &v1alpha1.TalosWorker{}, "widow-workers", func(g *v1alpha1.TalosWorker) {
		g.Spec.NodeLabels = map[string]string{"shelf": "7"}
	})
	w.eventually("the others are changed", labelled(23, 24))

	if err := w.nodes[w.address(22)].PowerOn(context.Background()); err != nil {
		w.t.Fatal(err)
	}

	w.eventually("it is changed, too", labelled(22, 23, 24))
	w.runs("widow", 1, "cp-21", "w-22", "w-23", "w-24")
}
