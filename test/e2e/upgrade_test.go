package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	vitistackv1alpha1 "github.com/talos-operator/talos-operator/api/vitistack/v1alpha1"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
)

// newer is the version that the tests upgrade to.
const newer = "v1.13.10"

// upgrade changes the version of Talos in the spec of a cluster, and lets the operator bring it about.
func (w *world) upgrade(cluster, version string) {
	w.t.Helper()
	change(w, &vitistackv1alpha1.KubernetesCluster{}, cluster, func(k *vitistackv1alpha1.KubernetesCluster) {
		k.Spec.TalosVersion = version
		k.Spec.Upgrade = &v1alpha1.UpgradeOptions{Talos: v1alpha1.UpgradeAutomatic}
	})
}

// runsTalosNow: so many machines of a cluster run a version.
func (w *world) runsTalosNow(cluster, version string, machines int) func(context.Context) error {
	return func(ctx context.Context) error {
		list := &v1alpha1.TalosMachineList{}
		if err := w.client.List(ctx, list, client.InNamespace(w.ns)); err != nil {
			return err
		}

		count := 0

		for i := range list.Items {
			if m := &list.Items[i]; strings.HasPrefix(m.Name, cluster+"-") && m.Status.TalosVersion == version {
				count++
			}
		}

		if count != machines {
			return fmt.Errorf("%d of %d machines run %s", count, machines, version)
		}

		return nil
	}
}

// runsTalos: so many machines of a cluster run a version, no upgrade is left, and everything is up to date.
func (w *world) runsTalos(cluster, version string, machines int) func(context.Context) error {
	return func(ctx context.Context) error {
		cp := &v1alpha1.TalosControlPlane{}

		err := errors.Join(w.runsTalosNow(cluster, version, machines)(ctx),
			w.client.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: cluster}, cp))
		if err != nil {
			return err
		}

		if u := cp.Status.Upgrade; u != nil {
			return fmt.Errorf("%+v is left", u)
		}

		return w.upToDate(cluster)(ctx)
	}
}

// controlPlaneFirst watches that no worker installs anything before the control-plane machines are done. It returns how
// often a worker installed, and how often too early.
func (w *world) controlPlaneFirst(
	controlPlanes, workers []int, done func(*node.Node) bool,
) (all, early *atomic.Int32) {
	all, early = &atomic.Int32{}, &atomic.Int32{}

	for _, i := range workers {
		w.t.Cleanup(w.nodes[w.address(i)].Faults().Subscribe(func(c apid.Call) {
			if !strings.HasSuffix(c.Method, "LifecycleService/Upgrade") {
				return
			}

			all.Add(1)

			for _, j := range controlPlanes {
				if !done(w.nodes[w.address(j)]) {
					early.Add(1)
				}
			}
		}))
	}

	return all, early
}

// runs reports whether a machine runs a version of Talos.
func runs(version string) func(*node.Node) bool {
	return func(n *node.Node) bool { return n.Status().TalosVersion == version }
}

// TestUpgradeOfTalos: a new version in the spec becomes one machine after the other, control plane first, with the
// power cut during a reboot and the manager killed in between; etcd never loses its quorum, and each machine boots once
// for it, but for the one whose power was cut.
func TestUpgradeOfTalos(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 5; i++ {
		w.boot(i)
	}

	w.apply(clusterManifest("newer", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4), w.address(5)}))
	w.running("newer")
	w.eventually("nothing is left to do", w.upToDate("newer"))

	before := w.boots()
	check := w.watchReboots("newer", 1, 2, 3)
	dark := w.cutWhileRebooting(1, 2, 3)
	installs, early := w.controlPlaneFirst([]int{1, 2, 3}, []int{4, 5}, runs(newer))

	w.upgrade("newer", newer)
	w.killAtRandom(1)

	n := w.hit(dark)

	w.killAtRandom(1)

	if err := n.PowerOn(context.Background()); err != nil {
		t.Fatal(err)
	}

	w.killAtRandom(1)
	w.eventually("everything runs "+newer, w.runsTalos("newer", newer, 5))
	check()

	if rebooted := w.rebooted(before); len(rebooted) != 5 {
		t.Errorf("only %v rebooted", rebooted)
	}

	if installs.Load() < 2 || early.Load() > 0 {
		t.Errorf("workers have installed %d times, %d times before the control plane", installs.Load(), early.Load())
	}

	after := w.boots()

	w.running("newer")
	w.nodesReady("newer", 5)
	w.eventually("no node is cordoned", w.schedulable("newer", 5))
	w.oneEtcd("newer", 3)
	w.idle(5 * time.Second)

	if rebooted := w.rebooted(after); len(rebooted) > 0 {
		t.Errorf("%v rebooted again", rebooted)
	}

	// What is older than what runs is refused, and nothing moves.
	w.upgrade("newer", "v1.13.9")
	w.eventually("the older version is refused", w.condition(&v1alpha1.TalosControlPlane{}, "newer",
		v1alpha1.ConditionUpToDate, "False", v1alpha1.ReasonDowngradeRefused))
	w.idle(5 * time.Second)

	if rebooted := w.rebooted(after); len(rebooted) > 0 {
		t.Errorf("%v rebooted for an older version", rebooted)
	}

	w.searchSecrets("newer")
}

// TestUpgradeThatDoesNotBoot: a system that does not boot is booted on one machine, once, and the rest of the cluster
// stays as it is; when the spec names one that boots, everything runs it.
func TestUpgradeThatDoesNotBoot(t *testing.T) {
	w := newWorld(t)
	for i := 1; i <= 4; i++ {
		w.boot(i)
	}

	w.apply(clusterManifest("stuck", w.address(1), []string{w.address(1), w.address(2), w.address(3)},
		[]string{w.address(4)}))
	w.running("stuck")
	w.eventually("nothing is left to do", w.upToDate("stuck"))

	before := w.boots()
	image := func(tag string) {
		change(w, &vitistackv1alpha1.KubernetesCluster{}, "stuck", func(k *vitistackv1alpha1.KubernetesCluster) {
			k.Spec.TalosConfig = &vitistackv1alpha1.TalosConfig{
				Install: &vitistackv1alpha1.InstallConfig{Image: "ghcr.io/siderolabs/installer:" + tag},
			}
		})
	}

	image(newer + "-broken-boot")
	w.upgrade("stuck", newer)
	w.plan(w.planOfControlPlane("stuck"), v1alpha1.PlanStopped, "rolled back by itself")
	w.idle(5 * time.Second)

	if rebooted := w.rebooted(before); len(rebooted) != 1 {
		t.Errorf("%v rebooted", rebooted)
	}

	w.eventually("no node is cordoned", w.schedulable("stuck", 4))
	w.oneEtcd("stuck", 3)

	image(newer)
	w.eventually("everything runs "+newer, w.runsTalos("stuck", newer, 4))
	w.running("stuck")
}
