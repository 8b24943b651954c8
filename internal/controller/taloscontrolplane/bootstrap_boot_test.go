package taloscontrolplane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/talos-operator/talos-operator/internal/clusterstate"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/harness"
	"github.com/talos-operator/talos-operator/test/wait"
)

// TestBootstrapIsForOneBoot: the evidence for a bootstrap concerns one boot of one machine. If the machine has rebooted
// since, or another one has its address, it is not bootstrapped before it was observed again.
func TestBootstrapIsForOneBoot(t *testing.T) {
	e := newEnv(t)
	cp, nodes := e.found(1)

	var once sync.Once

	e.Client.BeforeWrites(func(_ string, o client.Object) {
		secret, ok := o.(*corev1.Secret)
		if !ok {
			return
		}

		if state, err := clusterstate.Decode(secret.Data); err == nil && state.Runtime.Bootstrap != nil {
			once.Do(func() { e.reboots(nodes[0]) })
		}
	})

	if _, err := e.pass(cp); err == nil || harness.Calls("Bootstrap", nodes...) > 0 {
		t.Errorf("%d bootstraps of a node that has rebooted: %v", harness.Calls("Bootstrap", nodes...), err)
	}

	e.Clock.Sleep(time.Minute)
	e.until(cp, "etcd answers", func() bool { return bootstrapped(cp) })

	if n := harness.Calls("Bootstrap", nodes...); n != 1 {
		t.Errorf("%d bootstraps", n)
	}
}

// reboots power-cycles a node, and waits until its etcd waits for a bootstrap in another boot.
func (e *env) reboots(n *node.Node) {
	e.Helper()

	before := n.Status().BootID
	n.Kill()

	if err := n.PowerOn(e.Context()); err != nil {
		e.Fatal(err)
	}

	e.Eventually("its etcd waits again", func(ctx context.Context) error {
		return errors.Join(wait.True(n.Status().BootID != before), harness.Prepares(ctx, n, e.state()))
	})
}
