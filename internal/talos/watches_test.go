package talos_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	configmachine "github.com/siderolabs/talos/pkg/machinery/config/machine"

	"github.com/talos-operator/talos-operator/internal/failure"
	"github.com/talos-operator/talos-operator/internal/talos"
	"github.com/talos-operator/talos-operator/lab/apid"
	"github.com/talos-operator/talos-operator/lab/node"
	"github.com/talos-operator/talos-operator/test/loopback"
	"github.com/talos-operator/talos-operator/test/wait"
)

// sees waits until a stream has reported something.
func (s *stream) sees(t *testing.T, what string, want func(talos.Watched) bool) {
	t.Helper()

	var last talos.Watched

	wait.For(t, "the stream to report "+what, func(context.Context) error {
		for {
			select {
			case last = <-s.seen:
				if want(last) {
					return nil
				}
			case err := <-s.ended:
				t.Fatalf("the stream ended: %v", err)
			default:
				return fmt.Errorf("it reports %+v", last)
			}
		}
	})
}

// watchedBy waits until a node is watched with a number of streams of its API, which take most of the memory of a node.
func watchedBy(t *testing.T, n *node.Node, want int) {
	t.Helper()
	wait.For(t, fmt.Sprintf("%d watches", want), func(context.Context) error {
		if open := n.Faults().Open("/cosi.resource.State/Watch"); open != want {
			return fmt.Errorf("%d watches are open", open)
		}

		return nil
	})
}

// TestWatches: the stage, both services and the configuration of a node need three watches. The etcd member needs
// another one, only where there is etcd, and its start is reported like that of a member that was there from the
// beginning.
func TestWatches(t *testing.T) {
	registry, subnet := node.NewRegistry(), loopback.Subnet(t)
	c := newCluster(t, subnet+".1")
	first, worker := boot(t, subnet+".1", in(registry)), boot(t, subnet+".2", in(registry))
	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	creds := c.creds()
	ref := func(n *node.Node) talos.NodeRef {
		return talos.NodeRef{Key: "ns/" + n.Name(), Address: n.Address(), Credentials: creds}
	}

	c.configure(first)

	s := watch(t, pool, ref(first))
	s.sees(t, "etcd", func(w talos.Watched) bool { return w.Etcd != "" && w.Member == "" })
	watchedBy(t, first, 4)

	conn, err := pool.Node(t.Context(), ref(first))
	if err != nil {
		t.Fatal(err)
	}

	if err := conn.Bootstrap(t.Context()); err != nil {
		t.Fatal(err)
	}

	hasMember := func(w talos.Watched) bool {
		return w.Etcd == "running=true healthy=true" && w.Member != "" && w.Kubelet != "" && w.Config != ""
	}
	s.sees(t, "the member", hasMember)
	s.stop()
	watchedBy(t, first, 0)
	watch(t, pool, ref(first)).sees(t, "the member in a new stream", hasMember)

	c.configureWith(worker, c.config(configmachine.TypeWorker))
	watch(t, pool, ref(worker)).sees(t, "stage, kubelet and configuration", func(w talos.Watched) bool {
		return w.Stage == "running" && w.Kubelet != "" && w.Config != "" && w.Etcd == "" && w.Member == ""
	})
	watchedBy(t, worker, 3)
	watchedBy(t, first, 4)
}

// TestMemberWatchHangs: the watch of the member is opened in the middle of a stream, which ends when the node does not
// respond to that. What was reported until then counts.
func TestMemberWatchHangs(t *testing.T) {
	_, n, ref := member(t)
	n.Faults().Add(apid.Rule{Method: "/cosi.resource.State/Watch", From: 4, Delay: time.Hour})

	pool := talos.NewPool()
	t.Cleanup(pool.Close)

	s := watch(t, pool, ref)
	s.sees(t, "etcd", func(w talos.Watched) bool { return w.Etcd != "" })

	if err := <-s.ended; failure.ClassOf(err) != failure.ClassTransient {
		t.Errorf("the stream ended with %v, want a transient error", err)
	}
}
