package node_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cosi-project/runtime/pkg/safe"
	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"
	"github.com/siderolabs/talos/pkg/machinery/resources/kubespan"

	"github.com/talos-operator/talos-operator/test/wait"
)

// TestKubeSpan: a node shows the other nodes that have KubeSpan as its peers, those that are off the network as down.
func TestKubeSpan(t *testing.T) {
	t.Parallel()

	const on = "apiVersion: v1alpha1\nkind: KubeSpanConfig\nenabled: true\n"

	f := newFleet(t, true)
	first, worker, other := f.boot(1), f.boot(2), f.boot(3)

	f.first(first, f.render(configmachine.TypeControlPlane, on))
	f.first(worker, f.render(configmachine.TypeWorker, on))
	f.first(other, f.render(configmachine.TypeWorker))

	c := f.client(first)
	shows := func(what string, want kubespan.PeerState) {
		wait.For(t, what, func(ctx context.Context) error {
			list, err := safe.StateListAll[*kubespan.PeerStatus](ctx, c.COSI)
			if err != nil {
				return err
			}

			if list.Len() != 1 {
				return fmt.Errorf("%d peers", list.Len())
			}

			if got := list.Get(0).TypedSpec(); got.State != want ||
				want == kubespan.PeerStateUp && got.Endpoint.Addr().String() != worker.Address() {
				return fmt.Errorf("peer %+v", got)
			}

			return nil
		})
	}

	shows("the worker is up", kubespan.PeerStateUp)
	worker.Kill()
	shows("the worker is down", kubespan.PeerStateUnknown)
}
