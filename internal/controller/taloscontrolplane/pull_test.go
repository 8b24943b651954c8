package taloscontrolplane_test

import (
	"context"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/talos-operator/talos-operator/api/v1alpha1"
	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// stalled powers on machines whose etcd does not get its image.
func (e *env) stalled(size int) (*v1alpha1.TalosControlPlane, []*node.Node) {
	e.Helper()

	var nodes []*node.Node
	for i := range size {
		n := e.boot(i)
		n.StallPulls(true)

		nodes = append(nodes, n)
	}

	cp := e.create(size)
	if _, err := e.pass(cp); err != nil {
		e.Fatal(err)
	}

	e.configured(nodes...)
	e.configure(e.state(), nodes...)

	return cp, nodes
}

// apply sends a node the configuration of its cluster again.
func (e *env) apply(n *node.Node) {
	e.Helper()

	config, err := harness.Config(e.state(), configmachine.TypeControlPlane)
	if err != nil {
		e.Fatal(err)
	}

	e.Eventually(n.Name()+" takes a config", func(ctx context.Context) error {
		return harness.Ask(ctx, n, e.state(), func(c *talos.Node) error {
			_, err := c.Apply(ctx, config, talos.ApplyOptions{Mode: talos.ApplyNoReboot})

			return err
		})
	})
}

// TestBootstrapWaitsForTheImage: a bootstrap restarts the etcd service, and with it the pull of its image, so no node
// is bootstrapped before it has the image; after some time the conditions report the cause. Once the image is there,
// the bootstrap follows.
func TestBootstrapWaitsForTheImage(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.stalled(1)

	e.pass(cp)
	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonBootstrapping,
		"waiting for cp-0 to pull registry.k8s.io/etcd:")

	e.Clock.Sleep(6 * time.Minute)
	e.pass(cp)

	for _, kind := range []string{
		v1alpha1.ConditionBootstrapped, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionReady,
	} {
		e.Condition(cp, kind, metav1.ConditionFalse, v1alpha1.ReasonEtcdImagePull, "cp-0 has been pulling registry.k8s.io/etcd:")
	}

	if n := nodes[0].Faults().Calls("Bootstrap"); n != 0 {
		t.Errorf("%d bootstraps on a node that pulls", n)
	}

	nodes[0].StallPulls(false)
	e.until(cp, "etcd is bootstrapped", func() bool { return bootstrapped(cp) })
	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionTrue, v1alpha1.ReasonEtcdHealthy, "")
}

// TestInterruptedPull: after a bootstrap, a configuration interrupts the pull of the etcd image, and the node pulls
// forever. It is not bootstrapped again meanwhile, the conditions say what to do, and that helps.
func TestInterruptedPull(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.stalled(1)
	n := nodes[0]

	// Another actor is faster than the image.
	at := e.Clock.Now()
	e.record(func(s *clusterstate.State) {
		s.Runtime.OwnerUID = string(cp.UID)
		s.Runtime.Bootstrap = &clusterstate.Bootstrap{Machine: "cp-0", Address: n.Address(), IntentAt: at}
	})
	e.Eventually("cp-0 takes a bootstrap", func(ctx context.Context) error {
		return harness.Ask(ctx, n, e.state(), func(c *talos.Node) error { return c.Bootstrap(ctx) })
	})
	e.Eventually("it pulls again", func(ctx context.Context) error { return harness.Prepares(ctx, n, e.state()) })
	e.apply(n)
	n.StallPulls(false)

	e.pass(cp)
	e.Clock.Sleep(6 * time.Minute)
	e.pass(cp)

	calls := n.Faults().Calls("Bootstrap")

	for range 3 {
		e.Clock.Sleep(time.Minute)
		e.pass(cp)
	}

	e.Condition(cp, v1alpha1.ConditionEtcdHealthy, metav1.ConditionFalse, v1alpha1.ReasonEtcdImagePull, "reboot the machine")
	e.Condition(cp, v1alpha1.ConditionBootstrapped, metav1.ConditionFalse, v1alpha1.ReasonEtcdImagePull, "since ")

	if again := n.Faults().Calls("Bootstrap"); again != calls {
		t.Errorf("%d bootstraps while it pulls", again-calls)
	}

	boot := n.Status().BootID
	e.Eventually("cp-0 takes a reboot", func(ctx context.Context) error {
		if n.Status().BootID != boot {
			return nil
		}

		_ = harness.Ask(ctx, n, e.state(), func(c *talos.Node) error { return c.Reboot(ctx) })

		return wait.True(n.Status().BootID != boot)
	})
	e.until(cp, "etcd is healthy", func() bool {
		return bootstrapped(cp) && n.Status().EtcdMember != ""
	})
}

// TestNoConfigInterruptsAPull: no change begins on a node that is pulling the etcd image. After some time it does,
// because it may repair the pull.
func TestNoConfigInterruptsAPull(t *testing.T) {
	e := newEnv(t)
	cp, _ := e.stalled(1)

	e.show(cp, 0, func(m *v1alpha1.TalosMachine) {
		pending(m)
		m.Status.Change.Etcd, m.Status.Change.Reboot = false, false
	})
	e.pass(cp)

	if got := e.granted(1); got != "" {
		t.Errorf("%s may begin while it pulls", got)
	}

	e.Condition(cp, v1alpha1.ConditionUpToDate, metav1.ConditionFalse, v1alpha1.ReasonRolloutWaiting,
		"cp-0: waiting for it to pull registry.k8s.io/etcd:")

	e.Clock.Sleep(6 * time.Minute)
	e.pass(cp)

	if got := e.granted(1); got != "cp-0" {
		t.Errorf("%q may begin when the pull has no end", got)
	}
}
